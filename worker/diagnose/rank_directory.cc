#include "worker/diagnose/rank_directory.h"

#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "worker/diagnose/line_head.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr int kSeveral = -1;
constexpr int64_t kLargestRank = 1'000'000;

std::optional<int> RankAfter(std::string_view text, std::string_view word) {
  const auto rank = NumberAfter(text, word);
  if (!rank || *rank < 0 || *rank > kLargestRank) return std::nullopt;
  return static_cast<int>(*rank);
}

std::optional<int64_t> Hex(std::string_view digits) {
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return error == std::errc() && end != digits.data() ? std::optional(number) : std::nullopt;
}

// "PCI:0000:63:00" as NCCL writes it, 63000.
std::optional<int64_t> BusOf(std::string_view line) {
  const size_t at = line.find("PCI:");
  if (at == std::string_view::npos || line.size() < at + 14) return std::nullopt;
  const auto domain = Hex(line.substr(at + 4, 4));
  const auto bus = Hex(line.substr(at + 9, 2));
  const auto device = Hex(line.substr(at + 12, 2));
  if (!domain || !bus || !device) return std::nullopt;
  return (*domain << 20) | (*bus << 12) | (*device << 4);
}

// D in "HOST:PID:TID [D] NCCL".
std::optional<int64_t> DeviceOf(std::string_view line, std::string_view process) {
  line.remove_prefix(line.find(process) + process.size());
  return NumberAfter(line.substr(0, line.find(" NCCL ")), " [");
}

std::string HostOf(std::string_view process) {
  return std::string(process.substr(0, process.rfind(':')));
}

template <typename Map, typename Key>
void Put(Map* map, Key key, int rank) {
  if (map->size() >= RankDirectory::kMaxKept) return;
  const auto [found, is_new] = map->emplace(std::move(key), rank);
  if (!is_new && found->second != rank) found->second = kSeveral;
}

std::optional<int> Known(int rank) { return rank == kSeveral ? std::nullopt : std::optional(rank); }

}  // namespace

void RankDirectory::Learn(int64_t pid, int rank) { Put(&pids_, pid, rank); }

void RankDirectory::Read(std::string_view line) {
  if (const std::string_view process = NcclProcessOf(line); !process.empty()) {
    const auto rank = RankAfter(line, " rank ");
    const bool joins = line.find(" nranks ") != line.npos || line.find(" nRanks ") != line.npos;
    if (!rank || !joins) return;
    // A process has a rank in each of its groups; that in the first is the one it is known by.
    if (processes_.size() >= kMaxKept || !processes_.emplace(process, *rank).second) return;
    const auto device = DeviceOf(line, process);
    if (device) Put(&devices_[HostOf(process)], *device, *rank);
    const auto bus = Hex(TextAfter(line, " busId ", " "));
    if (bus && (buses_.size() < kMaxKept || buses_.contains(*bus))) {
      Put(&buses_[*bus], HostOf(process), *rank);
    }
    return;
  }
  for (const std::string_view word : {"world_rank=", "[rank=", " rank="}) {
    const size_t at = line.find(word);
    if (at == std::string_view::npos) continue;
    const size_t pid = line.substr(0, at).rfind("pid=");
    const auto number = pid == line.npos ? std::nullopt : NumberAfter(line.substr(pid), "pid=");
    const auto rank = RankAfter(line.substr(at), word);
    if (number && rank) Learn(*number, *rank);
    return;
  }
  if (const auto bus = line.find("Xid") == line.npos ? std::nullopt : BusOf(line)) {
    const auto pid = NumberAfter(line, "pid=");
    if (pid && users_.size() < kMaxKept) users_.emplace(*bus, *pid);
  }
}

std::optional<int> RankDirectory::OfProcess(int64_t pid) const {
  const auto found = pids_.find(pid);
  return found == pids_.end() ? std::nullopt : Known(found->second);
}

std::optional<int> RankDirectory::OfNccl(std::string_view line, std::string_view process) const {
  if (const auto known = processes_.find(std::string(process)); known != processes_.end()) {
    return known->second;
  }
  const auto device = DeviceOf(line, process);
  const auto host = devices_.find(HostOf(process));
  // A second process on one device, because each sees one only, may have any rank.
  if (!device || host == devices_.end() || host->second.contains(*device)) return std::nullopt;
  return OfDevice(host->second, *device);
}

// Launchers count a node's ranks as its devices are counted.
std::optional<int> RankDirectory::OfDevice(const std::map<int64_t, int>& host, int64_t index) {
  std::set<int64_t> firsts;
  for (const auto& [known, rank] : host) firsts.insert(rank == kSeveral ? -1 : rank - known);
  if (firsts.size() != 1 || *firsts.begin() < 0 || index < 0 || index > kLargestRank) {
    return std::nullopt;
  }
  return static_cast<int>(*firsts.begin() + index);
}

std::optional<int> RankDirectory::OfBus(int64_t bus, std::string_view line) const {
  if (const auto found = buses_.find(bus); found != buses_.end()) {
    if (found->second.size() == 1) return Known(found->second.begin()->second);
    for (const auto& [host, rank] : found->second) {
      if (line.find(Concat(" ", host, " ")) != line.npos) return Known(rank);
    }
    return std::nullopt;
  }
  const auto user = users_.find(bus);
  return user == users_.end() ? std::nullopt : OfProcess(user->second);
}

std::optional<int> RankDirectory::Find(std::string_view line) const {
  if (const std::string_view process = NcclProcessOf(line); !process.empty()) {
    return OfNccl(line, process);
  }
  if (const size_t srun = line.find("srun: error: "); srun != line.npos) {
    return RankAfter(line.substr(srun), ": task ");
  }
  if (const auto rank = RankAfter(line, "noticed that process rank ")) return rank;
  if (const auto bus = BusOf(line)) {
    if (const auto rank = OfBus(*bus, line)) return rank;
  }
  for (const std::string_view word : {"pid=", "(pid: ", "Killed process ", " by PID "}) {
    const auto pid = NumberAfter(line, word);
    if (const auto rank = pid ? OfProcess(*pid) : std::nullopt) return rank;
  }
  const size_t ended = line.find("failed (exitcode: ");
  if (const auto local = ended == line.npos ? std::nullopt : NumberAfter(line, "local_rank: ")) {
    return devices_.size() == 1 ? OfDevice(devices_.begin()->second, *local) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace muster::worker
