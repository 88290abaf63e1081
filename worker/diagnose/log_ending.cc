// What only the whole log tells: whose its lines are, and what was survived.
#include <algorithm>
#include <ranges>

#include "absl/algorithm/container.h"
#include "worker/diagnose/kubernetes_line.h"
#include "worker/diagnose/log_reader.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

// Between a process's end and its launcher's word on it.
constexpr absl::Duration kLongestDying = absl::Minutes(1);
// Steps after an error that show that it ended nothing, beside kStepsOfSurvivors; the last, that an
// end has its own reason.
constexpr int64_t kStepsOfPlainWords = 3;
constexpr int64_t kStepsOfRetries = 1;
constexpr int64_t kStepsOfAnotherStory = 10;

// Whether Ray's process that looks after a node wrote it, or one that controls ranks.
bool IsOfRaysOwn(std::string_view text) {
  constexpr size_t kPrefix = 64;
  const std::string_view begin = text.substr(0, kPrefix);
  return begin.find("(raylet") != begin.npos || begin.find("(TrainController ") != begin.npos ||
         begin.find(".WorkerGroupError: ") != begin.npos;
}

bool IsOrigin(const Observation& seen) {
  return !seen.is_result && CauseOf(seen.cause).role == Role::kOrigin;
}

// What is done to a job from outside gives it time to end, in which it trains on.
bool LeavesTimeToEnd(CauseId cause) {
  return cause == CauseId::kProbeFailed || cause == CauseId::kPreempted ||
         cause == CauseId::kTimeLimit || cause == CauseId::kNodeLost;
}

// What is tried again until all ranks are there, which a step shows that they are.
bool IsOfRendezvous(const Observation& seen) {
  const bool of_ranks = seen.cause == CauseId::kConnectionRefused ||
                        seen.cause == CauseId::kPeerUnreachable ||
                        seen.cause == CauseId::kNameNotFound;
  return (seen.is_weak && of_ranks) || seen.cause == CauseId::kLauncherUnreachable;
}

// Whether the kernel killed a process a while before another one ended, of which it says nothing.
bool IsKillOfAnother(const Observation& kill, const Observation& end) {
  if (kill.cause != CauseId::kHostOutOfMemory && kill.cause != CauseId::kNodeOutOfMemory) {
    return false;
  }
  const auto killed = NumberAfter(kill.text, "Killed process ");
  if (!killed || kill.count > 1 || !kill.time || !end.time || !end.is_result) return false;
  for (const std::string_view word : {"(pid: ", "PID ", " pid "}) {
    const auto ended = NumberAfter(end.text, word);
    if (ended) return *ended != *killed && end.time->time - kill.time->time > kLongestDying;
  }
  return false;
}

// An end that needs no reason that was told long before.
bool IsEndByItself(CauseId cause) {
  return cause == CauseId::kKilled || cause == CauseId::kProgramCrash ||
         cause == CauseId::kDataWorkerDied || cause == CauseId::kTerminated ||
         cause == CauseId::kInterrupted;
}

}  // namespace

// The steps that may show that something was survived: of a warning of no rank, anybody's.
int64_t LogReader::ProgressAround(const Observation& seen) const {
  const bool of_all = ((seen.is_weak || seen.is_quoted) && !seen.rank) ||
                      seen.cause == CauseId::kLauncherUnreachable;
  return of_all ? Steps() : ProgressOf(seen.rank);
}

// Steps of another part of the log show something only if they say that they came later.
int64_t LogReader::StepsAfter(const Observation& seen) const {
  if (seen.is_event || seen.is_state) return 0;
  if (facts_.parts == 1) return ProgressAround(seen) - seen.progress_before;
  const auto own = seen.steps_after.value_or(ProgressAround(seen) - seen.progress_before);
  const auto later = absl::c_count_if(step_times_, [&](const LineTime& step) {
    return seen.time && Since(*seen.time, step) > absl::ZeroDuration();
  });
  return std::max<int64_t>(own, later);
}

