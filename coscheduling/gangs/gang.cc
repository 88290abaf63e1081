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

}  // namespace muster::coscheduling
