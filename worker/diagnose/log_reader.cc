#include "worker/diagnose/log_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "worker/diagnose/efa_error.h"
#include "worker/diagnose/failure.h"
#include "worker/diagnose/gpu_memory.h"
#include "worker/diagnose/text.h"
#include "worker/diagnose/xid.h"

namespace muster::worker {
namespace {

constexpr size_t kMaxText = 400;
constexpr size_t kMaxPlainDetail = 1600;  // before the place is added
constexpr size_t kMaxName = 253;          // of a Kubernetes object or a host
constexpr size_t kMaxRemembered = 4096;
constexpr size_t kMaxProcesses = 1024;  // more than that share one
constexpr int kMaxRank = 1'000'000;
constexpr int kNoRank = -1;
// Steps after an error that show that it ended nothing, and after which even an end has its own
// reason.
constexpr int64_t kStepsOfSurvivors = 5;
constexpr int64_t kStepsOfAnotherStory = 50;

// Whether a line is an event as kubectl prints it, described or listed: its type is its first word,
// or stands in a column of its own after the age, or after the namespace and the age.
bool IsEvent(std::string_view line) {
  for (int word = 0; word < 3; ++word) {
    const size_t blanks = std::min(line.find_first_not_of(" \t"), line.size());
    line.remove_prefix(blanks);
    const bool column = word == 0 || blanks >= 2;
    if (column && (line.starts_with("Normal ") || line.starts_with("Warning "))) return true;
    line.remove_prefix(std::min(line.find(' '), line.size()));
  }
  return false;
}

// "train-0   0/1   RunContainerError   3 (2m ago)   5m", with or without the namespace before it,
// as kubectl lists pods.
bool IsListedPod(std::string_view line) {
  for (int word = 0; word < 3; ++word) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::string_view ready = line.substr(0, line.find(' '));
    const size_t slash = ready.find('/');
    if (word > 0 && slash != std::string_view::npos && ready.size() <= 7 &&
        ready.find_first_not_of("0123456789/") == std::string_view::npos) {
      return true;
    }
    line.remove_prefix(ready.size());
  }
  return false;
}

// Whether a line is of an object's status, as kubectl describes or lists it.
bool IsStatusLine(std::string_view line) {
  constexpr std::array<std::string_view, 5> kKeys = {
      "Reason:", "Message:", "Status:", "State:", "Exit Code:"};
  const std::string_view stripped = StripBlanks(line);
  return absl::c_any_of(kKeys, [&](std::string_view key) { return stripped.starts_with(key); }) ||
         line.find("kubelet") != std::string_view::npos || IsListedPod(line);
}

// "VALUE" of "  host      : VALUE", as torchrun lists who failed.
std::string_view SummaryValue(std::string_view line, std::string_view key) {
  line = StripBlanks(line);
  if (!ConsumePrefix(&line, key)) return {};
  line = StripBlanks(line);
  if (!ConsumePrefix(&line, ": ")) return {};
  return StripBlanks(line);
}

template <typename Value, typename Set>
void Remember(Value value, Set* set) {
  if (set->size() < kMaxRemembered) set->insert(std::move(value));
}

Observation OfRequest(const FailedRequest& request) {
  Observation observation{
      .cause = CauseOfEfaError(request.number, PeerState::kUnknown),
      .detail = Concat("EFA error ", request.number, ", ", request.error->meaning),
      .efa_error = request.number,
      .peer_address = Printable(request.peer_address, kMaxName)};
  if (!request.peer_instance.empty()) {
    Append(&observation.detail, "; the peer's instance is ",
           Printable(request.peer_instance, kMaxName));
  }
  return observation;
}

Observation OfMemory(const GpuMemoryReport& report) {
  const bool others = report.HeldByOthers();
  Observation observation{.cause = others ? CauseId::kMemoryHeldByOthers : CauseId::kOutOfMemory,
                          .detail = DescribeMemory(report)};
  if (others && !WholeWeight(report.asked).empty()) {
    observation.remedy =
        "Then partition the weights from the start (ZeRO-3, or a sharded load) instead of moving "
        "the whole model to each GPU.";
  }
  return observation;
}

// What a text shows, without who, where and when.
std::optional<Observation> ShownBy(std::string_view text, TextKind kind) {
  if (const auto failure = ReadTerminationMessage(text)) {
    return Observation{.cause = failure->cause,
                       .detail = failure->detail,
                       .rank = failure->rank,
                       .host = failure->host};
  }
  if (const auto request = ReadFailedRequest(text)) return OfRequest(*request);
  if (const auto report = ReadGpuMemory(text)) return OfMemory(*report);
  if (const Xid* xid = FindXid(text)) {
    return Observation{.cause = xid->cause,
                       .detail = Concat("Xid ", xid->number, ", ", xid->meaning)};
  }
  const Pattern* pattern = FindPattern(text, kind);
  if (pattern == nullptr) return std::nullopt;
  return Observation{.cause = pattern->cause,
                     .is_result = pattern->kind == RowKind::kResult,
                     .is_weak = pattern->kind == RowKind::kWarned};
}

// Launchers raise these when a process of theirs has ended, and say elsewhere how.
bool IsLaunchersOwn(std::string_view text) {
  return text.find("ChildFailedError") != std::string_view::npos ||
         text.find("ProcessRaisedException") != std::string_view::npos ||
         text.starts_with("SystemExit") || text.starts_with("subprocess.CalledProcessError");
}

// What an exception shows: the last of its chain, or else the earliest that says why.
std::optional<Observation> ShownBy(const Raised& raised) {
  std::optional<Observation> result = ShownBy(raised.text, TextKind::kException);
  if (result && !result->is_result) return result;
  for (const std::string& text : raised.before) {
    std::optional<Observation> earlier = ShownBy(text, TextKind::kException);
    if (!earlier || (earlier->is_result && result)) continue;
    result = std::move(earlier);
    if (!result->is_result) return result;
  }
  if (result || IsLaunchersOwn(raised.text)) return result;
  return Observation{.cause = CauseId::kPythonException};
}

bool SameSource(const Observation& a, const Observation& b) {
  return a.cause == b.cause && a.efa_error == b.efa_error && a.rank == b.rank &&
         (a.host == b.host || a.host.empty() || b.host.empty());
}

bool IsOrigin(const Observation& seen) {
  return !seen.is_result && CauseOf(seen.cause).role == Role::kOrigin;
}

bool MayBeSameRank(const Observation& a, const Observation& b) {
  return !a.rank || !b.rank || *a.rank == *b.rank;
}

}  // namespace

