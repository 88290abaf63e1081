#include "worker/diagnose/ranking.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_join.h"
#include "worker/diagnose/efa_error.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr int kHandshakeError = 4126;
// Clocks of nodes agree to much less; times without fractions and the neighbours' times don't.
constexpr absl::Duration kClockSkew = absl::Seconds(5);
// PyTorch's longest default timeout is 30 minutes; who notices later than this noticed another
// thing.
constexpr absl::Duration kLongestWait = absl::Minutes(35);
constexpr size_t kMaxNamedRanks = 8;

Role RoleOf(const Observation& observation) { return CauseOf(observation.cause).role; }

bool SaysWhyItEnded(const Observation& observation) {
  return observation.efa_error == 0 &&
         (RoleOf(observation) == Role::kOrigin || observation.cause == CauseId::kTerminated);
}

PeerState StateIn(const LogFacts& peer) {
  if (std::ranges::any_of(peer.observations, SaysWhyItEnded)) return PeerState::kSilent;
  const bool waits_too = std::ranges::any_of(
      peer.observations, [](const Observation& seen) { return seen.efa_error == kHandshakeError; });
  return waits_too ? PeerState::kAlive : PeerState::kUnknown;
}

// Judges failed EFA requests anew by the peers' own logs.
void AskPeers(std::vector<LogFacts>* logs) {
  std::map<std::string, const LogFacts*> writers;
  for (const LogFacts& log : *logs) {
    for (const std::string& address : log.addresses) writers.emplace(address, &log);
  }
  for (LogFacts& log : *logs) {
    for (Observation& seen : log.observations) {
      const auto peer = writers.find(seen.peer_address);
      if (seen.efa_error == 0 || peer == writers.end() || peer->second == &log) continue;
      const PeerState state = StateIn(*peer->second);
      seen.cause = CauseOfEfaError(seen.efa_error, state);
      if (state == PeerState::kUnknown) continue;
      Append(&seen.detail, "; the peer's log is ", peer->second->file,
             state == PeerState::kAlive ? ", and it waited for this one"
                                        : ", and it says why it ended");
    }
  }
}

// Names the ranks that had enqueued fewer operations than the others of their group.
std::string Stragglers(const std::vector<LogFacts>& logs) {
  std::map<std::string, std::map<int, int64_t>> groups;
  for (const LogFacts& log : logs) {
    for (const CollectiveProgress& one : log.progress) {
      groups[one.group].emplace(one.rank, one.enqueued);
    }
  }
  for (const auto& [group, ranks] : groups) {
    int64_t least = ranks.begin()->second;
    int64_t most = least;
    for (const auto& [rank, enqueued] : ranks) {
      least = std::min(least, enqueued);
      most = std::max(most, enqueued);
    }
    if (least == most) continue;
    std::vector<std::string> behind;
    for (const auto& [rank, enqueued] : ranks) {
      if (enqueued == least && behind.size() < kMaxNamedRanks) behind.push_back(Concat(rank));
    }
    return Concat("rank ", absl::StrJoin(behind, ", "), " is behind: it had enqueued ", least,
                  " collectives of its group when others had enqueued ", most);
  }
  return "";
}

void NameStragglers(std::vector<LogFacts>* logs) {
  const std::string stragglers = Stragglers(*logs);
  if (stragglers.empty()) return;
  for (LogFacts& log : *logs) {
    for (Observation& seen : log.observations) {
      if (seen.cause == CauseId::kCollectiveTimeout && seen.detail.empty()) {
        seen.detail = stragglers;
      }
    }
  }
}

std::vector<Finding> Gather(std::vector<LogFacts> logs) {
  std::vector<Finding> findings;
  std::optional<absl::Time> with_year;
  for (LogFacts& log : logs) {
    for (Observation& seen : log.observations) {
      if (seen.time && seen.time->has_year) with_year = with_year.value_or(seen.time->time);
      findings.push_back({.file = log.file, .observation = std::move(seen)});
    }
  }
  for (Finding& finding : findings) {
    const std::optional<LineTime>& time = finding.observation.time;
    if (!time) continue;
    finding.has_year = time->has_year || with_year.has_value();
    finding.time = time->has_year || !with_year ? time->time : WithYearNear(time->time, *with_year);
  }
  return findings;
}

// Those with a time first; where neither has one, in the order in which they were read.
bool Earlier(const Finding& a, const Finding& b) {
  return a.time.value_or(absl::InfiniteFuture()) < b.time.value_or(absl::InfiniteFuture());
}

// What failed first: an index into `findings`, which are by time; their number if all are warnings.
size_t First(const std::vector<Finding>& findings) {
  const auto role = [&](size_t i) { return RoleOf(findings[i].observation); };
  size_t first = 0;
  while (first < findings.size() && role(first) == Role::kWarning) ++first;
  if (first == findings.size() || role(first) == Role::kOrigin) return first;
  for (size_t i = first + 1; i < findings.size(); ++i) {
    if (role(i) != Role::kOrigin) continue;
    const bool soon = !findings[first].time || !findings[i].time ||
                      *findings[i].time - *findings[first].time <= kClockSkew;
    if (soon) return i;
  }
  return first;
}

Relation RelationTo(const Finding& first, const Finding& finding) {
  switch (RoleOf(finding.observation)) {
    case Role::kWarning:
      return Relation::kWarning;
    case Role::kOrigin:
      return Relation::kAlso;
    case Role::kReaction:
      break;
  }
  const bool at_the_time = !first.time || !finding.time ||
                           absl::AbsDuration(*finding.time - *first.time) <= kLongestWait;
  return at_the_time ? Relation::kConsequence : Relation::kAlso;
}

}  // namespace

std::string_view RelationName(Relation relation) {
  switch (relation) {
    case Relation::kFirst:
      return "first";
    case Relation::kAlso:
      return "also";
    case Relation::kConsequence:
      return "consequence";
    case Relation::kWarning:
      break;
  }
  return "warning";
}

Explanation Rank(std::vector<LogFacts> logs) {
  Explanation explanation;
  for (const LogFacts& log : logs) explanation.left_out += log.left_out;
  AskPeers(&logs);
  NameStragglers(&logs);
  std::vector<Finding>& findings = explanation.findings;
  findings = Gather(std::move(logs));
  std::ranges::stable_sort(findings, Earlier);
  if (const size_t first = First(findings); first < findings.size()) {
    const auto begin = findings.begin();
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(first),
                begin + static_cast<std::ptrdiff_t>(first) + 1);
    findings.front().relation = Relation::kFirst;
    for (Finding& finding : std::span(findings).subspan(1)) {
      finding.relation = RelationTo(findings.front(), finding);
    }
  } else {
    for (Finding& finding : findings) finding.relation = Relation::kWarning;
  }
  std::ranges::stable_partition(
      findings, [](const Finding& finding) { return finding.relation != Relation::kWarning; });
  return explanation;
}

}  // namespace muster::worker
