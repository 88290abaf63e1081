// `muster-worker preflight [OPTION...]`: the checks as a table or as JSON.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "worker/preflight/checks.h"

namespace muster::worker {

// One line a check: verdict, name, numbers, and the fix where there is one.
std::string RowsText(const std::vector<Row>& rows);

// {"rows": [{"check", "verdict": "ok"|"warning"|"failed", "numbers", "fix", "cause"}], "exitCode":
// 0}; fix and cause only if the verdict isn't ok.
std::string RowsJson(const std::vector<Row>& rows);

struct PreflightOptions {
  Expectations expected = {};
  bool json = false;
  bool help = false;
};

// Takes those that it knows out of `arguments`. Returns what is wrong with one, or "".
std::string TakePreflightOptions(std::vector<std::string>* arguments, PreflightOptions* options);
// What TakePreflightOptions knows.
std::string_view PreflightUsage();

// `arguments` are those after the word preflight; RunPreflight({"--help"}, ...) lists them. Checks
// `machine` alone, not what other ranks say. Returns ExitCodeOf the rows, 2 for wrong arguments.
int RunPreflight(const std::vector<std::string>& arguments, Machine& machine, std::ostream& out,
                 std::ostream& err);

}  // namespace muster::worker