struct LogReader::Line {
  int64_t number = 0;
  std::string_view text;
  LineHead head;
  bool is_event = false;
  bool is_status = false;  // of an object that kubectl describes
  std::optional<LineTime> time = {};

  TextKind Kind() const {
    if (is_event || is_status) return TextKind::kEvent;
    if (text.find(" NCCL INFO ") != std::string_view::npos) return TextKind::kNcclInfo;
    return head.severity == Severity::kInfo || head.severity == Severity::kWarning
               ? TextKind::kQuiet
               : TextKind::kMessage;
  }
};

LogReader::LogReader(std::string file) { facts_.file = std::move(file); }

void LogReader::Read(int64_t number, std::string_view text, std::optional<absl::Time> came) {
  came_ = came;
  std::string plain;
  if (text.find('\x1B') != std::string_view::npos) {
    plain = Printable(text, text.size() * 3 + 3);
    text = plain;
  }
  Line line{.number = number, .text = text, .head = HeadOf(text), .is_event = IsEvent(text)};
  if (!line.is_event) line.time = TimeOf(text);
  ReadSection(text);
  line.is_status = IsStatusLine(text);
  in_summary_ = ReadSummary(text);
  if (!in_summary_) ReadWriter(line);
  ReadEnd(text);
  facts_.progress.Read(text);
  ReadRecovery(text);
  const bool of_traceback = ReadTraceback(line);
  if (IsProgress(line.head.body)) ++progress_[line.head.rank.value_or(kNoRank)];
  if (!of_traceback) AddLine(line);
  ReadTime(line);
}

void LogReader::AddLine(const Line& line) {
  std::optional<Observation> observation = ShownBy(line.text, line.Kind());
  if (!observation) return;
  observation->line = line.number;
  observation->text = Printable(StripBlanks(line.text), kMaxText);
  if (!observation->rank) observation->rank = rank_;
  if (observation->host.empty()) observation->host = host_.empty() ? section_ : host_;
  observation->is_event = line.is_event;
  observation->is_root = in_root_ && observation->is_result;
  if (!line.is_event) observation->time = in_summary_ ? last_time_ : line.time;
  if (came_) observation->time = LineTime{.time = *came_};
  Add(*std::move(observation));
}

// Python's, and what it raised: the words in its frames and messages mean nothing by themselves.
bool LogReader::ReadTraceback(const Line& line) {
  std::string source = Printable(line.head.source, kMaxName);
  if (!processes_.contains(source) && processes_.size() >= kMaxProcesses) source.clear();
  Process& process = processes_[source];
  if (line.head.rank) process.rank = line.head.rank;
  const std::string_view body = line.head.body;
  // "ncclSystemError: ..." is the second line of PyTorch's message.
  const Pattern* pattern =
      body.starts_with("nccl") ? nullptr : FindPattern(body, TextKind::kMessage);
  const bool apart = line.is_event || line.is_status || in_summary_ ||
                     (line.time.has_value() && body == line.text) ||
                     line.head.severity != Severity::kUnsaid || IsProgress(body) ||
                     body.starts_with("====") || body.starts_with("----") ||
                     (pattern != nullptr && pattern->kind == RowKind::kResult);
  const bool taken = process.reader.Read(line.number, body, apart);
  while (const std::optional<Raised> raised = process.reader.Take()) {
    AddRaised(*raised, process);
    process.time_after.reset();
  }
  if (process.reader.HasRaised() && !process.time_after) {
    if (came_) process.time_after = LineTime{.time = *came_};
    if (!came_) undated_.insert(std::move(source));
  }
  return taken;
}

