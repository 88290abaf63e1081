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
constexpr size_t kMaxName = 253;  // of a Kubernetes object or a host
constexpr size_t kMaxRemembered = 4096;
constexpr int kMaxRank = 1'000'000;

// Events have an age instead of a time, so the log's times around them mean nothing.
bool IsEvent(std::string_view line) {
  line = StripBlanks(line);
  return line.starts_with("Normal ") || line.starts_with("Warning ");
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

bool SameSource(const Observation& a, const Observation& b) {
  return a.cause == b.cause && a.efa_error == b.efa_error && a.rank == b.rank &&
         (a.host == b.host || a.host.empty() || b.host.empty());
}

bool MayBeSameRank(const Observation& a, const Observation& b) {
  return !a.rank || !b.rank || *a.rank == *b.rank;
}

bool InRange(CauseId cause, const Recovery& recovery) {
  return cause >= recovery.first && cause <= recovery.last;
}

}  // namespace

LogReader::LogReader(std::string file) { facts_.file = std::move(file); }

void LogReader::Read(int64_t number, std::string_view line) {
  ReadSection(line);
  in_summary_ = ReadSummary(line);
  if (!in_summary_) ReadWriter(line);
  ReadTime(line);
  ReadProgress(line);
  ReadRecovery(line);
  std::optional<Observation> observation = Observe(line);
  if (!observation) return;
  observation->line = number;
  observation->text = Printable(StripBlanks(line), kMaxText);
  if (!observation->rank) observation->rank = rank_;
  if (observation->host.empty()) observation->host = host_.empty() ? section_ : host_;
  observation->is_event = IsEvent(line);
  if (!observation->is_event) observation->time = in_summary_ ? last_time_ : TimeOf(line);
  Add(*std::move(observation));
}

void LogReader::ReadTime(std::string_view line) {
  if (IsEvent(line)) return;
  const std::optional<LineTime> time = TimeOf(line);
  if (!time) return;
  last_time_ = time;
  FillTimes(*time);
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
  if (const std::string_view host = SummaryValue(line, "host"); !host.empty()) {
    host_ = Printable(host, kMaxName);
    return true;
  }
  if (const auto rank = LeadingNumber(SummaryValue(line, "rank")); rank && *rank >= 0) {
    rank_ = static_cast<int>(std::min<int64_t>(*rank, kMaxRank));
    return true;
  }
  return in_summary_ &&
         absl::c_any_of(std::array{"exitcode", "error_file", "traceback"},
                        [&](const char* key) { return !SummaryValue(line, key).empty(); });
}

void LogReader::ReadWriter(std::string_view line) {
  rank_ = RankOf(line);
  host_.clear();
  const std::string process(NcclProcessOf(line));
  if (!process.empty()) {
    host_ = Printable(process.substr(0, process.rfind(':')), kMaxName);
    Remember(host_, &hosts_);
    const auto joined = NumberAfter(line, " rank ");
    if (joined && *joined >= 0 && *joined <= kMaxRank &&
        (line.find(" nranks ") != line.npos || line.find(" nRanks ") != line.npos)) {
      Remember(std::pair(process, static_cast<int>(*joined)), &ranks_of_processes_);
    }
    const auto known = ranks_of_processes_.find(process);
    if (!rank_ && known != ranks_of_processes_.end()) rank_ = known->second;
  }
  if (rank_) Remember(*rank_, &ranks_);
  if (const auto address = TextAfter(line, "My EFA addr: ", " )"); !address.empty()) {
    Remember(Printable(address, kMaxName), &facts_.addresses);
  }
}

