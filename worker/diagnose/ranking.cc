#include "worker/diagnose/ranking.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "worker/diagnose/cause_table.h"
#include "worker/diagnose/efa_error.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr int kHandshakeError = 4126;
constexpr int kOriginStrength = 6;
constexpr size_t kMaxHangDetail = 2000;
constexpr int64_t kLargestAwaited = 1'000'000;
// Clocks of nodes agree to much less; times without fractions and the neighbours' times don't.
constexpr absl::Duration kClockSkew = absl::Seconds(5);
// PyTorch's longest default timeout is 30 minutes; who notices later than this noticed another
// thing.
constexpr absl::Duration kLongestWait = absl::Minutes(35);
// Launchers give ranks up to half a minute between the signal that they got and SIGTERM.
constexpr absl::Duration kLongestFarewell = absl::Minutes(1);
// The driver may write of a device's fault only when it has dealt with it.
constexpr absl::Duration kLongestRepair = absl::Minutes(1);
// What is tried again and warned of for longer than this has succeeded in between.
constexpr absl::Duration kLongestRetries = absl::Minutes(35);

Role RoleOf(const Observation& observation) {
  return observation.survived ? Role::kWarning : CauseOf(observation.cause).role;
}

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

// Whoever waits in vain reports; the rank that failed is the one that the others wait for.
void NameStragglers(const CollectiveProgress& progress, std::vector<Finding>* findings) {
  if (const std::optional<int> odd = progress.Odd()) {
    for (Finding& finding : *findings) {
      if (finding.observation.cause == CauseId::kCollectivesDiffer) finding.observation.rank = odd;
    }
  }
  const CollectiveProgress::Behind behind = progress.Stragglers();
  if (behind.ranks.empty()) return;
  for (Finding& finding : *findings) {
    Observation& seen = finding.observation;
    if (!IsHang(seen.cause)) continue;
    seen.detail = Printable(Concat(behind.detail, seen.detail.empty() ? "" : "; ", seen.detail),
                            kMaxHangDetail);
    if (seen.rank && std::ranges::find(behind.ranks, *seen.rank) != behind.ranks.end()) continue;
    seen.rank = behind.ranks.size() == 1 ? std::optional(behind.ranks.front()) : std::nullopt;
    seen.host.clear();  // that of the rank that waited
  }
}

