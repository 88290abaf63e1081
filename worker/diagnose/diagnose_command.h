// `muster-worker diagnose [-o text|json] FILE...`
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace muster::worker {

// `arguments` are those after the word diagnose; a FILE "-" is standard input. Writes the
// explanation to `out`, and what couldn't be read, or how to call it, to `err`. Returns 0 if
// something was explained, 1 if nothing was recognised, 2 if a file couldn't be read or the
// arguments are wrong; the other files are explained even so.
int RunDiagnose(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace muster::worker
