// How many rounds a random test runs.
#pragma once

#include <cstdlib>
#include <string_view>

namespace muster::testing {

// `./run test --full optimised` and `./run soak`: each case as often as a release needs.
inline bool IsFull() {
  const char* full = std::getenv("MUSTER_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

inline int Rounds(int usual) { return IsFull() ? 20 * usual : usual; }

}  // namespace muster::testing
