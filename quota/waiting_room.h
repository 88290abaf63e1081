// All that waits for quota: a line in front of each ClusterQueue, and what stands in none because
// an object that it needs is missing, invalid, stopped or doesn't select it.
//
// Remembers under which roots of the quota tree something has changed since they were last decided.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "quota/ledger.h"
#include "quota/resource_rules.h"
#include "quota/waiting_line.h"

namespace muster::quota {

// What stands in the way of a workload before quota is asked for; kNone if nothing does, and then
// `queue` is the ClusterQueue whose line it stands in.
Wait WhyInNoLine(const QuotaObjects& objects, const Layout& layout, const Workload& workload,
                 int& queue);

class WaitingRoom {
 public:
  // Both outlive it.
  WaitingRoom(Ledger& ledger, const ResourceRules& rules) : ledger_(ledger), rules_(rules) {}
  WaitingRoom(const WaitingRoom&) = delete;
  WaitingRoom& operator=(const WaitingRoom&) = delete;

  // Replaces what waited under this id.
  void EnterGang(const Workload& workload);
  // What `workload` wants beyond its minMember and isn't counted in `admission` yet. Leaves the
  // room if that is nothing.
  void EnterSurplus(const Workload& workload, const Admission& admission);
  // What left, or null.
  std::unique_ptr<Entry> Leave(std::string_view id);
  // Its victims are being evicted: it stays first in its line, also over a stop of its
  // ClusterQueue, until it leaves or another takes its place (Kueue v0.19.2,
  // pkg/cache/queue/cluster_queue.go:87).
  void StayFirst(Entry* entry);
  // Somebody has victims on a StrictFIFO queue, where that gives no turn before others: neither
  // does it any more to who got one before the queue became so. True if somebody had.
  bool NobodyStaysFirst(int queue);
  Entry* Find(std::string_view id);
  const Entry* Find(std::string_view id) const;

  // After the layout was built anew: everybody takes their place again. Who entered while it was
  // stale gets one only then.
  void Resettle();
  // Those of this namespace do.
  void Resettle(const std::string& name_space);
  // Quota under this root changed so that somebody may fit now.
  void Wake(int root);
  // Placement may have changed: of all, or of this one.
  void WakeEverybody();
  void WakeAlone(std::string_view id);
  int64_t placement_epoch() const { return placement_epoch_; }

  WaitingLine& line(int queue) { return *lines_[static_cast<size_t>(queue)]; }
  const WaitingLine& line(int queue) const { return *lines_[static_cast<size_t>(queue)]; }
  // Queues under each root that has any, and roots to be decided.
  const std::vector<int>& QueuesUnder(int root) const {
    return queues_under_[static_cast<size_t>(root)];
  }
  // Passes over the queues under a root are numbered: what somebody waits for is theirs if it was
  // in the last one.
  void BeginPass(int root) { ++passes_[static_cast<size_t>(root)]; }
  int64_t LastPass(int root) const { return passes_[static_cast<size_t>(root)]; }
  std::set<int>& changed_roots() { return changed_roots_; }
  const std::set<int>& changed_roots() const { return changed_roots_; }

  const ByWorkloadId<Entry>& entries() const { return entries_; }

 private:
  void Enter(std::unique_ptr<Entry> entry);
  std::unique_ptr<Entry> Take(std::string_view id);
  void Settle(Entry* entry);
  void SetPlace(Entry* entry) const;  // `queue` and `blocked`
  bool StaysFirst(const Entry& entry);
  std::string ClassKey(const Entry& entry) const;

  Ledger& ledger_;
  const ResourceRules& rules_;
  ByWorkloadId<Entry> entries_;
  std::vector<std::unique_ptr<WaitingLine>> lines_;  // by queue of the layout
  std::vector<std::vector<int>> queues_under_;       // by node
  std::vector<int64_t> passes_;                      // by node
  std::set<int> changed_roots_;
  absl::flat_hash_map<std::string, std::string> first_;  // who stays first, by ClusterQueue
  int64_t placement_epoch_ = 0;
};

}  // namespace muster::quota
