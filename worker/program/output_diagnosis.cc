#include "worker/program/output_diagnosis.h"

#include <utility>
#include <vector>

#include "worker/diagnose/line_splitter.h"
#include "worker/diagnose/ranking.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr size_t kMostOfLastLine = 400;
constexpr std::string_view kFile = "rank ";

}  // namespace

void OutputDiagnosis::Read(int stream, bool is_error, std::string_view line) {
  const auto [found, is_new] =
      streams_.try_emplace({stream, is_error}, Stream{.reader = LogReader(Concat(kFile, stream))});
  Stream& read = found->second;
  line = line.substr(0, LineSplitter::kMaxLine);
  read.reader.Read(++read.lines, line);
  if (!StripBlanks(line).empty()) read.last = std::string(line.substr(0, kMostOfLastLine));
}

std::optional<Failure> OutputDiagnosis::FirstOf(std::vector<LogFacts> logs) const {
  const Explanation explanation = Rank(std::move(logs));
  if (explanation.findings.empty()) return std::nullopt;
  const Finding& first = explanation.findings.front();
  if (first.relation != Relation::kFirst) return std::nullopt;
  const Observation& seen = first.observation;
  Failure failure{.cause = seen.cause,
                  .detail = seen.detail.empty() ? seen.text : seen.detail,
                  .rank = seen.rank,
                  .host = seen.host};
  if (streams_are_ranks_ && !failure.rank.has_value()) {
    failure.rank = static_cast<int>(NumberAfter(first.file, kFile).value_or(0));
  }
  return failure;
}

std::optional<Failure> OutputDiagnosis::Explain(int first) {
  std::vector<LogFacts> all;
  std::vector<LogFacts> own;
  for (auto& [stream, read] : streams_) {
    all.push_back(read.reader.Finish());
    if (stream.first == first) own.push_back(all.back());
  }
  streams_.clear();
  const std::optional<Failure> of_own = FirstOf(std::move(own));
  if (of_own.has_value() && CauseOf(of_own->cause).role == Role::kOrigin) return of_own;
  const std::optional<Failure> of_all = FirstOf(std::move(all));
  if (of_all.has_value() && CauseOf(of_all->cause).role == Role::kOrigin) return of_all;
  return of_own;
}

std::string OutputDiagnosis::LastLine(int stream) const {
  for (const bool is_error : {true, false}) {
    const auto found = streams_.find({stream, is_error});
    if (found != streams_.end() && !found->second.last.empty()) {
      return Printable(found->second.last, kMostOfLastLine);
    }
  }
  return "";
}

}  // namespace muster::worker
