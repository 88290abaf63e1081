#include "worker/diagnose/report.h"

#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

std::string Who(const Observation& seen) {
  if (seen.rank && !seen.host.empty()) return Concat("rank ", *seen.rank, " on ", seen.host);
  if (seen.rank) return Concat("rank ", *seen.rank);
  return seen.host;
}

std::string When(const Finding& finding) {
  if (!finding.time) return "";
  return Concat(finding.observation.time_is_near ? "near " : "at ",
                absl::FormatTime(finding.has_year ? "%Y-%m-%d %H:%M:%E3S" : "%m-%d %H:%M:%E3S",
                                 *finding.time, absl::UTCTimeZone()));
}

// "FIRST: rank 3 on train-3, near 2026-01-01 11:10:18.826"
std::string Heading(const Finding& finding) {
  std::string text(finding.relation == Relation::kFirst         ? "First"
                   : finding.relation == Relation::kConsequence ? "Consequence"
                   : finding.relation == Relation::kWarning     ? "Warning"
                                                                : "Also");
  const std::string who = Who(finding.observation);
  const std::string when = When(finding);
  if (!who.empty()) Append(&text, ": ", who);
  if (!when.empty()) Append(&text, who.empty() ? ": " : ", ", when);
  return text;
}

std::string Fix(const Finding& finding) {
  const Observation& seen = finding.observation;
  const std::string_view fix = CauseOf(seen.cause).fix;
  return seen.remedy.empty() ? std::string(fix) : Concat(fix, " ", seen.remedy);
}

}  // namespace

std::string ExplanationText(const Explanation& explanation) {
  std::string text;
  for (const Finding& finding : explanation.findings) {
    const Observation& seen = finding.observation;
    const Cause& cause = CauseOf(seen.cause);
    Append(&text, text.empty() ? "" : "\n", Heading(finding), "\n  ", cause.sentence,
           seen.detail.empty() ? "" : ": ", seen.detail, "\n  ", finding.file, ":", seen.line, ": ",
           seen.text, "\n");
    if (seen.count > 1) Append(&text, "  and ", seen.count - 1, " more such lines\n");
    Append(&text, "  cause: ", cause.name, " (", FaultName(cause.fault), "; ",
           OutcomeName(OutcomeOf(cause)), ", exit code ", cause.exit_code,
           ")\n  fix: ", Fix(finding), "\n");
  }
  if (explanation.left_out > 0) {
    Append(&text, "\n", explanation.left_out, " more findings were left out\n");
  }
  return text;
}

std::string ExplanationJson(const Explanation& explanation) {
  nlohmann::json findings = nlohmann::json::array();
  for (const Finding& finding : explanation.findings) {
    const Observation& seen = finding.observation;
    const Cause& cause = CauseOf(seen.cause);
    nlohmann::json one = {{"relation", RelationName(finding.relation)},
                          {"cause", cause.name},
                          {"sentence", cause.sentence},
                          {"fix", Fix(finding)},
                          {"fault", FaultName(cause.fault)},
                          {"outcome", OutcomeName(OutcomeOf(cause))},
                          {"exitCode", cause.exit_code},
                          {"file", finding.file},
                          {"line", seen.line},
                          {"text", seen.text},
                          {"count", seen.count}};
    if (!seen.detail.empty()) one["detail"] = seen.detail;
    if (seen.rank) one["rank"] = *seen.rank;
    if (!seen.host.empty()) one["host"] = seen.host;
    if (finding.time) {
      one["time"] =
          absl::FormatTime(finding.has_year ? "%Y-%m-%dT%H:%M:%E*SZ" : "--%m-%dT%H:%M:%E*SZ",
                           *finding.time, absl::UTCTimeZone());
      one["timeIsNear"] = seen.time_is_near;
    }
    findings.push_back(std::move(one));
  }
  const nlohmann::json report = {{"findings", std::move(findings)},
                                 {"leftOut", explanation.left_out}};
  // A file's name need not be UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace muster::worker
