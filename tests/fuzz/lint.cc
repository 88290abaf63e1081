// `muster lint`: manifests to findings, and those to text, JSON and SARIF.
#include "lint/lint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "lint/output.h"
#include "tests/fuzz/fuzz.h"
#include "yaml/tree.h"

namespace muster::fuzz {
namespace {

using nlohmann::json;

void RequireLine(int line, std::string_view input) {
  Require(line >= 1 && line <= std::ranges::count(input, '\n') + 1, "a line is inside the file");
}

void CheckResult(const lint::LintResult& result, std::string_view input) {
  for (const lint::Finding& finding : result.findings) {
    RequireLine(finding.line, input);
    RequireSayable(finding.message);
    RequireSayable(finding.fix);
    Require(!yaml::ParseYaml(finding.yaml).error, "what is to be written instead is YAML");
  }
  for (const lint::FileError& error : result.errors) {
    RequireLine(error.line, input);
    RequireSayable(error.message);
  }
}

void CheckOutputs(const lint::LintResult& result) {
  const json plain = json::parse(lint::JsonOutput(result), nullptr, /*allow_exceptions=*/false);
  Require(plain.is_object() && plain.at("findings").size() == result.findings.size() &&
              plain.at("errors").size() == result.errors.size(),
          "JSON has every finding and error");
  const json sarif = json::parse(lint::SarifOutput(result), nullptr, /*allow_exceptions=*/false);
  Require(
      sarif.is_object() && sarif.at("runs").at(0).at("results").size() == result.findings.size(),
      "SARIF has every finding");
  Require(lint::TextOutput(result).empty() == result.findings.empty(), "text has findings only");
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  const auto& types = muster::cluster::InstanceTypes::BuiltIn();
  const muster::lint::LintResult result = muster::lint::Lint({{"f", std::string(input)}}, types);
  muster::fuzz::CheckResult(result, input);
  muster::fuzz::CheckOutputs(result);
}