// Events of pods that aren't the job's, where kubectl lists all of a namespace: those of the job
// are the ones that also write here, or else the most.
void LogReader::DropStrangers() {
  std::set<std::string> own;
  for (const std::string& host : hosts_) {
    if (families_.contains(FamilyOf(host))) own.insert(FamilyOf(host));
  }
  int64_t most = 0;
  for (const auto& [family, lines] : families_) most = std::max(most, lines);
  for (const auto& [family, lines] : families_) {
    if (hosts_.empty() || own.empty()) {
      if (lines == most) own.insert(family);
    }
  }
  std::erase_if(facts_.observations, [&](const Observation& seen) {
    std::string_view node = seen.host;
    if (seen.is_listed && ConsumePrefix(&node, "node/")) {
      return !nodes_.empty() && !nodes_.contains(std::string(node));
    }
    const std::string family = FamilyOf(seen.host);
    return seen.is_listed && families_.contains(family) && !own.contains(family);
  });
}

// Whether the program says, right after an error or with it, that it goes on.
bool LogReader::IsSaidToBeOver(const Observation& seen) const {
  for (auto near = goes_on_.lower_bound(seen.last_line);
       near != goes_on_.end() && near->first <= seen.last_line + kLinesOfRecovery; ++near) {
    if (!near->second || !seen.rank || near->second == seen.rank) return true;
  }
  return false;
}

// What training went on after ended nothing, unless an end follows that nothing else explains; nor
// did what came before all was started anew, or before a good end.
void LogReader::MarkSurvivors() {
  const auto ends_after = [this](int64_t line, const Observation* of) {
    return absl::c_any_of(facts_.observations, [&](const Observation& other) {
      // Who has done its work, and waits for others or serves them, is told to end.
      if (of == nullptr && other.cause == CauseId::kTerminated) return false;
      const bool after = other.last_line > line || (of != nullptr && other.is_state);
      return other.is_result && after &&
             (of == nullptr || (MayBeSameRank(*of, other) && !IsEndByItself(other.cause)));
    });
  };
  // What came after more steps is why it ended.
  const auto is_explained = [&](const Observation& of) {
    return absl::c_any_of(facts_.observations, [&](const Observation& other) {
      return (!other.is_result || IsEndByItself(other.cause)) && !other.is_event &&
             !other.is_weak && CauseOf(other.cause).role != Role::kWarning &&
             other.line > of.last_line && MayBeSameRank(of, other) &&
             (of.rank ? other.progress_before - of.progress_before
                      : (other.all_before - of.all_before) / Writers()) >= kStepsOfSurvivors;
    });
  };
  const bool completed = completion_ > 0 && !ends_after(completion_, nullptr);
  const bool ends_ill = absl::c_any_of(facts_.observations, [&](const Observation& seen) {
    return seen.last_line > completion_ && !seen.is_weak &&
           CauseOf(seen.cause).role != Role::kWarning;
  });
  const bool went_on = restart_ > 0 && Steps() - restart_steps_ >= kStepsOfSurvivors;
  for (Observation& seen : facts_.observations) {
    const bool told = seen.cause == CauseId::kTerminated;
    // Who is done leaves the others alone.
    const bool left = completed && !ends_ill && seen.is_weak && IsOfPeers(CauseOf(seen.cause));
    if (left) {
      seen.survived = true;
      continue;
    }
    if ((completed && (seen.last_line < completion_ || told)) ||
        (went_on && seen.last_line < restart_)) {
      seen.survived = true;
      continue;
    }
    if (seen.is_event || seen.is_state || seen.is_result) continue;
    if (absl::c_any_of(facts_.observations,
                       [&](const Observation& end) { return IsKillOfAnother(seen, end); })) {
      seen.survived = true;
      continue;
    }
    const int64_t steps = StepsAfter(seen);
    const int64_t enough = LeavesTimeToEnd(seen.cause)      ? kStepsOfAnotherStory
                           : seen.is_weak && IsOrigin(seen) ? kStepsOfRetries
                           : seen.is_bare && !seen.rank     ? kStepsOfRetries
                           : IsOfRendezvous(seen)           ? kStepsOfRetries
                           : ends_after(seen.last_line, &seen) && !is_explained(seen)
                               ? kStepsOfAnotherStory
                           : seen.is_weak || seen.is_quoted ? kStepsOfRetries
                           : IsSaidToBeOver(seen)           ? kStepsOfRetries
                           : seen.is_plain                  ? kStepsOfPlainWords
                                                            : kStepsOfSurvivors;
    seen.survived = steps >= enough;
  }
  // An end of another process than the ranks, unless something came of it: where logs stand one
  // after another, the steps are others'.
  for (Observation& seen : std::views::reverse(facts_.observations)) {
    const bool told = seen.is_event || seen.is_state;
    if (!seen.is_result || told || seen.is_root || seen.survived) continue;
    const int64_t enough = IsSaidToBeOver(seen) ? kStepsOfPlainWords : kStepsOfAnotherStory;
    const bool goes_ill = absl::c_any_of(facts_.observations, [&](const Observation& other) {
      return !other.survived && !other.is_weak && CauseOf(other.cause).role != Role::kWarning &&
             other.line > seen.last_line;
    });
    seen.survived = !goes_ill && StepsAfter(seen) >= enough;
  }
  MarkWordsBeforeLast();
}

