// `muster-worker eval [--SETTING=VALUE...]`: the loss of weights, or of a checkpoint, on token
// files. One pod or several, as `train`.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace muster::worker {

// `arguments` are the program's, "eval" included; all ranks must have one `version` of it. Rank 0
// writes one line to `out`: "loss 3.123456  perplexity 22.7247  65472 tokens of 65472". Returns the
// exit code.
int RunEval(const std::vector<std::string>& arguments, const std::string& version,
            std::ostream& out);

}  // namespace muster::worker
