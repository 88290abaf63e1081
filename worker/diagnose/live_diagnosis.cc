#include "worker/diagnose/live_diagnosis.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

std::string NameOf(const LiveDiagnosis::Output& output) {
  const std::string_view stream = output.is_error ? "standard error" : "standard output";
  return output.rank ? Concat("rank ", *output.rank, "'s ", stream)
                     : Concat("the launcher's ", stream);
}

CauseId CauseOfEnd(const LiveDiagnosis::End& end) {
  switch (end.signal) {
    case 0:
      return CauseId::kProcessEnded;
    case SIGKILL:
      return CauseId::kKilled;
    case SIGTERM:
      return CauseId::kTerminated;
    case SIGINT:
      return CauseId::kInterrupted;
    case SIGABRT:
      return CauseId::kProcessAborted;
    default:
      return CauseId::kProgramCrash;
  }
}

std::string WordsOfEnd(const LiveDiagnosis::End& end) {
  return end.signal == 0 ? Concat("exit code ", end.exit_code) : Concat("signal ", end.signal);
}

}  // namespace

LiveDiagnosis::LiveDiagnosis(std::string host) : host_(std::move(host)) {
  known_.file = "the launcher";
}

void LiveDiagnosis::Read(const Output& output, absl::Time time, std::string_view line) {
  auto found = outputs_.find(output);
  if (found == outputs_.end()) {
    if (outputs_.size() >= kMaxOutputs) return;
    found = outputs_.emplace(output, OutputSoFar{LogReader(NameOf(output)), 0}).first;
  }
  OutputSoFar& so_far = found->second;
  so_far.reader.Read(++so_far.lines, line, time);
}

void LiveDiagnosis::Ended(std::optional<int> rank, End end, absl::Time time) {
  Know({.cause = CauseOfEnd(end),
        .detail = WordsOfEnd(end),
        .rank = rank,
        .host = host_,
        .time = LineTime{.time = time},
        .is_result = true});
}

void LiveDiagnosis::Observe(const Failure& failure, absl::Time time) {
  Know({.cause = failure.cause,
        .detail = failure.detail,
        .rank = failure.rank,
        .host = failure.host.empty() ? host_ : failure.host,
        .time = LineTime{.time = time}});
}

void LiveDiagnosis::Know(Observation observation) {
  if (known_.observations.size() >= LogReader::kMaxObservations) {
    ++known_.left_out;
    return;
  }
  observation.line = static_cast<int64_t>(known_.observations.size()) + 1;
  observation.text = observation.detail;
  known_.observations.push_back(std::move(observation));
}

Explanation LiveDiagnosis::Explain() const {
  std::vector<LogFacts> logs;
  for (const auto& [output, so_far] : outputs_) {
    LogFacts facts = so_far.reader.Facts();
    for (Observation& seen : facts.observations) {
      if (!seen.rank) seen.rank = output.rank;
      if (seen.host.empty() && !seen.is_event) seen.host = host_;
    }
    logs.push_back(std::move(facts));
  }
  // An end of the launcher's own process says nothing once a rank says why.
  LogFacts known = known_;
  const bool told =
      std::ranges::any_of(logs, [](const LogFacts& log) { return !log.observations.empty(); });
  if (told) {
    std::erase_if(known.observations,
                  [](const Observation& seen) { return seen.is_result && !seen.rank; });
  }
  logs.push_back(std::move(known));
  return Rank(std::move(logs));
}

std::optional<Failure> LiveDiagnosis::Verdict() const {
  const Explanation explanation = Explain();
  if (explanation.findings.empty() || explanation.findings.front().relation != Relation::kFirst) {
    return std::nullopt;
  }
  const Observation& first = explanation.findings.front().observation;
  return Failure{.cause = first.cause,
                 .detail = first.detail.empty() ? first.text : first.detail,
                 .rank = first.rank,
                 .host = first.host};
}

}  // namespace muster::worker