void LogReader::AddRaised(const Raised& raised, const Process& process) {
  std::optional<Observation> observation = ShownBy(raised);
  if (!observation) return;
  observation->line = raised.line;
  observation->text = Printable(raised.Headline(), kMaxText);
  observation->detail = observation->detail.empty()
                            ? observation->text
                            : Printable(observation->detail, kMaxPlainDetail);
  if (!raised.where.empty()) Append(&observation->detail, " (at ", raised.where, ")");
  if (!observation->rank) observation->rank = process.rank ? process.rank : raised.process;
  observation->time = process.time_after;
  observation->time_is_near = process.time_after && !came_;
  Add(*std::move(observation));
}

void LogReader::ReadTime(const Line& line) {
  if (!line.time) return;
  last_time_ = line.time;
  FillTimes(*line.time);
  for (const std::string& source : undated_) processes_[source].time_after = line.time;
  undated_.clear();
}

// What has no time of its own takes the next one: a traceback is followed by its process's end.
void LogReader::FillTimes(const LineTime& time) {
  for (; untimed_ < facts_.observations.size(); ++untimed_) {
    Observation& waiting = facts_.observations[untimed_];
    if (waiting.time || waiting.is_event) continue;
    waiting.time = time;
    waiting.time_is_near = true;
  }
}

void LogReader::ReadSection(std::string_view line) {
  if (!line.starts_with("Name:")) return;
  section_ = Printable(StripBlanks(line.substr(5)), kMaxName);
  section_start_ = facts_.observations.size();
  recovered_.clear();
}

// The lines on one process follow each other; each is true until a line of another sort comes.
bool LogReader::ReadSummary(std::string_view line) {
  if (line.starts_with("Root Cause (first observed failure):")) in_root_ = true;
  if (line.starts_with("=====")) in_root_ = false;
  if (const std::string_view time = SummaryValue(line, "time"); !time.empty()) {
    summary_time_ = Printable(time, kMaxName);
  }
  if (const std::string_view code = SummaryValue(line, "exitcode");
      !code.empty() && !code.starts_with("-15")) {
    if (in_root_) root_is_guess_ = failure_times_.contains(summary_time_);
    if (!in_root_) Remember(summary_time_, &failure_times_);
  }
  if (const std::string_view host = SummaryValue(line, "host"); !host.empty()) {
    host_ = Printable(host, kMaxName);
    return true;
  }
  if (const auto rank = LeadingNumber(SummaryValue(line, "rank")); rank && *rank >= 0) {
    rank_ = static_cast<int>(std::min<int64_t>(*rank, kMaxRank));
    if (in_root_) root_rank_ = rank_;
    return true;
  }
  return in_summary_ &&
         absl::c_any_of(std::array{"exitcode", "error_file", "traceback"},
                        [&](const char* key) { return !SummaryValue(line, key).empty(); });
}

// "failed (exitcode: 1) local_rank: 3 (pid: 192) of binary" and mpirun's "noticed that process rank
// 7
// ... exited on signal 6": the rank if the launcher says no more.
void LogReader::ReadEnd(std::string_view line) {
  if (root_rank_) return;
  const bool torchrun = line.find("failed (exitcode: ") != std::string_view::npos;
  const bool mpirun = line.find("noticed that process rank ") != std::string_view::npos;
  if (!torchrun && !mpirun) return;
  const auto rank = NumberAfter(line, torchrun ? "local_rank: " : "process rank ");
  if (rank && *rank >= 0 && *rank <= kMaxRank) root_rank_ = static_cast<int>(*rank);
}

void LogReader::ReadWriter(const Line& line) {
  rank_ = line.head.rank;
  host_ = Printable(line.head.pod, kMaxName);
  const std::string process(NcclProcessOf(line.text));
  if (!process.empty()) {
    host_ = Printable(process.substr(0, process.rfind(':')), kMaxName);
    const auto joined = NumberAfter(line.text, " rank ");
    if (joined && *joined >= 0 && *joined <= kMaxRank &&
        (line.text.find(" nranks ") != line.text.npos ||
         line.text.find(" nRanks ") != line.text.npos)) {
      Remember(std::pair(process, static_cast<int>(*joined)), &ranks_of_processes_);
    }
    const auto known = ranks_of_processes_.find(process);
    if (!rank_ && known != ranks_of_processes_.end()) rank_ = known->second;
  }
  if (!host_.empty()) Remember(host_, &hosts_);
  if (rank_) Remember(*rank_, &ranks_);
  if (const auto address = TextAfter(line.text, "My EFA addr: ", " )"); !address.empty()) {
    Remember(Printable(address, kMaxName), &facts_.addresses);
  }
}

