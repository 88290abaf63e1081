// `muster-worker convert`: token files from text or from others' ids, and weights from checkpoints.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace muster::worker {

// `arguments` are those after the word convert; {"--help"} lists them. Returns the exit code.
int RunConvert(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace muster::worker
