#include "worker/diagnose/log_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "worker/diagnose/kubernetes_line.h"
#include "worker/diagnose/line_progress.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr size_t kMaxText = 400;
constexpr size_t kMaxPlainDetail = 1600;  // before the place is added
constexpr size_t kMaxName = 253;          // of a Kubernetes object or a host
constexpr size_t kMaxRemembered = 4096;
constexpr size_t kMaxProcesses = 1024;  // more than that share one
constexpr int kMaxRank = 1'000'000;
constexpr int kNoRank = -1;
constexpr const char* kToldBySummary = "torchrun's summary";  // no line begins with it
constexpr size_t kMaxVersions = 16;
// What the end that a key of the terminal asked for writes, in between.
constexpr int64_t kLinesOfInterrupt = 100;
constexpr int64_t kStepsOfNoLoss = 3;
constexpr size_t kMaxStepTimes = 16;

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

// A line that begins so is no part of an exception's message.
bool IsLaunchersWord(std::string_view body) {
  constexpr std::array<std::string_view, 11> kWords = {
      "pdsh@", "srun: ", "slurmstepd: ",   "mpirun",  "(raylet", "ssh: ",
      "^C",    "+ ",     "Connection to ", "usage: ", "Usage: "};
  return absl::c_any_of(kWords, [&](std::string_view word) { return body.starts_with(word); });
}

// "No module named 'apex' (optional)"
bool SaysThatItIsOptional(std::string_view text) {
  const std::string lowered = Lowered(text);
  constexpr std::array<std::string_view, 6> kWords = {"optional", "continuing",   "without it",
                                                      "skipping", "falling back", "ignored"};
  return absl::c_any_of(kWords,
                        [&](std::string_view word) { return lowered.find(word) != lowered.npos; });
}

// What torchrun's summary writes before what it tells of one process.
bool IsSummarysHeading(std::string_view body) {
  if (body.starts_with("Root Cause (first observed failure):")) return true;
  return ConsumePrefix(&body, "[") && LeadingNumber(body) && StripBlanks(body).ends_with("]:");
}

// What an exception shows that a line tells of by its repr: perhaps one that was caught.
std::optional<Observation> ShownByRepr(std::string_view text) {
  constexpr size_t kLongest = 2000;
  text = text.substr(0, kLongest);
  if (text.find("Error(") == text.npos && text.find("Exception(") == text.npos) {
    return std::nullopt;
  }
  const std::string printed = WithReprsPrinted(text);
  if (printed.empty() || SaysThatItGoesOn(text)) return std::nullopt;
  const std::string_view raised = ExceptionIn(printed);
  std::optional<Observation> shown =
      raised.empty() ? std::nullopt : ShownBy(raised, TextKind::kException);
  if (shown) shown->is_weak = true;
  return shown;
}

// The rank whose "[Rank 3 Error Snippet]:" Ray passes on, if it is one.
std::optional<int> RankOfSnippet(std::string_view text) {
  constexpr std::string_view kWord = " Error Snippet]";
  const size_t end = text.find(kWord);
  const size_t begin = end == text.npos ? end : text.rfind("[Rank ", end);
  if (begin == text.npos || text.find(kWord, end + 1) != text.npos) return std::nullopt;
  const auto rank = NumberAfter(text.substr(begin), "[Rank ");
  return rank && *rank >= 0 && *rank <= kMaxRank ? std::optional(static_cast<int>(*rank))
                                                 : std::nullopt;
}

bool SameSource(const Observation& a, const Observation& b) {
  return a.cause == b.cause && a.efa_error == b.efa_error && a.rank == b.rank &&
         a.is_quoted == b.is_quoted && (a.host == b.host || a.host.empty() || b.host.empty());
}

}  // namespace

struct LogReader::Line {
  int64_t number = 0;
  std::string_view text;
  LineHead head;
  bool is_event = false;
  bool is_status = false;   // of an object that kubectl describes
  bool is_state = false;    // surely so
  std::string object = {};  // that kubectl lists
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
  // What comes from a process itself has no prefix that isn't known.
  if (came) {
    ReadLine(number, text);
    return;
  }
  if (BeginsPart(text)) {
    ReadPending();
    prefix_ = {};
    ReadLine(number, text);
    return;
  }
  if (prefix_.IsLearned()) {
    ReadLine(number, text);
    return;
  }
  constexpr size_t kMostPending = 4 * LinePrefix::kLines;
  pending_.push_back({.number = number, .text = std::string(text)});
  prefix_.Learn(text);
  if (prefix_.IsLearned() || pending_.size() >= kMostPending) ReadPending();
}

