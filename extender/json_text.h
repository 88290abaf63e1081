// Text on its way into JSON: written by hand where building a document would cost more than the
// answer, and cut where it is too long.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::extender {

// Appends `text` quoted and escaped. Bytes that are no UTF-8 become U+FFFD, so the result is always
// valid JSON.
void AppendJsonString(std::string_view text, std::string* out);

// The longest part of `text` from its start that has at most `limit` bytes and doesn't end within a
// character.
std::string_view Utf8Prefix(std::string_view text, size_t limit);

}  // namespace muster::extender
