// As much of what others wrote as a message shows.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster::kube {

// What a message may have in all: the longest names that there can be, and a sentence around them.
inline constexpr size_t kMaxMessageBytes = 1024;

// `text`, or its first `limit` bytes, cut between two characters, and "...". Always UTF-8: where
// the text isn't, a "?" stands for each byte that isn't ASCII.
std::string Excerpt(std::string_view text, size_t limit = kMaxMessageBytes);

// The first `most` of several: "a; b; c; and 4 more".
std::string FirstFew(const std::vector<std::string>& all, size_t most);

}  // namespace muster::kube