void LogReader::ReadPending() {
  prefix_.Settle();
  for (const Pending& line : std::exchange(pending_, {})) ReadLine(line.number, line.text);
}

// Behind what all lines of this log begin with, too.
LineHead LogReader::HeadOfLine(std::string_view text) {
  LineHead head = HeadOf(text);
  std::string source;
  const size_t length = prefix_.LengthIn(text, &source);
  if (length <= text.size() - head.body.size()) return head;
  LineHead behind = HeadOf(text.substr(length));
  if (!behind.rank || behind.rank_is_index) {
    if (head.rank && !head.rank_is_index) {
      behind.rank = head.rank;
      behind.rank_is_index = false;
    }
  }
  if (!behind.index) behind.index = head.index;
  if (behind.pod.empty()) behind.pod = head.pod;
  behind.source = source + behind.source;
  return behind;
}

void LogReader::ReadLine(int64_t number, std::string_view text) {
  const std::string collected_line = WrittenIn(text);
  if (!collected_line.empty()) text = collected_line;
  std::string written = collected_line.empty() ? ReadInvolved(text) : WrittenIn(text);
  if (written.empty() && MayTellOfEvent(text)) written = AsListed(text, HeadOf(text).body);
  if (!written.empty()) text = written;
  std::string plain;
  if (text.find('\x1B') != std::string_view::npos) {
    plain = Printable(text, text.size() * 3 + 3);
    text = plain;
  }
  Line line{.number = number, .text = text, .head = HeadOfLine(text)};
  // What kubectl shows may have come through a collector, too.
  const std::string_view body = line.head.body;
  const bool collected = body.size() < text.size();
  const bool body_is_event = collected && IsEvent(body);
  line.is_event = body_is_event || IsEvent(text);
  if (BeginsPart(text)) EndPart();
  if (!line.is_event) line.time = TimeOf(text);
  if (line.time) SettleTime(&*line.time);
  directory_.Read(text);
  ReadRank(&line);
  ReadSection(body);
  line.is_status = IsStatusLine(text) || (collected && IsStatusLine(body));
  line.is_state = IsStateLine(body);
  if (line.is_event || IsListedPod(text)) {
    const std::string_view object = ListedObject(text);
    line.object =
        Printable(object.empty() && body_is_event ? ListedObject(body) : object, kMaxName);
  }
  if (line.object.empty() && line.is_state && body.starts_with("  ")) line.object = involved_;
  in_summary_ = ReadSummary(line.head);
  if (!in_summary_) ReadWriter(line);
  ReadEnd(text);
  if (line.head.body.starts_with("^C") || text.ends_with("^C")) interrupt_ = number;
  facts_.progress.Read(text);
  ReadRecovery(line);
  const bool of_traceback = ReadTraceback(line);
  ReadCourse(line);
  if (!of_traceback) AddLine(line);
  if (number <= watched_until_ && SaysThatItGoesOn(line.head.body)) {
    if (goes_on_.size() < kMaxRemembered) goes_on_[number] = line.head.rank;
  }
  ReadTime(line);
}

// What a launcher counts by is a rank until the log says otherwise.
void LogReader::ReadRank(Line* line) {
  LineHead& head = line->head;
  std::optional<int> said = head.rank_is_index ? std::nullopt : head.rank;
  if (!said && !NcclProcessOf(line->text).empty()) said = directory_.Find(line->text);
  if (head.index && said && said != head.index) DistrustIndices();
  if (!head.rank_is_index || indices_differ_) {
    head.rank = said;
    head.rank_is_index = false;
  }
  if (!head.rank) head.rank = directory_.Find(head.source);
  const auto pid = said ? NumberAfter(head.source, " pid=") : std::nullopt;
  if (pid) directory_.Learn(*pid, *said);
}

// What was learned of ranks by their lines' numbers may be of others.
void LogReader::DistrustIndices() {
  if (!std::exchange(indices_differ_, true)) at_work_.clear();
}

int64_t LogReader::Steps() const {
  int64_t steps = 0;
  for (const auto& [rank, lines] : progress_) steps += lines;
  return steps;
}