// The last word that all is done is believed where nothing but words speaks against it: neither an
// exception nor an end, nor what is done from outside, which programs end well of.
void LogReader::MarkWordsBeforeLast() {
  if (last_word_ == 0 || ended_ill_) return;
  const auto is_word = [this](const Observation& seen) {
    const bool of_words =
        seen.is_weak || seen.is_plain || seen.is_quoted || seen.is_record || IsSaidToBeOver(seen);
    return of_words && !seen.is_event && !seen.is_result && !LeavesTimeToEnd(seen.cause) &&
           seen.cause != CauseId::kTerminated && seen.cause != CauseId::kInterrupted &&
           seen.last_line < last_word_;
  };
  const auto speaks_against = [&](const Observation& seen) {
    return !seen.survived && CauseOf(seen.cause).role != Role::kWarning && !is_word(seen);
  };
  if (absl::c_any_of(facts_.observations, speaks_against)) return;
  for (Observation& seen : facts_.observations) seen.survived |= is_word(seen);
}

// Whoever waits in vain says so; the one rank that wrote of other work meanwhile is waited for.
void LogReader::NameBusyRank() {
  int64_t gave_up = 0;
  std::set<int> waited;
  std::set<int> failed;
  for (const Observation& seen : facts_.observations) {
    if (seen.rank) failed.insert(*seen.rank);
    if (!seen.rank || !IsHang(seen.cause)) continue;
    if (gave_up == 0) gave_up = seen.line;
    waited.insert(*seen.rank);
  }
  if (waited.size() < 2) return;
  for (const auto& [rank, line] : at_work_) {
    if (line > gave_up && !failed.contains(rank)) facts_.progress.WentOn(rank);
  }
}

// The rank that a launcher says failed first; where several do, each speaks of its own node.
std::optional<int> LogReader::RootFor(const Observation& observation) const {
  if (roots_.size() <= 1) return root_rank_;
  const auto found = roots_.find({observation.part + 1, observation.host});
  if (found != roots_.end()) return found->second;
  std::set<int> of_part;
  for (const auto& [place, rank] : roots_) {
    if (place.first == observation.part + 1) of_part.insert(rank);
  }
  return of_part.size() == 1 && observation.host.empty() ? std::optional(*of_part.begin())
                                                         : std::nullopt;
}

// Whether the rank that a launcher says failed first is none of those that write here; its number
// on its node is none of theirs if they are smaller.
bool LogReader::RootIsBeyondRanks() const {
  return root_rank_ && !ranks_.contains(*root_rank_) &&
         (!root_is_local_ || ranks_.empty() || *root_rank_ > *ranks_.rbegin());
}

