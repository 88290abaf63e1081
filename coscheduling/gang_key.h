// What names a gang.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace muster::coscheduling {

struct GangKey {
  std::string name_space;
  std::string name;
  bool is_pod = false;  // a gang of one without a PodGroup
  auto operator<=>(const GangKey&) const = default;
  std::string ToString() const { return name_space + "/" + name; }
};

// A gang for as long as it exists in this process: by it each owner finds what it keeps of the
// gang. Never used again.
enum class GangId : uint64_t { kNone = 0 };

}  // namespace muster::coscheduling