// How training as a whole went.
void LogReader::ReadCourse(const Line& line) {
  ReadNcclVersion(line);
  if (IsProgress(line.text)) {
    ++progress_[line.head.rank.value_or(kNoRank)];
    last_word_ = 0;
    if (line.time) {
      step_times_.push_back(*line.time);
      if (step_times_.size() > kMaxStepTimes) step_times_.pop_front();
    }
    facts_.nccl_versions.clear();  // they work together
    ReadLoss(line);
  }
  if (IsCompletion(line.head.body)) {
    completion_ = line.number;
    steps_at_completion_ = Steps();
  }
  ReadLastWord(line);
  if (IsRestart(line.text)) {
    facts_.nccl_versions.clear();
    restart_ = line.number;
    restart_steps_ = Steps();
    root_rank_.reset();
    roots_.clear();
    failure_times_.clear();
    root_is_guess_ = false;
  }
}

void LogReader::ReadLoss(const Line& line) {
  const std::optional<bool> finite = LossIsFinite(line.head.body);
  if (!finite) return;
  const int rank = line.head.rank.value_or(kNoRank);
  if (*finite) {
    losses_.erase(rank);
    return;
  }
  if (losses_.size() >= kMaxRemembered && !losses_.contains(rank)) return;
  LossRun& run = losses_[rank];
  const bool is_first = run.steps == 0;
  run.steps += ScaleIsZero(line.head.body) ? kStepsOfNoLoss : 1;
  if (!is_first) return;
  run.first = {.cause = CauseId::kLossNotFinite,
               .line = line.number,
               .part = facts_.parts - 1,
               .text = Printable(StripBlanks(line.text), kMaxText),
               .rank = line.head.rank,
               .host = Printable(line.head.pod, kMaxName),
               .time = line.time,
               .is_weak = true};
  if (came_) run.first.time = LineTime{.time = *came_};
}

// A loss that isn't a number to the end; single steps of that kind are skipped by scalers. Anything
// else says more of why it ended.
void LogReader::AddLosses() {
  for (const auto& [rank, run] : losses_) {
    if (run.steps < kStepsOfNoLoss) continue;
    Observation lost = run.first;
    lost.last_line = lost.line;
    Add(std::move(lost));
  }
}

// An exit code 0 of one process says nothing beside another's that isn't.
void LogReader::ReadLastWord(const Line& line) {
  if (line.is_event || line.is_status) return;
  if (const std::optional<int64_t> code = ExitCodeIn(line.head.body)) {
    ended_ill_ |= *code != 0;
    last_word_ = line.number;
  } else if (IsLastWord(line.head.body)) {
    last_word_ = line.number;
  }
}

// "train-0:194:712 [0] NCCL INFO NCCL version 2.21.5+cuda12.4". The second one that a process has
// loaded says nothing of the ranks.
void LogReader::ReadNcclVersion(const Line& line) {
  constexpr std::string_view kWord = "NCCL version ";
  const size_t at = line.text.find(kWord);
  if (at == line.text.npos || line.Kind() != TextKind::kNcclInfo) return;
  const std::string_view rest = line.text.substr(at + kWord.size());
  const std::string_view version = rest.substr(0, rest.find_first_not_of("0123456789."));
  const std::string process = Printable(NcclProcessOf(line.text), kMaxName);
  std::vector<NcclVersionLine>& said = facts_.nccl_versions;
  const bool known = absl::c_any_of(said, [&](const NcclVersionLine& other) {
    return other.version == version || other.process == process;
  });
  if (known || process.empty() || version.empty() || said.size() >= kMaxVersions) return;
  said.push_back({.version = Printable(version, kMaxName),
                  .process = process,
                  .line = line.number,
                  .text = Printable(StripBlanks(line.text), kMaxText)});
}

// The object that a line of kubectl's is about, or nothing.
const std::string& LogReader::PlaceOf(const Line& line) const {
  return line.object.empty() ? section_ : line.object;
}

