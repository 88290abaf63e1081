// What lint prints.
#pragma once

#include <string>

#include "lint/lint.h"

namespace muster::lint {

// "FILE:LINE: error: MESSAGE [RULE]", with the fix and the corrected YAML under it.
std::string TextOutput(const LintResult& result);

// {"files", "findings": [{"file", "line", "rule", "severity", "message", "fix", "yaml"}],
//  "errors": [{"file", "line", "message"}]}
std::string JsonOutput(const LintResult& result);

// SARIF 2.1.0, one run; what couldn't be read are notifications of its invocation.
std::string SarifOutput(const LintResult& result);

}  // namespace muster::lint
