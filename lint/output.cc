#include "lint/output.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lint/text.h"

namespace muster::lint {
namespace {

using Json = nlohmann::ordered_json;

// File names may be anything; JSON is UTF-8.
std::string Dump(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json Location(const std::string& file, int line) {
  return {
      {"physicalLocation",
       {{"artifactLocation", {{"uri", file}}}, {"region", {{"startLine", std::max(line, 1)}}}}}};
}

Json SarifRules() {
  Json rules = Json::array();
  for (const RuleInfo& rule : Rules()) {
    rules.push_back({{"id", rule.id},
                     {"shortDescription", {{"text", rule.what}}},
                     {"defaultConfiguration", {{"level", SeverityName(rule.severity)}}}});
  }
  return rules;
}

Json SarifResult(const Finding& finding) {
  const auto rule = std::ranges::find(Rules(), finding.rule, &RuleInfo::id);
  Json result = {{"ruleId", finding.rule},
                 {"ruleIndex", rule - Rules().begin()},
                 {"level", SeverityName(finding.severity)},
                 {"message", {{"text", Concat(finding.message, ". Fix: ", finding.fix, ".")}}},
                 {"locations", Json::array({Location(finding.file, finding.line)})}};
  if (!finding.yaml.empty()) result["properties"] = {{"yaml", finding.yaml}};
  return result;
}

}  // namespace

std::string TextOutput(const LintResult& result) {
  std::string text;
  for (const Finding& finding : result.findings) {
    Append(&text, finding.file, ":", finding.line, ": ", SeverityName(finding.severity), ": ",
           finding.message, " [", finding.rule, "]\n    fix: ", finding.fix, "\n");
    for (const std::string_view line : SplitWords(finding.yaml, "\n")) {
      Append(&text, "        ", line, "\n");
    }
  }
  return text;
}

std::string JsonOutput(const LintResult& result) {
  Json findings = Json::array();
  for (const Finding& finding : result.findings) {
    findings.push_back({{"file", finding.file},
                        {"line", finding.line},
                        {"rule", finding.rule},
                        {"severity", SeverityName(finding.severity)},
                        {"message", finding.message},
                        {"fix", finding.fix},
                        {"yaml", finding.yaml}});
  }
  Json errors = Json::array();
  for (const FileError& error : result.errors) {
    errors.push_back({{"file", error.file}, {"line", error.line}, {"message", error.message}});
  }
  return Dump({{"files", result.files}, {"findings", findings}, {"errors", errors}});
}

std::string SarifOutput(const LintResult& result) {
  Json results = Json::array();
  for (const Finding& finding : result.findings) results.push_back(SarifResult(finding));
  Json notifications = Json::array();
  for (const FileError& error : result.errors) {
    notifications.push_back({{"level", "error"},
                             {"message", {{"text", error.message}}},
                             {"locations", Json::array({Location(error.file, error.line)})}});
  }
  const Json invocation = {{"executionSuccessful", result.errors.empty()},
                           {"toolExecutionNotifications", notifications}};
  const Json run = {{"tool", {{"driver", {{"name", "muster lint"}, {"rules", SarifRules()}}}}},
                    {"invocations", Json::array({invocation})},
                    {"results", results}};
  return Dump({{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
               {"version", "2.1.0"},
               {"runs", Json::array({run})}});
}

}  // namespace muster::lint