void LogReader::ReadRecovery(std::string_view line) {
  for (const Recovery& recovery : Recoveries()) {
    if (line.find(recovery.word) == std::string_view::npos) continue;
    const auto from = facts_.observations.begin() + static_cast<std::ptrdiff_t>(section_start_);
    const auto taken_back =
        std::remove_if(from, facts_.observations.end(),
                       [&](const Observation& seen) { return seen.cause == recovery.cause; });
    facts_.observations.erase(taken_back, facts_.observations.end());
    untimed_ = std::min(untimed_, facts_.observations.size());
    if (recovery.anywhere && !absl::c_linear_search(recovered_, &recovery)) {
      recovered_.push_back(&recovery);
    }
  }
}

int64_t LogReader::ProgressOf(std::optional<int> rank) const {
  const auto said = progress_.find(kNoRank);
  const auto own = rank ? progress_.find(*rank) : progress_.end();
  if (own != progress_.end()) return own->second;
  // Where ranks are named, the other ranks' steps say nothing of this one.
  const bool named = progress_.size() > (said == progress_.end() ? 0U : 1U);
  return (rank && named) || said == progress_.end() ? 0 : said->second;
}

void LogReader::Add(Observation observation) {
  for (const Recovery* recovery : recovered_) {
    if (observation.cause == recovery->cause) return;
  }
  if (observation.last_line == 0) {
    observation.last_line = observation.line;
    observation.progress_before = ProgressOf(observation.rank);
  }
  for (size_t i = section_start_; i < facts_.observations.size(); ++i) {
    Observation& seen = facts_.observations[i];
    if (!SameSource(seen, observation)) continue;
    seen.count += observation.count;
    if (seen.detail.empty()) seen.detail = std::move(observation.detail);
    if (seen.host.empty()) seen.host = std::move(observation.host);
    seen.is_result = seen.is_result && observation.is_result;
    seen.is_weak = seen.is_weak && observation.is_weak;
    seen.is_root = seen.is_root || observation.is_root;
    seen.last_line = std::max(seen.last_line, observation.last_line);
    seen.progress_before = std::max(seen.progress_before, observation.progress_before);
    return;
  }
  if (facts_.observations.size() >= kMaxObservations) {
    ++facts_.left_out;
    return;
  }
  facts_.observations.push_back(std::move(observation));
}

// What training went on after ended nothing, unless an end follows that nothing else explains.
void LogReader::MarkSurvivors() {
  for (Observation& seen : facts_.observations) {
    if (seen.is_result || seen.is_event) continue;
    const int64_t steps = ProgressOf(seen.rank) - seen.progress_before;
    const bool ended = absl::c_any_of(facts_.observations, [&](const Observation& other) {
      return other.is_result && other.last_line > seen.last_line && MayBeSameRank(seen, other);
    });
    seen.survived = steps >= (ended ? kStepsOfAnotherStory : kStepsOfSurvivors);
  }
}

// A log of one rank needn't say on each line whose it is, and an exception needn't say what the
// launcher says later: which rank failed. What then comes from one source is one.
void LogReader::FillWriters() {
  section_start_ = 0;
  recovered_.clear();
  std::vector<Observation> all = std::exchange(facts_.observations, {});
  std::ranges::stable_sort(all, {}, &Observation::line);
  for (Observation& observation : all) {
    const bool written_here = !observation.is_event;  // an event may be of any pod
    if (written_here && !observation.rank) {
      if (ranks_.size() == 1) {
        observation.rank = *ranks_.begin();
      } else if (ranks_.empty() && !(root_is_guess_ && IsOrigin(observation))) {
        observation.rank = root_rank_;
      }
    }
    if (written_here && observation.host.empty() && hosts_.size() == 1) {
      observation.host = *hosts_.begin();
    }
    Add(std::move(observation));
  }
}

void LogReader::Finish() {
  for (auto& [source, process] : processes_) {
    while (const std::optional<Raised> raised = process.reader.Finish()) {
      AddRaised(*raised, process);
    }
  }
  if (last_time_) FillTimes(*last_time_);
  MarkSurvivors();
  FillWriters();
}

LogFacts LogReader::Facts() const {
  LogReader copy = *this;
  copy.Finish();
  return std::move(copy.facts_);
}

}  // namespace muster::worker