void LogReader::AddLine(const Line& line) {
  if (!line.object.empty() && families_.size() < kMaxRemembered) {
    if (!line.object.starts_with("node/")) ++families_[FamilyOf(line.object)];
    const size_t assigned = line.text.find("Successfully assigned ");
    if (assigned != line.text.npos) {
      Remember(Printable(TextAfter(line.text.substr(assigned), " to ", " "), kMaxName), &nodes_);
    }
  }
  std::string unquoted;
  std::optional<Observation> observation =
      line.Kind() == TextKind::kMessage && line.head.severity == Severity::kUnsaid
          ? ShownBy(WithoutQuotes(line.text, line.head.body, &unquoted), TextKind::kMessage)
      : line.Kind() == TextKind::kEvent ? ShownBy(WithoutControlPlane(line.text), TextKind::kEvent)
                                        : ShownBy(line.text, line.Kind());
  // What a program caught and told of, and perhaps ended by.
  if (!observation && line.head.severity == Severity::kError && !line.is_event) {
    const std::string_view raised = ExceptionIn(line.text);
    if (!raised.empty()) observation = ShownBy(raised, TextKind::kException);
    if (observation) observation->is_weak = true;
  }
  if (!observation && !line.is_event && line.Kind() == TextKind::kMessage) {
    observation = ShownByRepr(line.text);
  }
  // A shell's whole word on it.
  if (!observation && StripBlanks(line.head.body) == "Killed") {
    observation = Observation{.cause = CauseId::kKilled, .is_result = true};
  }
  if (!observation) {
    if (line.head.rank && line.head.severity <= Severity::kInfo) {
      at_work_[*line.head.rank] = line.number;
    }
    return;
  }
  // Ray's word on a task's end, after which it goes on.
  if (line.text.find("ask will be retried") != line.text.npos) {
    observation->is_weak = true;
    observation->is_result = false;
  }
  // Who has trained together could log in; now something there is gone.
  const bool was_there = line.text.find("exit code 255") != line.text.npos;
  if (observation->cause == CauseId::kLauncherUnreachable && was_there && Steps() > 0) {
    observation->cause = CauseId::kPeerLost;
  }
  // The kubelet's last word on it, not one of several.
  const bool is_killed = observation->cause == CauseId::kProbeFailed &&
                         line.text.find(" probe, will be ") != line.text.npos;
  observation->is_weak = observation->is_weak && !is_killed;
  observation->is_plain = observation->is_plain && line.Kind() == TextKind::kMessage &&
                          line.head.severity == Severity::kUnsaid;
  observation->is_record = line.head.severity == Severity::kError && !line.is_event;
  observation->line = line.number;
  observation->text = Printable(StripBlanks(line.text), kMaxText);
  if (!observation->rank) {
    observation->rank = rank_;
    observation->rank_is_index = line.head.rank_is_index;
  }
  if (observation->host.empty()) {
    observation->host = host_.empty() || !line.object.empty() ? PlaceOf(line) : host_;
  }
  observation->is_result = observation->is_result || IsToldByLauncher(*observation);
  observation->part = facts_.parts - 1;
  observation->is_event = line.is_event;
  observation->is_state = line.is_state;
  observation->is_listed = !line.object.empty();
  observation->is_root = in_root_ && observation->is_result;
  observation->is_beside_root = in_summary_ && !in_root_ && observation->is_result;
  if (!line.is_event) observation->time = in_summary_ ? last_time_ : line.time;
  if (came_) observation->time = LineTime{.time = *came_};
  if (!line.is_state) observation->since = observation->time ? observation->time : source_time_;
  Add(*std::move(observation));
}

// Python's, and what it raised: the words in its frames and messages mean nothing by themselves.
bool LogReader::ReadTraceback(const Line& line) {
  if (ReadQuotedTraceback(line)) return true;
  std::string source = Printable(line.head.source, kMaxName);
  if (in_summary_ && line.head.body.ends_with("Traceback (most recent call last):")) {
    in_told_traceback_ = true;
    Process& told = processes_[kToldBySummary];
    while (const std::optional<Raised> raised = told.reader.Finish()) AddRaised(*raised, told);
    told = {.rank = rank_,
            .host = host_,
            .time_after = last_time_,
            .time_before = last_time_,
            .last_time = last_time_,
            .is_root = in_root_};
  }
  if (in_told_traceback_) source = kToldBySummary;
  if (!processes_.contains(source) && processes_.size() >= kMaxProcesses) source.clear();
  Process& process = processes_[source];
  source_time_ = process.last_time;
  if (line.time) process.last_time = line.time;
  // Lines without a prefix may be anybody's.
  if (line.head.rank && !source.empty()) {
    process.rank = line.head.rank;
    process.rank_is_index = line.head.rank_is_index;
  }
  if (!line.head.pod.empty()) process.host = Printable(line.head.pod, kMaxName);
  const std::string_view body = line.head.body;
  // "LustreError: 11-0: ..." is no exception: the kernel raises none.
  if (!process.reader.MindsWhatStandsApart() && body.find("Error: ") != body.npos &&
      IsOfKernel(line.text)) {
    return false;
  }
  const auto stands_apart = [&] {
    if (line.is_event || line.is_status || in_summary_ ||
        (line.time.has_value() && body == line.text) || line.head.severity != Severity::kUnsaid ||
        IsProgress(body) || body.starts_with("====") || body.starts_with("----") ||
        IsLaunchersWord(body) || IsSummarysHeading(body)) {
      return true;
    }
    // "ncclSystemError: ..." is the second line of PyTorch's message.
    const Pattern* pattern =
        body.starts_with("nccl") ? nullptr : FindPattern(body, TextKind::kMessage);
    return pattern != nullptr && pattern->kind == RowKind::kResult;
  };
  const bool apart =
      (process.reader.MindsWhatStandsApart() || in_told_traceback_) && stands_apart();
  if (apart && !in_summary_) in_told_traceback_ = false;
  bool raises_anew = !process.reader.HasRaised();
  const bool taken = process.reader.Read(line.number, body, apart);
  while (const std::optional<Raised> raised = process.reader.Take()) {
    AddRaised(*raised, process);
    if (!in_told_traceback_) process.time_after.reset();
    raises_anew = true;
  }
  if (process.reader.HasRaised() && raises_anew) {
    process.steps_before = Steps();
    process.time_before = process.last_time;
    process.is_quiet = line.Kind() == TextKind::kQuiet;
    watched_until_ = line.number + kLinesOfRecovery;
  }
  if (process.reader.HasRaised() && !process.time_after) {
    if (came_) process.time_after = LineTime{.time = *came_};
    if (!came_) undated_.insert(std::move(source));
  }
  return taken;
}

