// The text of a file that a user names, read no further than any command takes it.
#pragma once

#include <iosfwd>
#include <string>

#include "absl/status/statusor.h"

namespace muster::yaml {

// The file's bytes: at most a piece more than kMaxYamlBytes (tree.h), so that what is too
// large is noticed, and no more than that. NotFound with the system's words if it can't be read.
absl::StatusOr<std::string> ReadSourceFile(const std::string& path);
// The same, or those of `in` for "-".
absl::StatusOr<std::string> ReadSource(const std::string& path, std::istream& in);

}  // namespace muster::yaml
