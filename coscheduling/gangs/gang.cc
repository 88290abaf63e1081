#include "coscheduling/gangs/gang.h"

#include <algorithm>

namespace muster::coscheduling {

std::string Gang::uid() const {
  if (group != nullptr) return group->meta.uid;
  if (key.is_pod && !pods.empty()) return *pods.begin();
  return "";
}

int64_t Gang::required() const {
  return std::max<int64_t>(0, facts.min_member - facts.bound - facts.succeeded);
}

bool PlacedBefore(const Gang& a, const Gang& b) {
  const bool a_bound = !a.bound.empty();
  const bool b_bound = !b.bound.empty();
  if (a_bound != b_bound) return a_bound;
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.created != b.created) return a.created < b.created;
  return a.key < b.key;
}

}  // namespace muster::coscheduling