// One that a record in JSON, or the like, holds as a string.
bool LogReader::ReadQuotedTraceback(const Line& line) {
  const size_t at = line.text.find("Traceback (most recent call last):\\n");
  if (at == std::string_view::npos) return false;
  TracebackReader reader;
  std::string plain;
  const auto end_line = [&] {
    reader.Read(line.number, plain, false);
    plain.clear();
  };
  for (size_t i = at; i < line.text.size() && line.text[i] != '"'; ++i) {
    if (line.text[i] != '\\' || i + 1 == line.text.size()) {
      plain.push_back(line.text[i]);
    } else if (line.text[++i] == 'n') {
      end_line();
    } else {
      plain.push_back(line.text[i]);
    }
  }
  end_line();
  Process process{.rank = line.head.rank,
                  .rank_is_index = line.head.rank_is_index,
                  .host = Printable(line.head.pod, kMaxName),
                  .time_after = line.time,
                  .time_before = line.time,
                  .steps_before = Steps(),
                  .is_quiet = line.Kind() == TextKind::kQuiet};
  if (came_) process.time_after = LineTime{.time = *came_};
  bool raised_any = false;
  while (const std::optional<Raised> raised = reader.Finish()) {
    AddRaised(*raised, process);
    raised_any = true;
  }
  return raised_any;
}

void LogReader::AddRaised(const Raised& raised, const Process& process) {
  if (raised.in_teardown && raised.before.empty()) return;
  // What helpers see of the end once training has come to its own.
  if (raised.in_thread && completion_ > 0 && steps_at_completion_ == Steps()) return;
  std::optional<Observation> observation = ShownBy(raised);
  if (!observation) return;
  if (raised.in_data_loading && observation->cause == CauseId::kPythonException) {
    observation->cause = CauseId::kDataLoadingFailed;
  }
  observation->is_plain = false;
  if (observation->cause == CauseId::kModuleMissing && !raised.has_frames &&
      SaysThatItIsOptional(raised.text)) {
    return;
  }
  // What a program caught or can do without, or what came of code that it tried.
  observation->is_weak = observation->is_weak || process.is_quiet ||
                         (raised.in_given_code && !raised.in_own_code) ||
                         (observation->cause == CauseId::kModuleMissing && !raised.has_frames);
  observation->part = facts_.parts - 1;
  observation->is_quoted = raised.is_quoted;
  observation->is_bare = observation->cause == CauseId::kPythonException && !raised.has_frames;
  if ((observation->is_weak || observation->is_quoted) && !process.rank) {
    observation->last_line = raised.line;
    observation->progress_before = process.steps_before;
  }
  observation->line = raised.line;
  observation->text = Printable(raised.Headline(), kMaxText);
  observation->detail = observation->detail.empty()
                            ? observation->text
                            : Printable(observation->detail, kMaxPlainDetail);
  if (!raised.where.empty()) Append(&observation->detail, " (at ", raised.where, ")");
  if (!observation->rank && raised.pid) observation->rank = directory_.OfProcess(*raised.pid);
  if (!observation->rank && process.rank) {
    observation->rank = process.rank;
    observation->rank_is_index = process.rank_is_index;
  }
  if (!observation->rank) observation->rank = raised.process;
  // One that torch.multiprocessing's spawn found ended.
  const auto ended = NumberAfter(raised.Headline(), "ProcessExitedException: process ");
  if (!observation->rank && ended && *ended >= 0 && *ended <= kMaxRank) {
    observation->rank = static_cast<int>(*ended);
  }
  // Of a worker that another process tells of.
  if (!observation->rank) observation->rank = directory_.Find(raised.text);
  if (observation->host.empty()) observation->host = process.host;
  // What all ranks raise once one of them has failed.
  const std::string_view failed = TextAfter(raised.text, "Exception ranks:dict_keys([", "]");
  const auto one = failed.find(',') == failed.npos ? LeadingNumber(failed) : std::nullopt;
  if (one && *one >= 0 && *one <= kMaxRank && observation->rank != *one) {
    observation->rank = static_cast<int>(*one);
    observation->rank_is_index = false;
    observation->host.clear();
  }
  if (const std::optional<int> snippet = RankOfSnippet(raised.text)) {
    observation->rank = snippet;
    observation->rank_is_index = false;
  }
  observation->is_result = observation->is_result || IsToldByLauncher(*observation);
  // After all that has a time.
  const bool in_the_end = ended_ && raised.line > last_timed_ && latest_ && !came_;
  observation->time = in_the_end ? latest_ : process.time_after;
  observation->time_is_near = observation->time && !came_;
  observation->since = process.time_before;
  observation->is_root = process.is_root;
  Add(*std::move(observation));
}

