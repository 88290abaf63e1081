#include "worker/diagnose/live_diagnosis.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr size_t kMaxLastLine = 400;
constexpr int kExitOfSigkill = 137;  // as shells tell it of their children

std::string NameOf(const LiveDiagnosis::Output& output) {
  const std::string_view stream = output.is_error ? "standard error" : "standard output";
  return output.rank ? Concat("rank ", *output.rank, "'s ", stream)
                     : Concat("the launcher's ", stream);
}

CauseId CauseOfEnd(const LiveDiagnosis::End& end) {
  switch (end.signal) {
    case 0:
      return end.exit_code == kExitOfSigkill ? CauseId::kKilled : CauseId::kProcessEnded;
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

bool SaysWhatFailed(const Explanation& explanation) {
  return !explanation.findings.empty() && explanation.findings.front().relation == Relation::kFirst;
}

}  // namespace

LiveDiagnosis::LiveDiagnosis(std::string host) : host_(std::move(host)) {
  known_.file = "the launcher";
}

void LiveDiagnosis::Read(const Output& output, absl::Time time, std::string_view line) {
  auto found = outputs_.find(output);
  if (found == outputs_.end()) {
    if (outputs_.size() >= kMaxOutputs) return;
    found = outputs_.emplace(output, OutputSoFar{.reader = LogReader(NameOf(output))}).first;
  }
  OutputSoFar& so_far = found->second;
  const auto read = [&](int64_t number, std::string_view piece) {
    so_far.reader.Read(number, piece, time);
    if (!StripBlanks(piece).empty()) so_far.last = std::string(piece.substr(0, kMaxLastLine));
  };
  so_far.lines.Feed(line, read);
  so_far.lines.Feed("\n", read);
}

std::string_view LiveDiagnosis::LastLine(std::optional<int> rank) const {
  for (const bool is_error : {true, false}) {
    const auto found = outputs_.find({.rank = rank, .is_error = is_error});
    if (found != outputs_.end() && !found->second.last.empty()) return found->second.last;
  }
  return {};
}

void LiveDiagnosis::Ended(std::optional<int> rank, End end, absl::Time time) {
  const bool is_first = std::ranges::none_of(known_.observations, &Observation::is_root);
  Know({.cause = CauseOfEnd(end),
        .detail = WordsOfEnd(end),
        .rank = rank,
        .host = host_,
        .time = LineTime{.time = time},
        .is_result = true,
        .is_root = is_first});
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
  LogFacts known = known_;
  for (Observation& seen : known.observations) {
    const std::string_view last = seen.is_result ? LastLine(seen.rank) : std::string_view();
    if (!last.empty()) Append(&seen.detail, "; its last line: ", Printable(last, kMaxLastLine));
  }
  // An end of the launcher's own process says nothing once a rank says why.
  LogFacts of_ranks = known;
  std::erase_if(of_ranks.observations,
                [](const Observation& seen) { return seen.is_result && !seen.rank; });
  logs.push_back(std::move(of_ranks));
  Explanation explanation = Rank(logs);
  if (SaysWhatFailed(explanation)) return explanation;
  logs.back() = std::move(known);
  return Rank(std::move(logs));
}

std::optional<Failure> LiveDiagnosis::Verdict() const {
  const Explanation explanation = Explain();
  if (!SaysWhatFailed(explanation)) return std::nullopt;
  const Observation& first = explanation.findings.front().observation;
  return Failure{.cause = first.cause,
                 .detail = first.detail.empty() ? first.text : first.detail,
                 .rank = first.rank,
                 .host = first.host};
}

}  // namespace muster::worker
