// What was found not to fit in one pass over those who wait, first claim first.
//
// While room is only taken, and the nodes that are kept for others only become more, what one
// couldn't find a later one of the same shape and at least the same size can't find either.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/predicates.h"

namespace muster::cluster {

struct WantedShape {
  // Classes of pods, by where they may be, and how many are of each where there are several. Those
  // with relations to other pods aren't compared: they have none.
  std::map<std::string, size_t> classes;
  // Whose nodes they may use though they are kept from others.
  std::set<uint64_t> may_use;
  auto operator<=>(const WantedShape&) const = default;
};

inline WantedShape WantedShapeOf(const std::vector<const kube::Pod*>& pods,
                                 const std::string& where) {
  WantedShape shape;
  const kube::Pod* previous = nullptr;
  size_t* count = nullptr;
  for (const kube::Pod* pod : pods) {
    if (previous == nullptr || !ShareClass(*previous, *pod)) {
      if (HasRelations(*pod->spec)) return {};
      count = &shape.classes[where + "\n" + ClassKey(*pod)];
    }
    ++*count;
    previous = pod;
  }
  if (shape.classes.size() == 1) shape.classes.begin()->second = 0;
  return shape;
}

// `Shortfall`: what is told of a failure.
template <typename Shortfall>
class KnownFailures {
 public:
  // Null if nothing is known to be in the way of so many.
  const Shortfall* Find(const WantedShape& shape, size_t required) const {
    const auto it = failures_.find(shape);
    const bool known = it != failures_.end() && required >= it->second.required;
    return known ? &it->second.shortfall : nullptr;
  }
  // `found_some`: for a part of them there was room.
  void Note(const WantedShape& shape, size_t required, bool found_some,
            const Shortfall& shortfall) {
    // What some of several classes found others might find, too.
    if (shape.classes.empty() || (shape.classes.size() > 1 && found_some)) return;
    const auto it = failures_.find(shape);
    if (it == failures_.end() || required < it->second.required) {
      failures_[shape] = {required, shortfall};
    }
  }
  // Room was given up.
  void Clear() { failures_.clear(); }

  // Nobody of lower priority could make room for them.
  void NoteInVain(const WantedShape& shape, size_t required, int64_t priority) {
    if (shape.classes.size() == 1) in_vain_[shape].emplace_back(priority, required);
  }
  bool IsInVain(const WantedShape& shape, size_t required, int64_t priority) const {
    const auto it = in_vain_.find(shape);
    return it != in_vain_.end() && std::ranges::any_of(it->second, [&](const auto& known) {
             return known.first >= priority && known.second <= required;
           });
  }

 private:
  struct Failure {
    size_t required;
    Shortfall shortfall;
  };
  std::map<WantedShape, Failure> failures_;
  std::map<WantedShape, std::vector<std::pair<int64_t, size_t>>> in_vain_;
};

}  // namespace muster::cluster