// Whether it is told of a pod, whose rank needn't be one that writes in the log.
bool LogReader::IsToldOfPod(const Observation& observation) const {
  return observation.is_event || (observation.is_state && facts_.parts > 1);
}

// Whose line an observation without a rank is. A log of one rank needn't say so on each line.
std::optional<int> LogReader::WriterOf(const Observation& observation) const {
  const auto named = directory_.Find(observation.text);
  if (named) return named;
  // NCCL's line of a process that isn't the one whose rank is known.
  const bool another = (!NcclProcessOf(observation.text).empty() && directory_.KnowsProcesses()) ||
                       IsOfRaysOwn(observation.text);
  // A launcher's word on another process than the one that noticed its end.
  // Nor what else went wrong while this rank waited.
  const bool noticed = absl::c_any_of(facts_.observations, [&](const Observation& seen) {
    return seen.rank &&
           (IsNoticedByOther(observation, seen) || (IsOrigin(observation) && IsHang(seen.cause)));
  });
  if (ranks_.size() == 1 && !another && !noticed && !RootIsBeyondRanks()) return *ranks_.begin();
  const bool guess = root_is_guess_ && IsOrigin(observation);
  // Who was killed saw nothing of it.
  const bool of_others = absl::c_any_of(facts_.observations, [&](const Observation& end) {
    return end.is_root && IsNoticedByOther(end, observation);
  });
  if (ranks_.empty() && !guess && !of_others) return RootFor(observation);
  return std::nullopt;
}

// The rank that something hit which was told of no rank, such as a device's fault in the kernel log
// or an exception that a launcher passes on: the only one that tells the same, or else the only one
// that tells of more than others' silence.
std::optional<int> LogReader::RankHitBy(const Observation& observation) const {
  if (observation.rank || IsToldOfPod(observation)) return observation.rank;
  if (CauseOf(observation.cause).role != Role::kOrigin) return std::nullopt;
  std::set<int> same;
  std::set<int> hit;
  for (const Observation& other : facts_.observations) {
    if (!other.rank || other.survived || IsHang(other.cause)) continue;
    if (CauseOf(other.cause).role == Role::kEcho || other.cause == CauseId::kTerminated) continue;
    hit.insert(*other.rank);
    const bool another_exception =
        other.cause == CauseId::kPythonException && other.text != observation.text;
    if (other.cause == observation.cause && !another_exception) same.insert(*other.rank);
  }
  if (same.size() == 1) return *same.begin();
  if (observation.is_result) return std::nullopt;
  if (hit.size() == 1) return *hit.begin();
  const std::optional<int> root = RootFor(observation);
  const bool root_fits =
      root && !root_is_guess_ && (hit.empty() ? RootIsBeyondRanks() : hit.contains(*root));
  return root_fits ? root : std::nullopt;
}

// What then comes from one source is one.
void LogReader::FillWriters() {
  section_start_ = 0;
  recovered_.clear();
  for (Observation& observation : facts_.observations) {
    const bool of_root =
        observation.is_state && !root_host_.empty() && observation.host == root_host_;
    if (of_root && root_rank_ && roots_.size() <= 1 && !root_is_local_ && !root_is_guess_)
      observation.rank = root_rank_;
    if (IsToldOfPod(observation)) continue;
    if (!observation.rank) observation.rank = WriterOf(observation);
    if (observation.host.empty() && hosts_.size() == 1) observation.host = *hosts_.begin();
  }
  std::vector<std::optional<int>> hit;
  for (const Observation& observation : facts_.observations) hit.push_back(RankHitBy(observation));
  std::vector<Observation> all = std::exchange(facts_.observations, {});
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].rank = hit[i];
    all[i].is_of_root = hit[i] && !root_is_local_ && RootFor(all[i]) == hit[i];
  }
  std::ranges::stable_sort(all, {}, &Observation::line);
  for (Observation& observation : all) Add(std::move(observation));
}

}  // namespace muster::worker
