// Who has what: the quota tree and the reservations counted in it.
//
// Owned by one thread. Reservations keep their address until they are removed. What quota objects
// mean is derived again (Refresh) only after one of them changed; until then nothing here may be
// asked but reservations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quota/amount.h"
#include "quota/layout.h"
#include "quota/names.h"
#include "quota/quota_objects.h"
#include "quota/quota_tree.h"
#include "quota/workload.h"

namespace muster::quota {

// What one admitted workload has.
struct Reservation {
  // How much of it is or was asked back (`marked`), or is taken away in a simulation (`gone`).
  enum class Part { kNothing, kSurplus, kAll };

  Workload workload;
  std::shared_ptr<const Admission> admission;  // never null
  int queue = -1;  // index in the layout; -1: its ClusterQueue doesn't exist, and nothing counts
  std::vector<PairAmount> base;     // of Admission::pod_sets; every pair once
  std::vector<PairAmount> surplus;  // of Admission::surplus
  Part marked = Part::kNothing;     // named as a victim, or drained
  Part gone = Part::kNothing;
};

// What is asked back of a reservation.
inline Reservation::Part PartOf(bool surplus_only) {
  return surplus_only ? Reservation::Part::kSurplus : Reservation::Part::kAll;
}

class Ledger {
 public:
  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  QuotaObjects& objects() { return objects_; }
  const QuotaObjects& objects() const { return objects_; }
  Names& names() { return names_; }
  const Names& names() const { return names_; }

  void MarkStale() { stale_ = true; }
  bool is_stale() const { return stale_; }
  // Some queue takes back what it gave.
  bool drains() const { return drains_; }
  // Builds the layout if it is stale, and counts all reservations in it. True if it did.
  bool Refresh();
  const Layout& layout() const { return *layout_; }
  QuotaTree& tree() { return layout_->tree; }
  const QuotaTree& tree() const { return layout_->tree; }

  // Counts what `admission` says instead of what this workload had.
  Reservation& Set(Workload workload, std::shared_ptr<const Admission> admission);
  // The same of a new workload whose place is known: on this queue, with this base and no surplus.
  Reservation& Add(Workload workload, std::shared_ptr<const Admission> admission, int queue,
                   std::vector<PairAmount> base);
  // Makes room for so many more, so that adding them doesn't move the rest again and again.
  void ReserveRoom(size_t more) { reservations_.reserve(reservations_.size() + more); }
  void Remove(std::string_view id);
  // QuotaScheduler::SetUnadmitted. True if it says something else than before.
  bool SetUnadmitted(const std::string& name_space, const std::string& who, FlavorAmounts amounts);
  // QuotaScheduler::SetUnadmittedOn. The namespaces of which it says something else than before.
  std::vector<std::string> SetUnadmittedOn(const std::string& node,
                                           std::map<std::string, FlavorAmounts> amounts);
  std::vector<std::pair<std::string, std::string>> Unadmitted() const;
  // Of pairs that quota is kept of, each once. Valid until it is set again.
  const std::vector<PairAmount>& UnadmittedIn(std::string_view name_space) const;
  Reservation* Find(std::string_view id);
  const Reservation* Find(std::string_view id) const;
  // Kueue's reason for evicting it, if it is on a ClusterQueue, or of a LocalQueue, with stopPolicy
  // HoldAndDrain; else empty.
  std::string_view WhyDrained(const Reservation& reservation) const;
  // Those on one ClusterQueue, in no order.
  const std::vector<Reservation*>& OnQueue(int queue) const {
    return by_queue_[static_cast<size_t>(queue)];
  }
  const ByWorkloadId<Reservation>& reservations() const { return reservations_; }

  // QuotaOptions::may_evict.
  void SetMayEvict(std::function<bool(std::string_view id, bool surplus_only)> may_evict) {
    may_evict_ = std::move(may_evict);
  }
  bool MayEvict(const Reservation& reservation, bool surplus_only) const {
    return may_evict_ == nullptr || may_evict_(reservation.workload.id, surplus_only);
  }

  // A number that changes with everything that is counted under this root, or marked there.
  int64_t Version(int root) const { return versions_[static_cast<size_t>(root)]; }
  void Touch(int root) { versions_[static_cast<size_t>(root)] = ++last_version_; }

 private:
  Reservation& Insert(Workload workload);  // which must be new
  void Count(Reservation& reservation);    // on its queue
  void Uncount(Reservation& reservation);
  std::vector<PairAmount> Pairs(const std::vector<PodSetAssignment>& pod_sets);

  QuotaObjects objects_;
  Names names_;
  std::unique_ptr<Layout> layout_;
  bool stale_ = true;
  bool drains_ = false;
  ByWorkloadId<Reservation> reservations_;
  struct UnadmittedPods {
    std::map<std::string, FlavorAmounts> of;  // whom
    std::map<FlavorAmounts::key_type, Amount> sums;
    std::vector<PairAmount> pairs;  // the sums, once the layout has them
  };
  void Resolve(UnadmittedPods& unadmitted) const;
  std::map<std::string, UnadmittedPods, std::less<>> unadmitted_;  // by namespace
  std::map<std::string, std::set<std::string>> unadmitted_on_;     // namespaces, by node
  std::vector<std::vector<Reservation*>> by_queue_;
  std::vector<int64_t> versions_;  // by node; used of roots
  int64_t last_version_ = 0;
  std::function<bool(std::string_view id, bool surplus_only)> may_evict_;
};

}  // namespace muster::quota