std::vector<Finding> Gather(std::vector<LogFacts> logs) {
  std::vector<Finding> findings;
  std::optional<absl::Time> with_year;
  int64_t parts = 0;
  for (LogFacts& log : logs) {
    const int64_t before = std::exchange(parts, parts + log.parts);
    for (Observation& seen : log.observations) {
      seen.part += before;
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

// What ranks whose NCCLs don't understand each other see of that.
bool IsSeenByNccl(const Observation& seen) {
  return !seen.survived &&
         (seen.cause == CauseId::kConnectionClosed || seen.cause == CauseId::kNcclInternalError ||
          seen.cause == CauseId::kNcclSystemError);
}

// Where NCCL failed before any step, and nothing says why but that its processes, by what each of
// them said of itself, run several versions of it.
void AddVersions(const std::vector<std::pair<std::string, NcclVersionLine>>& versions,
                 std::vector<Finding>* findings) {
  if (versions.size() < 2) return;
  const bool seen = std::ranges::any_of(
      *findings, [](const Finding& finding) { return IsSeenByNccl(finding.observation); });
  const bool explained = std::ranges::any_of(*findings, [](const Finding& finding) {
    return RoleOf(finding.observation) == Role::kOrigin && !finding.observation.is_weak;
  });
  if (!seen || explained) return;
  const auto& [file, last] = versions.back();
  Observation observation{.cause = CauseId::kVersionsDiffer, .line = last.line, .text = last.text};
  for (const auto& [unused, said] : versions) {
    Append(&observation.detail, observation.detail.empty() ? "" : ", ", "NCCL ", said.version,
           " in ", said.process);
  }
  findings->push_back({.file = file, .observation = std::move(observation)});
}

absl::Duration Between(const Finding& a, const Finding& b) {
  return Between(a.observation, b.observation);
}

bool IsBefore(const Finding& a, const Finding& b) { return IsBefore(a.observation, b.observation); }

bool MayBeOfOneRank(const Observation& a, const Observation& b) {
  if (a.rank && b.rank) return a.rank == b.rank;
  if (!a.host.empty() && !b.host.empty() && a.host != b.host) return false;
  return !IsNoticedByOther(a, b) && !IsNoticedByOther(b, a);
}

// Whether `why` says nothing of how a process ended that had ended before, or by another hand.
bool IsOfAnotherEnd(const Finding& end, const Finding& why) {
  const CauseId ended = end.observation.cause;
  const CauseId cause = why.observation.cause;
  if (!end.observation.is_result) return false;
  const bool told = ended == CauseId::kTerminated || ended == CauseId::kInterrupted;
  if (cause == CauseId::kProbeFailed) return !told && why.observation.is_weak;
  const bool tells = cause == CauseId::kTerminated || cause == CauseId::kInterrupted;
  const bool is_echo = RoleOf(why.observation) == Role::kEcho;
  // Who was killed, or crashed, saw nothing of others unless it was before.
  const bool by_itself = ended == CauseId::kKilled || ended == CauseId::kProgramCrash;
  if (is_echo && by_itself && end.file == why.file) return !IsBefore(why, end);
  return end.file == why.file && IsBefore(end, why) && ((tells && !told) || is_echo);
}

// How a rank ended says nothing beside what it, or its log, says of why.
void DropResults(std::vector<Finding>* findings) {
  const auto of_one_source = [](const Finding& a, const Finding& b) {
    const bool both_ranks = a.observation.rank && b.observation.rank;
    return (both_ranks || a.file == b.file) && MayBeOfOneRank(a.observation, b.observation);
  };
  std::vector<Finding> whys;
  for (const Finding& finding : *findings) {
    const bool why =
        !finding.observation.is_result && RoleOf(finding.observation) != Role::kWarning;
    if (why) whys.push_back(finding);
  }
  std::erase_if(*findings, [&](const Finding& finding) {
    return finding.observation.is_result && std::ranges::any_of(whys, [&](const Finding& why) {
             return of_one_source(finding, why) && !IsOfAnotherEnd(finding, why);
           });
  });
}

// Those with a time first; where neither has one, in the order in which they were read.
bool Earlier(const Finding& a, const Finding& b) {
  const absl::Time a_time = a.time.value_or(absl::InfiniteFuture());
  const absl::Time b_time = b.time.value_or(absl::InfiniteFuture());
  if (a_time != b_time) return a_time < b_time;
  // What has no time of its own was dated by the line after it, of whoever wrote that.
  if (a.observation.time_is_near != b.observation.time_is_near) return b.observation.time_is_near;
  return a.observation.is_root && !b.observation.is_root;
}

// How near a finding is to the beginning of things, 0 for what began nothing.
int Strength(const Finding& finding) {
  const Role role = RoleOf(finding.observation);
  if (role == Role::kWarning) return 0;
  if (finding.observation.is_weak && role == Role::kOrigin) return 1;
  // However it ended, what others saw came of it.
  if (finding.observation.is_root && finding.observation.is_result) return kOriginStrength;
  switch (role) {
    case Role::kOrigin:
      // An exit code that isn't known to be the first may itself have come of what ranks saw.
      return finding.observation.cause == CauseId::kProcessEnded ? 3 : kOriginStrength;
    case Role::kReaction:
      // What the cluster did came before what ranks saw of it.
      return finding.observation.is_event ? 5 : 4;
    case Role::kEcho:
      return 2;
    case Role::kResult:
    case Role::kWarning:
      break;
  }
  return 1;
}

// How much a cause that began things says of them: an exception that no row knows, or an end, less
// than one that names what failed; a probe, only that a program hung.
int Sharpness(const Finding& finding) {
  switch (finding.observation.cause) {
    case CauseId::kPythonException:
    case CauseId::kProcessEnded:
    case CauseId::kLauncherUnreachable:
      return 0;
    case CauseId::kProbeFailed:
      return 1;
    default:
      return 2;
  }
}

// Whether `later` tells the same as `first`, but says more.
bool Refines(const Observation& later, const Observation& first) {
  if (first.xid != 0) return false;
  const std::vector<Cause>& causes = BuiltInCauses().causes;
  std::string_view kind_of = CauseOf(later.cause).refines;
  for (size_t i = 0; i < causes.size() && !kind_of.empty(); ++i) {
    if (kind_of == CauseOf(first.cause).name) return true;
    kind_of = std::ranges::find(causes, kind_of, &Cause::name)->refines;
  }
  return false;
}

// Whether what the driver wrote first in the kernel log, of which days may be kept, has nothing to
// do with what comes later: what programs did on devices that were whole, or long before.
bool IsOlderStory(const Finding& first, const Finding& later) {
  if (first.observation.xid == 0 || RoleOf(later.observation) != Role::kOrigin) return false;
  if (later.observation.xid != 0) {
    return CauseOf(first.observation.cause).fault == Fault::kProgram &&
           CauseOf(later.observation.cause).fault == Fault::kNode;
  }
  return !later.observation.is_result && !later.observation.is_weak &&
         Between(first, later) > kLongestWait;
}

// Whether what the driver says of a device that failed explains what a program saw of it.
bool IsDeviceUnder(const Observation& fault, const Observation& seen) {
  return fault.cause == CauseId::kGpuFault && seen.xid == 0 &&
         CauseOf(seen.cause).fault == Fault::kProgram;
}

// Why the cluster ends a pod or a job: by SIGTERM.
bool IsReasonToEnd(CauseId cause) {
  switch (cause) {
    case CauseId::kProbeFailed:
    case CauseId::kPreempted:
    case CauseId::kTimeLimit:
    case CauseId::kNodeLost:
    case CauseId::kNodeMemoryLow:
    case CauseId::kNodeStorageLow:
      return true;
    default:
      return false;
  }
}

// Whoever interrupts a launcher makes it end its ranks by SIGTERM, and whatever they raise as they
// go.
std::optional<bool> ReplacesInterrupt(const Finding& later, const Finding& first) {
  const CauseId first_cause = first.observation.cause;
  const CauseId later_cause = later.observation.cause;
  if (first_cause == CauseId::kTerminated && later_cause == CauseId::kInterrupted) {
    return Between(first, later) <= kLongestFarewell;
  }
  // Somebody who saw that a rank was gone.
  const bool timed = first.time && later.time && !later.observation.time_is_near;
  if (later_cause == CauseId::kInterrupted && !timed && IsBefore(first, later) &&
      !first.observation.is_result) {
    return Strength(first) <= 1;
  }
  if (first_cause != CauseId::kInterrupted) return std::nullopt;
  const bool goes =
      later_cause == CauseId::kTerminated ||
      (later.file == first.file && !later.observation.is_event && !IsReasonToEnd(later_cause) &&
       later.observation.line > first.observation.line);
  return goes ? std::optional(false) : std::nullopt;
}

// What is done to a job from outside, which its own processes don't bring about.
bool IsFromOutside(const Observation& seen) {
  if (IsReasonToEnd(seen.cause)) return true;
  switch (seen.cause) {
    case CauseId::kNodeOutOfMemory:
    case CauseId::kHostOutOfMemory:
    case CauseId::kGpuFault:
    case CauseId::kInterrupted:
      return true;
    default:
      return seen.is_event;
  }
}

// What a program that was told to end raises as it goes.
bool IsRaisedInGoing(const Finding& later, const Finding& first) {
  const Observation& told = first.observation;
  return told.cause == CauseId::kTerminated && !told.is_result && !told.is_event &&
         later.file == first.file && IsBefore(first, later) &&
         MayBeSameRank(told, later.observation) && !IsFromOutside(later.observation);
}

// A traceback has no time but that of the line after it, which may be what came of it.
bool IsDatedByWhatCameOfIt(const Finding& cause, const Finding& first) {
  const Observation& seen = cause.observation;
  return cause.file == first.file && IsBefore(cause, first) && seen.time_is_near &&
         !seen.is_result && !seen.is_weak && cause.time == first.time &&
         Strength(cause) > Strength(first);
}

// Whether a rank ended without a word after another process had said what to change.
bool IsSilentEndAfter(const Finding& end, const Finding& first) {
  const Observation& seen = first.observation;
  return end.observation.cause == CauseId::kProcessEnded && end.observation.is_result &&
         RoleOf(seen) == Role::kReaction && CauseOf(seen.cause).exit_code < 128 && !seen.is_weak &&
         end.file == first.file && Between(first, end) > absl::ZeroDuration();
}

// Whether `end` says only that a process ended, and `why`, at about that time, what failed: of
// launchers and processes on several nodes, whose times and ranks may not be known.
bool IsEndBeside(const Finding& end, const Finding& why) {
  return end.observation.cause == CauseId::kProcessEnded && end.observation.is_result &&
         !why.observation.is_result && Strength(why) == kOriginStrength && Sharpness(why) == 2 &&
         absl::AbsDuration(Between(end, why)) <= kLongestFarewell;
}

// Whether an exception that speaks of GPUs came of what CUDA had warned of as it began.
bool IsSeenWithoutDevice(const Finding& raised, const Finding& warned) {
  const CauseId cause = warned.observation.cause;
  const bool of_device = cause == CauseId::kGpuFabricDown || cause == CauseId::kDriverMissing ||
                         cause == CauseId::kDriverTooOld;
  if (!of_device || !warned.observation.is_weak || warned.observation.survived ||
      raised.observation.cause != CauseId::kPythonException) {
    return false;
  }
  const std::string text = Lowered(raised.observation.text);
  return (text.find("gpu") != text.npos || text.find("cuda") != text.npos) &&
         MayBeSameRank(raised.observation, warned.observation);
}

// Whether `later` is rather what went wrong first than `first`, which was seen earlier.
bool Replaces(const Finding& later, const Finding& first) {
  if (IsOfAnotherEnd(first, later)) return false;
  if (IsOfAnotherEnd(later, first)) return true;
  if (const auto replaces = ReplacesInterrupt(later, first)) return *replaces;
  if (IsOlderStory(first, later)) return true;
  if (IsRaisedInGoing(later, first)) return false;
  if (IsDatedByWhatCameOfIt(later, first)) return true;
  if (IsSeenWithoutDevice(later, first)) return false;
  if (IsSeenWithoutDevice(first, later)) return true;
  if (IsEndBeside(first, later)) return true;
  if (IsEndBeside(later, first)) return false;
  if (first.observation.cause == CauseId::kTerminated && IsReasonToEnd(later.observation.cause)) {
    return Between(first, later) <= kLongestFarewell;
  }
  const bool one_rank = MayBeOfOneRank(first.observation, later.observation);
  const bool under = IsDeviceUnder(later.observation, first.observation);
  if (one_rank && (under || Refines(later.observation, first.observation))) {
    // What a program raised has no time but its neighbours'.
    const bool undated = under && first.observation.time_is_near;
    const absl::Duration between = Between(first, later);
    return undated || between <= (later.observation.xid == 0 ? kClockSkew : kLongestRepair);
  }
  if (one_rank && Refines(first.observation, later.observation)) return false;
  if (IsSilentEndAfter(later, first)) return false;
  // Of ends that a launcher saw at once, or of one rank's, one that says more.
  const bool of_one = first.observation.rank && first.observation.rank == later.observation.rank;
  if (first.observation.cause == CauseId::kProcessEnded && first.observation.is_result &&
      (!first.observation.is_root || later.observation.is_beside_root || of_one) &&
      later.observation.is_result && Strength(later) == kOriginStrength &&
      later.observation.cause != CauseId::kProcessEnded &&
      later.observation.cause != CauseId::kLauncherUnreachable) {
    return Between(first, later) <= kClockSkew;
  }
  // Launchers look at their processes every few seconds.
  const bool found = later.observation.is_root ||
                     (later.observation.is_beside_root && RoleOf(first.observation) == Role::kEcho);
  if (found && IsNoticedByOther(later.observation, first.observation)) {
    return Between(first, later) <= kLongestFarewell;
  }
  if (later.observation.is_result && one_rank) return false;
  const bool retried = first.observation.is_weak && Strength(first) > 1;
  if (retried && !later.observation.is_weak && !later.observation.is_event && Strength(later) > 1 &&
      Strength(later) < kOriginStrength) {
    return Between(first, later) > kLongestRetries;
  }
  if (first.observation.is_result && one_rank) return true;
  const bool ordered = IsBefore(first, later) || IsBefore(later, first);
  if (Strength(later) == kOriginStrength && Strength(first) == kOriginStrength && !ordered) {
    return Sharpness(later) > Sharpness(first);
  }
  if (Strength(later) <= Strength(first)) return false;
  if (Strength(first) == 1 || retried) return true;
  // Told to end because others had ended.
  if (later.observation.cause == CauseId::kTerminated && !later.observation.is_root) return false;
  // What a program makes of it when a collective fails.
  if (later.observation.cause == CauseId::kPythonException && one_rank) {
    return false;
  }
  return Between(first, later) <= kClockSkew;
}

// The rank that is told to be gone, or that was waited for, where the words say which: the store is
// rank 0's.
std::optional<int> AwaitedRank(const Observation& seen) {
  if (seen.cause == CauseId::kStoreLost) return 0;
  const std::string_view text = seen.text;
  const auto rank_after = [](std::string_view words, std::string_view word) -> std::optional<int> {
    const auto rank = NumberAfter(words, word);
    if (!rank || *rank < 0 || *rank > kLargestAwaited) return std::nullopt;
    return static_cast<int>(*rank);
  };
  if (seen.cause == CauseId::kPeerLost) {
    for (const std::string_view end : {" is lost: ", " is gone"}) {
      const size_t at = text.find(end);
      const size_t rank = at == text.npos ? text.npos : text.rfind("rank ", at);
      if (rank != text.npos) return rank_after(text.substr(rank), "rank ");
    }
    const size_t task = text.find("Task /job:");
    return task == text.npos ? std::nullopt : rank_after(text.substr(task), "/task:");
  }
  // Both are numbers in their group, which is all ranks where this one has the same among them.
  constexpr std::string_view kWaits = "] is setting up NCCL communicator and retrieving";
  const size_t at = text.find(kWaits);
  if (at == text.npos) return std::nullopt;
  const size_t open = text.rfind('[', at);
  const auto own = open == text.npos ? std::nullopt : LeadingNumber(text.substr(open + 1));
  return seen.rank && own != *seen.rank ? std::nullopt
                                        : rank_after(text.substr(at), "ncclUniqueId from [");
}

// Who only noticed that another rank is gone isn't the one to look at.
void NameAwaited(Observation* seen) {
  const std::optional<int> awaited = AwaitedRank(*seen);
  if (!awaited || awaited == seen->rank) return;
  if (seen->rank) {
    seen->detail = Printable(
        Concat("seen by rank ", *seen->rank, seen->detail.empty() ? "" : "; ", seen->detail),
        kMaxHangDetail);
  }
  seen->rank = awaited;
  seen->rank_is_index = false;
  seen->host = TextAfter(seen->text, "remote=[", "]");
}

// What failed first: an index into `findings`, which are by time; their number if all are warnings.
size_t First(const std::vector<Finding>& findings) {
  size_t first = 0;
  while (first < findings.size() && Strength(findings[first]) == 0) ++first;
  for (size_t i = first + 1; i < findings.size(); ++i) {
    if (Strength(findings[i]) > 0 && Replaces(findings[i], findings[first])) first = i;
  }
  return first;
}

// Whether both tell of the same at the same time, as far as their log says.
bool IsAlike(const Observation& a, const Observation& b) {
  const auto plain = [](std::string_view text) {
    std::string letters;
    for (const char c : text.substr(0, text.find('\n'))) {
      if (c < '0' || c > '9') letters.push_back(c);
    }
    return letters;
  };
  const bool alike = a.cause != CauseId::kPythonException || plain(a.text) == plain(b.text);
  return alike && a.cause == b.cause && a.is_result == b.is_result && a.part == b.part &&
         RoleOf(a) == Role::kOrigin && RoleOf(b) == Role::kOrigin &&
         Between(a, b) == absl::ZeroDuration();
}

// Where ranks failed alike at once, whose lines came first says nothing: the one that their
// launcher names.
size_t NamedAmongAlike(const std::vector<Finding>& findings, size_t first) {
  if (first == findings.size() || findings[first].observation.is_of_root) return first;
  for (size_t i = 0; i < findings.size(); ++i) {
    const bool named =
        findings[i].observation.is_of_root && findings[i].file == findings[first].file;
    if (named && IsAlike(findings[i].observation, findings[first].observation)) return i;
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
    case Role::kEcho:
    case Role::kResult:
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
  CollectiveProgress progress;
  std::vector<std::pair<std::string, NcclVersionLine>> versions;
  for (const LogFacts& log : logs) {
    progress.Merge(log.progress);
    for (const NcclVersionLine& said : log.nccl_versions) {
      const bool known = std::ranges::any_of(
          versions, [&](const auto& other) { return other.second.version == said.version; });
      if (!known) versions.emplace_back(log.file, said);
    }
  }
  std::vector<Finding>& findings = explanation.findings;
  findings = Gather(std::move(logs));
  AddVersions(versions, &findings);
  DropResults(&findings);
  NameStragglers(progress, &findings);
  std::ranges::stable_sort(findings, Earlier);
  if (const size_t first = NamedAmongAlike(findings, First(findings)); first < findings.size()) {
    const auto begin = findings.begin();
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(first),
                begin + static_cast<std::ptrdiff_t>(first) + 1);
    findings.front().relation = Relation::kFirst;
    for (Finding& finding : std::span(findings).subspan(1)) {
      finding.relation = RelationTo(findings.front(), finding);
    }
    NameAwaited(&findings.front().observation);
  } else {
    for (Finding& finding : findings) finding.relation = Relation::kWarning;
  }
  std::ranges::stable_partition(
      findings, [](const Finding& finding) { return finding.relation != Relation::kWarning; });
  return explanation;
}

}  // namespace muster::worker
