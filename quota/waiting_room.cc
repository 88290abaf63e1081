#include "quota/waiting_room.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "quota/surplus.h"

namespace muster::quota {
namespace {

Wait Blocked(WaitCode code, std::string message, std::string fix) {
  return {.code = code, .message = std::move(message), .fix = std::move(fix)};
}

std::string TextOf(const kube::LabelSelector& selector) {
  return absl::StrJoin(selector.requirements, ", ",
                       [](std::string* out, const kube::Requirement& requirement) {
                         absl::StrAppend(out, requirement.ToString());
                       });
}

}  // namespace

// A member that asks for devices by a claim would have them for nothing (Kueue v0.19.2 refuses it
// too, pkg/controller/core/workload_controller.go:432, :454).
bool HasClaims(const Workload& workload) {
  const auto has = [](const PodSet& set) { return set.spec->uses_resource_claims; };
  return std::ranges::any_of(workload.pod_sets, has) || std::ranges::any_of(workload.surplus, has);
}

Wait WhyInNoLine(const QuotaObjects& objects, const Layout& layout, const Workload& workload,
                 int& queue_index) {
  queue_index = -1;
  if (HasClaims(workload)) {
    return Blocked(WaitCode::kResourceNotCovered,
                   "it asks for devices by spec.resourceClaims, which no quota counts",
                   "ask for the devices as resources, or leave the queue");
  }
  if (workload.queue.empty()) {
    return Blocked(WaitCode::kQueueNotFound, "it names no LocalQueue",
                   "set label kueue.x-k8s.io/queue-name");
  }
  const std::string local_name = absl::StrCat(workload.name_space, "/", workload.queue);
  auto local = objects.local_queues().find(local_name);
  if (local == objects.local_queues().end()) {
    return Blocked(WaitCode::kQueueNotFound,
                   absl::StrCat("LocalQueue ", local_name, " doesn't exist"),
                   absl::StrCat("create LocalQueue ", workload.queue, " in namespace ",
                                workload.name_space, ", or name another queue"));
  }
  const std::string& name = local->second.cluster_queue;
  queue_index = layout.FindQueue(name);
  if (!local->second.error.empty()) {
    return Blocked(WaitCode::kQueueInvalid,
                   absl::StrCat("LocalQueue ", local_name, ": ", local->second.error),
                   absl::StrCat("correct LocalQueue ", local_name));
  }
  if (queue_index < 0) {
    return Blocked(
        WaitCode::kQueueNotFound,
        absl::StrCat("ClusterQueue ", name, " of LocalQueue ", local_name, " doesn't exist"),
        absl::StrCat("create ClusterQueue ", name, ", or correct spec.clusterQueue of ",
                     "LocalQueue ", local_name));
  }
  const QueueConfig& queue = layout.queue(queue_index);
  if (!queue.error.empty()) {
    return Blocked(WaitCode::kQueueInvalid,
                   absl::StrCat("ClusterQueue ", name, " admits nothing: ", queue.error),
                   queue.fix);
  }
  if (queue.IsGoing()) {
    return Blocked(WaitCode::kQueueStopped,
                   absl::StrCat("ClusterQueue ", name, " is being deleted"), "name another queue");
  }
  if (queue.IsStopped() || local->second.stop_policy != kube::StopPolicy::kNone) {
    const std::string object = queue.IsStopped() ? absl::StrCat("ClusterQueue ", name)
                                                 : absl::StrCat("LocalQueue ", local_name);
    const kube::StopPolicy policy =
        queue.IsStopped() ? queue.object->stop_policy : local->second.stop_policy;
    return Blocked(WaitCode::kQueueStopped,
                   absl::StrCat(object, " is stopped by spec.stopPolicy ",
                                policy == kube::StopPolicy::kHold ? "Hold" : "HoldAndDrain"),
                   absl::StrCat("set spec.stopPolicy of ", object, " to None"));
  }
  const std::optional<kube::LabelSelector>& selector = queue.object->namespace_selector;
  auto name_space = objects.namespaces().find(workload.name_space);
  const bool known = name_space != objects.namespaces().end();
  const bool selected = selector && (known ? selector->Matches(name_space->second.meta.labels)
                                           : selector->requirements.empty());
  if (selected) return {};
  return Blocked(
      WaitCode::kNamespaceNotSelected,
      selector
          ? absl::StrCat("spec.namespaceSelector of ClusterQueue ", name, " wants ",
                         TextOf(*selector), ", and doesn't match namespace ", workload.name_space)
          : absl::StrCat("ClusterQueue ", name,
                         " has no spec.namespaceSelector: ", "it takes workloads of no namespace"),
      selector ? absl::StrCat("label namespace ", workload.name_space, ", or widen the selector")
               : absl::StrCat("set spec.namespaceSelector of ClusterQueue ", name,
                              " to {} to take those of all namespaces"));
}

void WaitingRoom::EnterGang(const Workload& workload) {
  auto entry = std::make_unique<Entry>();
  entry->workload = workload;
  Enter(std::move(entry));
}

void WaitingRoom::EnterSurplus(const Workload& workload, const Admission& admission) {
  std::vector<PodSet> asked = UncountedSurplus(workload, admission);
  if (asked.empty()) {
    Leave(workload.id);
    return;
  }
  auto entry = std::make_unique<Entry>();
  entry->workload = workload;
  entry->is_surplus = true;
  entry->asked = std::move(asked);
  Enter(std::move(entry));
}

void WaitingRoom::Enter(std::unique_ptr<Entry> entry) {
  Take(entry->workload.id);
  Entry* settled = entry.get();
  entries_.insert(std::move(entry));
  if (!ledger_.is_stale()) Settle(settled);
}

std::unique_ptr<Entry> WaitingRoom::Leave(std::string_view id) {
  absl::erase_if(first_, [&](const auto& each) { return each.second == id; });
  return Take(id);
}

std::unique_ptr<Entry> WaitingRoom::Take(std::string_view id) {
  auto it = entries_.find(id);
  if (it == entries_.end()) return nullptr;
  std::unique_ptr<Entry> entry = std::move(entries_.extract(it).value());
  if (entry->kind != nullptr) {
    lines_[static_cast<size_t>(entry->queue)]->Remove(entry.get());
    if (!ledger_.is_stale()) changed_roots_.insert(ledger_.layout().queue(entry->queue).root);
  }
  return entry;
}

Entry* WaitingRoom::Find(std::string_view id) {
  auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->get();
}

const Entry* WaitingRoom::Find(std::string_view id) const {
  auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->get();
}

void WaitingRoom::SetPlace(Entry* entry) const {
  entry->blocked = WhyInNoLine(ledger_.objects(), ledger_.layout(), entry->workload, entry->queue);
  if (!entry->is_surplus || entry->blocked.code != WaitCode::kNone) return;
  // It stays where its gang is counted, whatever its LocalQueue says by now.
  const Reservation* reservation = ledger_.Find(entry->workload.id);
  if (reservation == nullptr || reservation->queue != entry->queue) {
    entry->blocked = Blocked(WaitCode::kQueueInvalid,
                             absl::StrCat("its members up to minMember are counted on another "
                                          "ClusterQueue than LocalQueue ",
                                          entry->workload.queue, " names"),
                             "restart the gang to move all of it");
  }
}

void WaitingRoom::StayFirst(Entry* entry) {
  first_[ledger_.layout().queue(entry->queue).object->meta.name] = entry->workload.id;
  line(entry->queue).Stick(entry);
}

bool WaitingRoom::NobodyStaysFirst(int queue) {
  if (first_.erase(ledger_.layout().queue(queue).object->meta.name) == 0) return false;
  line(queue).Stick(nullptr);
  return true;
}

// As long as its LocalQueue isn't stopped and leads to the same ClusterQueue.
bool WaitingRoom::StaysFirst(const Entry& entry) {
  if (first_.empty()) return false;
  const auto& locals = ledger_.objects().local_queues();
  const auto local =
      locals.find(absl::StrCat(entry.workload.name_space, "/", entry.workload.queue));
  const bool is_open =
      local != locals.end() && local->second.stop_policy == kube::StopPolicy::kNone;
  absl::erase_if(first_, [&](const auto& each) {
    return each.second == entry.workload.id &&
           (!is_open || entry.queue < 0 || each.first != local->second.cluster_queue);
  });
  if (entry.queue < 0 || !is_open) return false;
  const auto first = first_.find(local->second.cluster_queue);
  return first != first_.end() && first->second == entry.workload.id;
}

// Equal for those of whom quota refuses either all or none.
std::string WaitingRoom::ClassKey(const Entry& entry) const {
  if (entry.is_surplus) return absl::StrCat("surplus ", entry.workload.id);
  std::string key = absl::StrCat(entry.workload.priority, " ");
  if (!ledger_.UnadmittedIn(entry.workload.name_space).empty()) {
    absl::StrAppend(&key, entry.workload.name_space, " ");
  }
  key += DemandKey(entry.workload.pod_sets);
  return key;
}

void WaitingRoom::Settle(Entry* entry) {
  SetPlace(entry);
  entry->kind = nullptr;
  entry->parked_alone = false;
  entry->judged_version = -1;
  entry->claimed_pass = -1;
  entry->placements_epoch = -1;
  entry->next_flavor.clear();
  const bool stays_first = StaysFirst(*entry);
  if (entry->blocked.code != WaitCode::kNone) return;
  const QueueConfig& queue = ledger_.layout().queue(entry->queue);
  line(entry->queue).Add(entry, ClassKey(*entry), [&] {
    return MakeDemand(entry->is_surplus ? entry->asked : entry->workload.pod_sets, queue, rules_,
                      ledger_.names());
  });
  if (stays_first) line(entry->queue).Stick(entry);
  changed_roots_.insert(queue.root);
}

void WaitingRoom::Resettle() {
  const Layout& layout = ledger_.layout();
  // Entries point into the old lines.
  std::vector<std::unique_ptr<WaitingLine>> old_lines = std::move(lines_);
  lines_.clear();
  queues_under_.assign(static_cast<size_t>(layout.tree.size()), {});
  passes_.assign(static_cast<size_t>(layout.tree.size()), 0);
  changed_roots_.clear();
  for (size_t i = 0; i < layout.queues.size(); ++i) {
    lines_.push_back(std::make_unique<WaitingLine>());
    const QueueConfig& queue = layout.queues[i];
    if (queue.IsActive()) {
      queues_under_[static_cast<size_t>(queue.root)].push_back(static_cast<int>(i));
    }
  }
  for (const std::unique_ptr<Entry>& entry : entries_) Settle(entry.get());
}

void WaitingRoom::Resettle(const std::string& name_space) {
  std::vector<std::string> ids;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->workload.name_space == name_space) ids.push_back(entry->workload.id);
  }
  for (const std::string& id : ids) {
    std::unique_ptr<Entry> entry = Take(id);
    Entry* settled = entry.get();
    const int64_t claimed = entry->claimed_pass;
    Enter(std::move(entry));
    settled->claimed_pass = claimed;  // what it waits for is what it was
  }
}

void WaitingRoom::Wake(int root) {
  for (int queue : QueuesUnder(root)) {
    line(queue).WakeAll();
    if (!line(queue).empty()) changed_roots_.insert(root);
  }
}

void WaitingRoom::WakeAlone(std::string_view id) {
  Entry* entry = Find(id);
  if (entry == nullptr || entry->kind == nullptr) return;
  entry->placements.clear();
  entry->judged_version = -1;
  entry->next_flavor.clear();
  line(entry->queue).Wake(entry);
  changed_roots_.insert(ledger_.layout().queue(entry->queue).root);
}

void WaitingRoom::WakeEverybody() {
  ++placement_epoch_;
  for (size_t i = 0; i < lines_.size(); ++i) {
    lines_[i]->WakeAll();
    if (lines_[i]->empty()) continue;
    const int root = ledger_.layout().queues[i].root;
    ledger_.Touch(root);  // what was judged before was judged on other nodes
    changed_roots_.insert(root);
  }
}

}  // namespace muster::quota
