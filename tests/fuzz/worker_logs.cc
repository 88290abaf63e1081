// Logs of training jobs: saved, as one log and as two, and as they come.
#include <simdjson.h>

#include <algorithm>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz.h"
#include "worker/diagnose/diagnosis.h"
#include "worker/diagnose/failure.h"
#include "worker/diagnose/line_splitter.h"
#include "worker/diagnose/live_diagnosis.h"
#include "worker/diagnose/report.h"

namespace muster::fuzz {
namespace {

void Check(const worker::Explanation& explanation, std::string_view input) {
  const std::string text = worker::ExplanationText(explanation);
  Require(simdjson::validate_utf8(text.data(), text.size()), "the text is UTF-8");
  const auto report = nlohmann::json::parse(worker::ExplanationJson(explanation));
  Require(report.at("findings").size() == explanation.findings.size(), "the JSON has all findings");
  const auto lines = 1 + std::ranges::count(input, '\n');
  int firsts = 0;
  for (const worker::Finding& finding : explanation.findings) {
    const worker::Observation& seen = finding.observation;
    Require(seen.line >= 1 && seen.line <= lines, "a finding's line is inside the file");
    RequireSayable(seen.text);
    RequireSayable(seen.detail);
    RequireSayable(seen.host);
    if (finding.relation == worker::Relation::kFirst) ++firsts;
  }
  Require(firsts <= 1, "one finding at most is the first");
  Require(firsts == 0 || explanation.findings.front().relation == worker::Relation::kFirst,
          "the first finding stands first");
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  using namespace muster::worker;
  Diagnosis whole;
  whole.ReadText("log", input);
  Check(whole.Explain(), input);
  Diagnosis halves;
  halves.ReadText("log", input.substr(0, input.size() / 2));
  halves.ReadText("log", input.substr(input.size() / 2));
  Check(halves.Explain(), input);
  LiveDiagnosis live("host");
  LineSplitter splitter;
  const auto read = [&](int64_t number, std::string_view line) {
    const int rank = static_cast<int>(number % 3);
    live.Read({.rank = rank, .is_error = rank == 0}, absl::FromUnixSeconds(number), line);
  };
  splitter.Feed(input, read);
  splitter.Finish(read);
  live.Ended(1, {.exit_code = 1}, absl::FromUnixSeconds(1));
  const auto verdict = live.Verdict();
  Require(verdict.has_value(), "a process that ended with an error is told");
  Require(TerminationMessage(*verdict).size() <= kMaxTerminationMessage,
          "a verdict fits into a termination message");
  if (const auto failure = FailureOf(input, PeerState::kAlive)) {
    const std::string message = TerminationMessage(*failure);
    Require(message.size() <= kMaxTerminationMessage, "a termination message fits");
    Require(ReadTerminationMessage(message)->cause == failure->cause,
            "a termination message is read back");
  }
}
