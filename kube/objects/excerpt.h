// As much of what others wrote as a message shows.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::kube {

// What a message may have in all: the longest names that there can be, and a sentence around them.
inline constexpr size_t kMaxMessageBytes = 1024;

// `text`, or its first `limit` bytes, cut between two characters, and "...". Always UTF-8: where
// the text isn't, a "?" stands for each byte that isn't ASCII.
std::string Excerpt(std::string_view text, size_t limit = kMaxMessageBytes);

}  // namespace muster::kube
