// An explanation as text for people and as JSON for programs.
#pragma once

#include <string>

#include "worker/diagnose/ranking.h"

namespace muster::worker {

// A paragraph per finding: who failed and why, where it stands, whether to start again, the fix.
std::string ExplanationText(const Explanation& explanation);

// {"findings": [{"relation", "cause", "sentence", "detail", "fix", "fault", "outcome", "exitCode",
// "file", "line", "text", "count", "rank", "host", "time", "timeIsNear"}], "leftOut": 0}, findings
// in the order of Explanation; detail, rank, host, time and timeIsNear only if known. Times are RFC
// 3339 in UTC; one whose year no log says begins with "--MM-DD".
std::string ExplanationJson(const Explanation& explanation);

}  // namespace muster::worker