// A time in whole seconds, as launchers write them, after one in parts of that second.
void LogReader::SettleTime(LineTime* time) const {
  if (!last_time_ || time->time != absl::FromUnixSeconds(absl::ToUnixSeconds(time->time))) return;
  const absl::Duration before = Since(*time, *last_time_);
  if (before > absl::ZeroDuration() && before < absl::Seconds(1)) *time = *last_time_;
}

void LogReader::ReadTime(const Line& line) {
  if (!line.time) return;
  if (IsEndOfContainer(line.text)) {
    FillEndOfContainer(*line.time);
    return;
  }
  last_time_ = line.time;
  last_timed_ = line.number;
  if (!latest_ || Since(*latest_, *line.time) > absl::ZeroDuration()) latest_ = line.time;
  FillTimes(*line.time);
  for (const std::string& source : undated_) processes_[source].time_after = line.time;
  undated_.clear();
}

// What has no time of its own takes the next one: a traceback is followed by its process's end.
void LogReader::FillTimes(const LineTime& time) {
  for (; untimed_ < facts_.observations.size(); ++untimed_) {
    Observation& waiting = facts_.observations[untimed_];
    if (waiting.time || waiting.is_event || waiting.is_state) continue;
    waiting.time = time;
    waiting.time_is_near = true;
  }
}

// What is told of a container happened by its end.
void LogReader::FillEndOfContainer(const LineTime& time) {
  for (size_t i = section_start_; i < facts_.observations.size(); ++i) {
    Observation& seen = facts_.observations[i];
    if (!seen.is_state || seen.is_listed || seen.time) continue;
    seen.time = time;
    seen.time_is_near = true;
  }
}

// What follows is of another place, whose times and tracebacks are its own.
void LogReader::EndPart() {
  if (last_time_) {
    FillTimes(*last_time_);
    for (const std::string& source : undated_) processes_[source].time_after = last_time_;
  }
  FinishTracebacks();
  processes_.clear();
  undated_.clear();
  untimed_ = facts_.observations.size();
  for (Observation& seen : facts_.observations) {
    if (seen.part == facts_.parts - 1)
      seen.steps_after = ProgressAround(seen) - seen.progress_before;
  }
  ++facts_.parts;
  last_time_.reset();
  latest_.reset();
  in_told_traceback_ = false;
}

void LogReader::ReadSection(std::string_view line) {
  if (!line.starts_with("Name:")) return;
  section_ = Printable(StripBlanks(line.substr(5)), kMaxName);
  section_start_ = facts_.observations.size();
  recovered_.clear();
}

// The parts of an object in YAML or JSON come by their names: its message before its reason, which
// make an event.
std::string LogReader::ReadInvolved(std::string_view line) {
  if (!line.starts_with("  ") && !line.starts_with("- ")) return "";
  if (line.find("apiVersion") != line.npos) {
    involved_.clear();
    message_.clear();
    is_involved_next_ = false;
  } else if (line.find("involvedObject") != line.npos) {
    is_involved_next_ = true;
  } else if (const auto message = KeyedValue(line, "message"); !message.empty()) {
    message_ = message;
  } else if (const auto name = KeyedValue(line, "name"); is_involved_next_ && !name.empty()) {
    involved_ = Printable(name, kMaxName);
    is_involved_next_ = false;
  } else if (const auto reason = KeyedValue(line, "reason"); !reason.empty() && !message_.empty()) {
    if (involved_.empty()) return "";
    return EventOf(involved_, reason, std::exchange(message_, {}));
  }
  return "";
}

