#include "worker/launch/watch.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/communicator/deadline.h"
#include "worker/launch/nccl_ras.h"

namespace muster::worker {
namespace {

// A process that does less in a second waits, and wakes now and then to look whether it still must:
// data loaders each 5 s, watchdogs each 0.1 s for 1 % of a processor.
constexpr double kEventsPerSecond = 4;
constexpr double kShareOfProcessor = 0.05;
// Between two looks at the whole machine for new processes.
constexpr int kLooksBetweenSearches = 5;
constexpr int kLooksAtStart = 60;
constexpr absl::Duration kBetweenLooks = absl::Seconds(1);
constexpr absl::Duration kRasPatience = absl::Seconds(5);
// A rank that was asked has said where it is when it has ended.
constexpr absl::Duration kBetweenAnswers = absl::Milliseconds(50);
constexpr absl::Duration kLongestAnswer = absl::Seconds(3);

absl::Duration Now() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Ends a process by a signal that its main thread gets, without a core of it, which may be as large
// as its memory.
void Abort(pid_t pid) {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  prlimit(pid, RLIMIT_CORE, &none, nullptr);
  syscall(SYS_tgkill, pid, pid, SIGABRT);
  kill(pid, SIGCONT);
}

}  // namespace

RankWatch::RankWatch(WatchOptions options)
    : options_(std::move(options)), pace_(options_.pace), last_look_(Now()) {
  pace_.See(last_look_, {}, 0);
}

NextLook RankWatch::Look(absl::Span<const StartedRank> running) {
  if (!pictures_.empty()) return AskNext();
  if (looks_ < kLooksBetweenSearches || looks_ % kLooksBetweenSearches == 0) FindRanks(running);
  ++looks_;
  if (mismatch_.has_value()) return {.verdict = NextLook::Verdict::kEnd};
  const absl::Duration now = Now();
  const std::set<int> active = Sample(now - last_look_);
  last_look_ = now;
  std::set<int> ranks;
  for (const auto& [pid, process] : processes_) ranks.insert(process.rank);
  pace_.See(now, active, ranks.size());
  if (!active.empty()) told_ = false;
  // Launchers that have no ranks yet do what they do.
  if (ranks.empty() || !pace_.StandsStill() || told_) return {.after = kBetweenLooks};
  return BeginQuestions(running);
}

void RankWatch::FindRanks(absl::Span<const StartedRank> running) {
  std::map<pid_t, int> rank_of;
  if (options_.starts_ranks) {
    for (const StartedRank& started : running) rank_of.emplace(started.pid, started.rank);
  }
  std::map<pid_t, Process> found;
  for (const ProcessSample& process : ProcessesBelow(getpid())) {
    std::optional<int> rank;
    if (const auto own = rank_of.find(process.pid); own != rank_of.end()) {
      rank = own->second;
      // Once what `env` or a shell starts in its place is there.
      if (looks_ < kLooksAtStart) CompareWorldSize(process.pid, *rank);
    } else if (const auto parent = rank_of.find(process.parent); parent != rank_of.end()) {
      rank = parent->second;
    } else if (!options_.starts_ranks) {
      rank = RankOf(process);
    }
    if (!rank.has_value()) continue;
    rank_of.emplace(process.pid, *rank);
    const auto known = processes_.find(process.pid);
    const bool same = known != processes_.end() && known->second.sample.started == process.started;
    found.emplace(process.pid, same ? known->second : Process{.sample = process, .rank = *rank});
  }
  processes_ = std::move(found);
}

// Below a launcher each rank is told both; the launcher itself may have a RANK, that of its pod.
std::optional<int> RankWatch::RankOf(const ProcessSample& process) {
  if (const auto known = processes_.find(process.pid);
      known != processes_.end() && known->second.sample.started == process.started) {
    return known->second.rank;
  }
  // One that is none may become one: by its program's start, it has its variables.
  int rank = 0;
  if (VariableOf(process.pid, "LOCAL_RANK").has_value() &&
      absl::SimpleAtoi(VariableOf(process.pid, "RANK").value_or(""), &rank)) {
    return rank;
  }
  return std::nullopt;
}

void RankWatch::CompareWorldSize(pid_t pid, int rank) {
  if (mismatch_.has_value()) return;
  const std::optional<std::string> said = VariableOf(pid, "WORLD_SIZE");
  int size = 0;
  if (!said.has_value() || !absl::SimpleAtoi(*said, &size) || size == options_.world_size) return;
  mismatch_ = {.rank = rank,
               .detail = absl::StrCat("rank ", rank, " is started with WORLD_SIZE=", size,
                                      " by its command line, but the job has ", options_.world_size,
                                      " ranks")};
}

std::map<int, pid_t> RankWatch::MainProcesses() const {
  std::map<int, pid_t> mains;
  for (const auto& [pid, process] : processes_) {
    const auto [main, is_first] = mains.emplace(process.rank, pid);
    if (!is_first && process.sample.ticks > processes_.at(main->second).sample.ticks) {
      main->second = pid;
    }
  }
  return mains;
}

std::set<int> RankWatch::Sample(absl::Duration passed) {
  const std::map<int, pid_t> mains = MainProcesses();
  std::set<int> active;
  for (auto each = processes_.begin(); each != processes_.end();) {
    auto& [pid, process] = *each;
    const std::optional<ProcessSample> now = SampleOf(pid);
    const bool ended = !now.has_value() || now->started != process.sample.started;
    // That one has ended is something done, too.
    if (ended || Worked(process.sample, *now, mains.at(process.rank) == pid, passed)) {
      active.insert(process.rank);
    }
    if (!ended) process.sample = *now;
    each = ended ? processes_.erase(each) : std::next(each);
  }
  return active;
}

bool RankWatch::Worked(const ProcessSample& before, const ProcessSample& now, bool is_main,
                       absl::Duration passed) const {
  if (now.state == 'Z' || now.state == 'T') return false;
  const double seconds = std::max(0.1, absl::ToDoubleSeconds(passed));
  if (static_cast<double>(now.events - before.events) >= kEventsPerSecond * seconds) return true;
  if (options_.uses_gpus && is_main) return false;
  // It would, if it got a processor.
  if (now.state == 'R') return true;
  const double ticks = static_cast<double>(now.ticks - before.ticks);
  return ticks >= kShareOfProcessor * seconds * static_cast<double>(TicksPerSecond());
}

std::optional<int> RankWatch::RankOfPid(int64_t pid) const {
  const auto found = processes_.find(static_cast<pid_t>(pid));
  return found == processes_.end() ? std::nullopt : std::optional<int>(found->second.rank);
}

NextLook RankWatch::BeginQuestions(absl::Span<const StartedRank> running) {
  options_.say(
      absl::StrCat("no rank of this pod has done anything for ",
                   absl::FormatDuration(absl::Trunc(pace_.quiet(), absl::Seconds(1))),
                   "; its longest pause before was ",
                   absl::FormatDuration(absl::Trunc(pace_.longest_pause(), absl::Seconds(1)))));
  const std::vector<int> use = options_.gpu_use ? options_.gpu_use() : std::vector<int>();
  std::vector<RankPicture> pictures;
  for (const auto& [rank, pid] : MainProcesses()) {
    RankPicture picture = {
        .rank = rank, .state = processes_.at(pid).sample.state, .wait_channel = WaitChannelOf(pid)};
    int local = 0;
    if (absl::SimpleAtoi(VariableOf(pid, "LOCAL_RANK").value_or(""), &local) && local >= 0 &&
        static_cast<size_t>(local) < use.size()) {
      picture.gpu_use = use[static_cast<size_t>(local)];
    }
    pictures.push_back(std::move(picture));
  }
  if (options_.uses_gpus) {
    told_by_libraries_ =
        ReadRas(AskRas(options_.ras, kRasPatience), [this](int64_t pid) { return RankOfPid(pid); });
    if (!told_by_libraries_.rank.has_value() && options_.recorded) {
      told_by_libraries_ = options_.recorded();
    }
  }
  if (!options_.end_standstill) {
    told_ = true;
    options_.say(WhoIsBehind(pictures, told_by_libraries_).detail);
    return {.after = kBetweenLooks};
  }
  pictures_ = std::move(pictures);
  // Nobody must see the first ones end, and do something about it, before it has been asked.
  for (const StartedRank& started : running) kill(started.pid, SIGSTOP);
  for (const auto& [rank, pid] : MainProcesses()) kill(pid, SIGSTOP);
  return AskNext();
}

NextLook RankWatch::AskNext() {
  const bool answered = answering_.empty();
  std::erase_if(answering_, [](pid_t pid) {
    const std::optional<ProcessSample> sample = SampleOf(pid);
    return !sample.has_value() || sample->state == 'Z';
  });
  // What it has said may still have to be read: that happens before the next look.
  const bool waits = !answered && Now() - asked_at_ < kLongestAnswer;
  if (!waits && asked_ == pictures_.size()) return {.verdict = NextLook::Verdict::kEnd};
  if (!waits) {
    const std::map<int, pid_t> mains = MainProcesses();
    answering_.clear();
    asked_at_ = Now();
    do {
      const auto main = mains.find(pictures_[asked_++].rank);
      if (main == mains.end()) continue;
      Abort(main->second);
      answering_.push_back(main->second);
      // One at a time where all write into one stream.
    } while (options_.starts_ranks && asked_ < pictures_.size());
  }
  return {.verdict = NextLook::Verdict::kHold, .after = kBetweenAnswers};
}

std::optional<Standstill> RankWatch::standstill() const {
  if (pictures_.empty()) return std::nullopt;
  std::vector<RankPicture> pictures = pictures_;
  for (RankPicture& picture : pictures) {
    const auto stack = stacks_.find(picture.rank);
    if (stack != stacks_.end()) picture.stack = stack->second.frames();
  }
  Standstill found = WhoIsBehind(pictures, told_by_libraries_);
  absl::StrAppend(&found.detail, "; nobody did anything for ",
                  absl::FormatDuration(absl::Trunc(pace_.quiet(), absl::Seconds(1))));
  return found;
}

void RankWatch::Read(int rank, absl::string_view line) {
  if (asked_ == 0) return;
  // What a launcher passes on says whose it is by when it comes.
  stacks_[options_.starts_ranks ? rank : pictures_[asked_ - 1].rank].Read(line);
}

}  // namespace muster::worker
