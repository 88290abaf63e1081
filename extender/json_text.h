// Writing JSON strings by hand, where building a document would cost more than the answer.
#pragma once

#include <string>
#include <string_view>

namespace muster::extender {

// Appends `text` quoted and escaped. Bytes that are no UTF-8 become U+FFFD, so the result is always
// valid JSON.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace muster::extender