// The lines on one process follow each other; each is true until a line of another sort comes.
bool LogReader::ReadSummary(const LineHead& head) {
  const std::string_view line = head.body;
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
    host_ = Printable(head.pod.empty() ? host : head.pod, kMaxName);  // the pod's other name
    if (in_root_) root_host_ = host_;
    return true;
  }
  if (const auto rank = LeadingNumber(SummaryValue(line, "rank")); rank && *rank >= 0) {
    rank_ = static_cast<int>(std::min<int64_t>(*rank, kMaxRank));
    if (const auto local = NumberAfter(line, "(local_rank: "); local && *local != *rank) {
      DistrustIndices();
    }
    if (in_root_) {
      root_rank_ = rank_;
      root_is_local_ = false;
      const std::pair place(facts_.parts, host_);
      if (roots_.size() < kMaxRemembered || roots_.contains(place)) roots_[place] = *rank_;
    }
    return true;
  }
  if (const auto pid = NumberAfter(SummaryValue(line, "exitcode"), "(pid: "); pid && rank_) {
    directory_.Learn(*pid, *rank_);
  }
  return in_summary_ &&
         absl::c_any_of(std::array{"exitcode", "error_file", "traceback"},
                        [&](const char* key) { return !SummaryValue(line, key).empty(); });
}

// "failed (exitcode: 1) local_rank: 3 (pid: 192) of binary" and mpirun's "noticed that process rank
// 7
// ... exited on signal 6": the rank if the launcher says no more.
void LogReader::ReadEnd(std::string_view line) {
  if (line.find(" closing signal ") != std::string_view::npos) {
    if (const auto pid = NumberAfter(line, "Sending process ")) Remember(*pid, &closed_);
  }
  if (root_rank_) return;
  const bool torchrun = line.find("failed (exitcode: ") != std::string_view::npos;
  const bool mpirun = line.find("noticed that process rank ") != std::string_view::npos;
  if (!torchrun && !mpirun) return;
  const auto rank = NumberAfter(line, torchrun ? "local_rank: " : "process rank ");
  if (!rank || *rank < 0 || *rank > kMaxRank) return;
  root_rank_ = static_cast<int>(*rank);
  root_is_local_ = torchrun;
}

// Whether a signal came from the launcher, which knows why.
bool LogReader::IsToldByLauncher(const Observation& seen) const {
  if (seen.cause != CauseId::kTerminated && seen.cause != CauseId::kInterrupted) return false;
  const auto pid = NumberAfter(seen.text, "SignalException: Process ");
  return pid && closed_.contains(*pid);
}

void LogReader::ReadWriter(const Line& line) {
  rank_ = line.head.rank;
  std::set<int>* ranks = line.head.rank_is_index ? &indices_ : &ranks_;
  host_ = Printable(line.head.pod, kMaxName);
  const std::string process(NcclProcessOf(line.text));
  if (!process.empty()) {
    if (host_.empty()) host_ = Printable(process.substr(0, process.rfind(':')), kMaxName);
    if (!rank_) rank_ = directory_.Find(line.text);
  }
  if (!host_.empty()) Remember(host_, &hosts_);
  if (rank_) Remember(*rank_, ranks);
  if (const auto address = TextAfter(line.text, "My EFA addr: ", " )"); !address.empty()) {
    Remember(Printable(address, kMaxName), &facts_.addresses);
  }
}

