#include "worker/training/plan_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace muster::worker {
namespace {

// The shortest that are read as the same bits.
std::string LineOf(std::string_view key, const TimedPlan& plan) {
  std::string line = fmt::format("{} {}", key, plan.milliseconds);
  for (const uint64_t word : plan.algorithm) line += fmt::format(" {:x}", word);
  return line + '\n';
}

}  // namespace

PlanCache::PlanCache(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::ifstream file(path_);
  Read(file, entries_);
}

void PlanCache::Read(std::istream& lines, Entries& entries) {
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string key;
    TimedPlan plan;
    words >> key >> plan.milliseconds >> std::hex;
    for (uint64_t& word : plan.algorithm) words >> word;
    if (words) entries[key] = {.plan = plan};
  }
}

const TimedPlan* PlanCache::Find(std::string_view key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  found->second.used = true;
  return &found->second.plan;
}

void PlanCache::Keep(std::string_view key, const TimedPlan& plan) {
  entries_[std::string(key)] = {.plan = plan, .used = true};
  Write();
}

std::string PlanCache::Used() const {
  std::string used;
  for (const auto& [key, entry] : entries_) {
    if (entry.used) used += LineOf(key, entry.plan);
  }
  return used;
}

void PlanCache::Adopt(std::string_view used) {
  Entries adopted;
  std::istringstream lines{std::string(used)};
  Read(lines, adopted);
  bool changes = false;
  for (const auto& [key, entry] : adopted) {
    const auto [place, added] = entries_.try_emplace(key);
    changes = changes || added || place->second.plan != entry.plan;
    place->second.plan = entry.plan;
  }
  if (changes) Write();
}

void PlanCache::Write() const {
  if (path_.empty()) return;
  Entries all;
  if (std::ifstream file(path_); file) Read(file, all);
  for (const auto& [key, entry] : entries_) all[key] = entry;
  // Others may write theirs at the same time.
  const std::string partial = fmt::format("{}.{}.{}", path_, getpid(), fmt::ptr(this));
  {
    std::ofstream file(partial);
    for (const auto& [key, entry] : all) file << LineOf(key, entry.plan);
  }
  std::rename(partial.c_str(), path_.c_str());
}

absl::Status MakePlansAlike(Communicator& communicator, std::string_view kind, PlanCache& cache,
                            absl::FunctionRef<absl::Status()> make, absl::Duration timeout) {
  using Kind = std::array<char, 256>;
  Kind own = {};
  kind.copy(own.data(), own.size());
  std::vector<Kind> kinds(communicator.world_size());
  absl::Status status = communicator.AllGather(std::as_bytes(std::span(own)),
                                               std::as_writable_bytes(std::span(kinds)), timeout);
  if (!status.ok()) return status;
  const auto first_like = [&](int rank) {
    return static_cast<int>(std::ranges::find(kinds, kinds[rank]) - kinds.begin());
  };
  const int first = first_like(communicator.rank());
  absl::Status result = first == communicator.rank() ? make() : absl::OkStatus();
  status = AgreeOnResult(communicator, result, timeout);
  if (!status.ok() || !result.ok()) return status.ok() ? result : status;
  for (int root = 0; root < communicator.world_size(); ++root) {
    if (first_like(root) != root) continue;
    std::string used = root == communicator.rank() ? cache.Used() : "";
    auto size = static_cast<int64_t>(used.size());
    status = communicator.Broadcast(std::as_writable_bytes(std::span(&size, 1)), root, timeout);
    if (!status.ok()) return status;
    used.resize(size);
    status = communicator.Broadcast(std::as_writable_bytes(std::span(used)), root, timeout);
    if (!status.ok()) return status;
    if (first == root && root != communicator.rank()) cache.Adopt(used);
  }
  if (first != communicator.rank()) result = make();
  status = AgreeOnResult(communicator, result, timeout);
  return status.ok() ? result : status;
}

}  // namespace muster::worker