void LogReader::ReadProgress(std::string_view line) {
  const size_t at = line.find("last enqueued ");
  const std::optional<int> rank = RankOf(line);
  if (at == std::string_view::npos || !rank) return;
  const auto enqueued = NumberAfter(line.substr(at), "work: ");
  const size_t second = line.find("last completed ", at);
  if (!enqueued || second == std::string_view::npos) return;
  const auto completed = NumberAfter(line.substr(second), "work: ");
  if (!completed || facts_.progress.size() >= kMaxRemembered) return;
  // "[PG ID 1 PG GUID 1 Rank 0]": operations are counted per group.
  const std::string_view label = TextAfter(line, "[PG ", "]");
  const std::string_view group = label.substr(0, std::min(label.find(" Rank "), label.size()));
  facts_.progress.push_back({.group = Printable(group, kMaxName),
                             .rank = *rank,
                             .enqueued = *enqueued,
                             .completed = *completed});
}

void LogReader::ReadRecovery(std::string_view line) {
  for (const Recovery& recovery : Recoveries()) {
    if (line.find(recovery.word) == std::string_view::npos) continue;
    const auto from = facts_.observations.begin() + static_cast<std::ptrdiff_t>(section_start_);
    const auto taken_back =
        std::remove_if(from, facts_.observations.end(),
                       [&](const Observation& seen) { return InRange(seen.cause, recovery); });
    facts_.observations.erase(taken_back, facts_.observations.end());
    untimed_ = std::min(untimed_, facts_.observations.size());
    if (recovery.anywhere && !absl::c_linear_search(recovered_, &recovery)) {
      recovered_.push_back(&recovery);
    }
  }
}

std::optional<Observation> LogReader::Observe(std::string_view line) const {
  if (const auto failure = ReadTerminationMessage(line)) {
    return Observation{.cause = failure->cause,
                       .detail = failure->detail,
                       .rank = failure->rank,
                       .host = failure->host};
  }
  if (const auto request = ReadFailedRequest(line)) return OfRequest(*request);
  if (const auto report = ReadGpuMemory(line)) return OfMemory(*report);
  if (const Xid* xid = FindXid(line)) {
    return Observation{.cause = xid->cause,
                       .detail = Concat("Xid ", xid->number, ", ", xid->meaning)};
  }
  const Pattern* pattern = FindPattern(line);
  if (pattern == nullptr) return std::nullopt;
  return Observation{.cause = pattern->cause, .is_result = pattern->kind == LineKind::kResult};
}

void LogReader::Add(Observation observation) {
  for (const Recovery* recovery : recovered_) {
    if (InRange(observation.cause, *recovery)) return;
  }
  for (size_t i = section_start_; i < facts_.observations.size(); ++i) {
    Observation& seen = facts_.observations[i];
    if (!SameSource(seen, observation)) continue;
    seen.count += observation.count;
    if (seen.detail.empty()) seen.detail = std::move(observation.detail);
    if (seen.host.empty()) seen.host = std::move(observation.host);
    seen.is_result = seen.is_result && observation.is_result;
    return;
  }
  if (facts_.observations.size() >= kMaxObservations) {
    ++facts_.left_out;
    return;
  }
  facts_.observations.push_back(std::move(observation));
}

void LogReader::DropResults() {
  const std::vector<Observation> all = std::exchange(facts_.observations, {});
  for (const Observation& one : all) {
    const bool said_why = std::ranges::any_of(all, [&](const Observation& other) {
      return !other.is_result && CauseOf(other.cause).role != Role::kWarning &&
             MayBeSameRank(one, other);
    });
    if (!one.is_result || !said_why) facts_.observations.push_back(one);
  }
}

// A log of one rank needn't say on each line whose it is. What then comes from one source is one.
void LogReader::FillWriters() {
  section_start_ = 0;
  recovered_.clear();
  std::vector<Observation> all = std::exchange(facts_.observations, {});
  for (Observation& observation : all) {
    const bool written_here = !observation.is_event;  // an event may be of any pod
    if (written_here && !observation.rank && ranks_.size() == 1) {
      observation.rank = *ranks_.begin();
    }
    if (written_here && observation.host.empty() && hosts_.size() == 1) {
      observation.host = *hosts_.begin();
    }
    Add(std::move(observation));
  }
}

LogFacts LogReader::Finish() {
  if (last_time_) FillTimes(*last_time_);
  FillWriters();
  DropResults();
  return std::move(facts_);
}

}  // namespace muster::worker