void LogReader::ReadRecovery(const Line& line) {
  std::string_view word;  // those of one word stand together
  bool found = false;
  for (const Recovery& recovery : Recoveries()) {
    if (recovery.word != word) found = line.text.find(recovery.word) != std::string_view::npos;
    word = recovery.word;
    if (!found) continue;
    const auto from = facts_.observations.begin() + static_cast<std::ptrdiff_t>(section_start_);
    const auto taken_back =
        std::remove_if(from, facts_.observations.end(), [&](const Observation& seen) {
          return seen.cause == recovery.cause &&
                 (line.object.empty() || seen.host == line.object) &&
                 MayBeSameImage(line.text, seen.text);
        });
    facts_.observations.erase(taken_back, facts_.observations.end());
    untimed_ = std::min(untimed_, facts_.observations.size());
    const std::pair taken(&recovery, line.object);
    if (recovery.anywhere && recovered_.size() < kMaxRemembered &&
        !absl::c_linear_search(recovered_, taken)) {
      recovered_.push_back(taken);
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
  if (observation.cause == CauseId::kTerminated && !observation.is_event && interrupt_ > 0 &&
      interrupt_ <= observation.line && observation.line - interrupt_ <= kLinesOfInterrupt) {
    observation.cause = CauseId::kInterrupted;
  }
  for (const auto& [recovery, object] : recovered_) {
    if (observation.cause == recovery->cause && (object.empty() || observation.host == object)) {
      return;
    }
  }
  if (observation.last_line == 0) {
    observation.last_line = observation.line;
    observation.progress_before = ProgressAround(observation);
    observation.all_before = observation.all_before_first = Steps();
  }
  watched_until_ = std::max(watched_until_, observation.last_line + kLinesOfRecovery);
  for (size_t i = section_start_; i < facts_.observations.size(); ++i) {
    Observation& seen = facts_.observations[i];
    if (!SameSource(seen, observation)) continue;
    seen.count += observation.count;
    // Another exception than the one that the program got over again and again.
    const int64_t between = (seen.all_before - seen.all_before_first) / Writers();
    if (seen.cause == CauseId::kPythonException && observation.text != seen.text &&
        observation.line > seen.last_line && between >= kStepsOfSurvivors) {
      seen = std::move(observation);
      return;
    }
    // What was survived once may end a job the next time.
    if (seen.survived != observation.survived) {
      if (seen.survived) {
        observation.count = seen.count;
        seen = std::move(observation);
      }
      return;
    }
    // Those of several processes are read to their ends in any order.
    if (observation.line < seen.line) {
      std::swap(seen.line, observation.line);
      std::swap(seen.text, observation.text);
      std::swap(seen.detail, observation.detail);
      std::swap(seen.time, observation.time);
      std::swap(seen.time_is_near, observation.time_is_near);
      if (!seen.time) std::swap(seen.time, observation.time);
    }
    // A launcher's summary tells of an end late, and by when it was.
    if (observation.is_root && seen.is_result && seen.time && observation.time &&
        Since(*seen.time, *observation.time) < absl::ZeroDuration()) {
      seen.time = observation.time;
    }
    if (seen.detail.empty()) seen.detail = std::move(observation.detail);
    if (seen.host.empty()) seen.host = std::move(observation.host);
    seen.rank_is_index = seen.rank_is_index && observation.rank_is_index;
    seen.is_result = seen.is_result && observation.is_result;
    seen.is_weak = seen.is_weak && observation.is_weak;
    seen.is_plain = seen.is_plain && observation.is_plain;
    seen.is_record = seen.is_record && observation.is_record;
    seen.is_passed_on = seen.is_passed_on && observation.is_passed_on;
    seen.xid = std::max(seen.xid, observation.xid);
    seen.is_root = seen.is_root || observation.is_root;
    seen.is_beside_root = seen.is_beside_root || observation.is_beside_root;
    seen.is_of_root = seen.is_of_root || observation.is_of_root;
    seen.last_line = std::max(seen.last_line, observation.last_line);
    seen.steps_after = seen.part == observation.part ? seen.steps_after : std::nullopt;
    seen.progress_before = std::max(seen.progress_before, observation.progress_before);
    seen.all_before = std::max(seen.all_before, observation.all_before);
    seen.all_before_first = std::min(seen.all_before_first, observation.all_before_first);
    return;
  }
  if (facts_.observations.size() >= kMaxObservations) {
    ++facts_.left_out;
    return;
  }
  facts_.observations.push_back(std::move(observation));
}

void LogReader::FinishTracebacks() {
  for (auto& [source, process] : processes_) {
    while (const std::optional<Raised> raised = process.reader.Finish()) {
      AddRaised(*raised, process);
    }
  }
}

void LogReader::Finish() {
  ended_ = true;
  FinishTracebacks();
  if (latest_) FillTimes(*latest_);
  if (!indices_differ_) ranks_.merge(indices_);
  for (Observation& seen : facts_.observations) {
    if (indices_differ_ && seen.rank_is_index) seen.rank.reset();
  }
  DropStrangers();
  MarkSurvivors();
  AddLosses();
  FillWriters();
  NameBusyRank();
}

LogFacts LogReader::Facts() const {
  LogReader copy = *this;
  copy.ReadPending();
  copy.Finish();
  return std::move(copy.facts_);
}

}  // namespace muster::worker
