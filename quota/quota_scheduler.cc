#include "quota/quota_scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "quota/cycle.h"
#include "quota/flavor_terms.h"
#include "quota/pod_sets.h"
#include "quota/scheduler_state.h"
#include "quota/workload_status.h"

namespace muster::quota {
namespace {

// With all that others could give back.
bool CouldHold(const QuotaTree& tree, int node, const GroupFlavor& flavor,
               const GroupDemand& demand) {
  return std::ranges::all_of(demand.requests, [&](const GroupDemand::Request& request) {
    const int pair = flavor.pairs[static_cast<size_t>(request.position)];
    return Amount(request.amount) <= tree.PotentialAvailable(node, pair);
  });
}

// Of the pod set, in the groups that have `flavor`.
std::vector<const kube::ResourceFlavor*> OthersIn(const Ledger& ledger, const QueueConfig& queue,
                                                  const std::vector<PodSet>& pod_sets,
                                                  const Demand& demand, std::string_view pod_set,
                                                  std::string_view flavor) {
  std::vector<const kube::ResourceFlavor*> others;
  const auto set = std::ranges::find(pod_sets, pod_set, &PodSet::name);
  if (set == pod_sets.end()) return others;
  for (const GroupDemand& group :
       demand.pod_sets[static_cast<size_t>(set - pod_sets.begin())].groups) {
    const std::vector<GroupFlavor>& flavors =
        queue.groups[static_cast<size_t>(group.group)].flavors;
    const auto is_it = [&](const GroupFlavor& each) {
      return each.object != nullptr && each.object->meta.name == flavor;
    };
    if (std::ranges::none_of(flavors, is_it)) continue;
    for (size_t f = 0; f < flavors.size(); ++f) {
      if (!group.mismatches[f].empty() || is_it(flavors[f])) continue;
      if (CouldHold(ledger.tree(), queue.node, flavors[f], group)) {
        others.push_back(flavors[f].object);
      }
    }
  }
  return others;
}

}  // namespace

std::string_view VictimText(VictimReason reason) {
  switch (reason) {
    case VictimReason::kInClusterQueue:
      return "needs quota of the same ClusterQueue";
    case VictimReason::kReclamation:
      return "reclaims quota that its ClusterQueue had lent";
    case VictimReason::kFairSharing:
      return "has the smaller share in the cohort";
    case VictimReason::kReclaimWhileBorrowing:
      return "reclaims quota in the cohort while it borrows itself";
  }
  return "";
}

std::string_view KueueReason(VictimReason reason) {
  switch (reason) {
    case VictimReason::kInClusterQueue:
      return "InClusterQueue";
    case VictimReason::kReclamation:
      return "InCohortReclamation";
    case VictimReason::kFairSharing:
      return "InCohortFairSharing";
    case VictimReason::kReclaimWhileBorrowing:
      return "InCohortReclaimWhileBorrowing";
  }
  return "";
}

QuotaScheduler::QuotaScheduler(QuotaOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
QuotaScheduler::~QuotaScheduler() = default;

bool QuotaScheduler::Upsert(kube::ResourceFlavor flavor) {
  return state_->Note(state_->ledger.objects().Upsert(std::move(flavor)));
}
bool QuotaScheduler::Upsert(kube::Topology topology) {
  const bool changed = state_->ledger.objects().Upsert(std::move(topology));
  if (changed) InvalidatePlacement();
  return changed;
}
bool QuotaScheduler::Upsert(kube::ClusterQueue queue) {
  return state_->Note(state_->ledger.objects().Upsert(std::move(queue)));
}
bool QuotaScheduler::Upsert(kube::LocalQueue queue) {
  return state_->Note(state_->ledger.objects().Upsert(std::move(queue)));
}
bool QuotaScheduler::Upsert(kube::Cohort cohort) {
  return state_->Note(state_->ledger.objects().Upsert(std::move(cohort)));
}
bool QuotaScheduler::Upsert(kube::Namespace name_space) {
  return state_->Note(state_->ledger.objects().Upsert(std::move(name_space)));
}
bool QuotaScheduler::Upsert(kube::WorkloadPriorityClass priority_class) {
  return state_->ledger.objects().Upsert(std::move(priority_class));
}
bool QuotaScheduler::Upsert(kube::PriorityClass priority_class) {
  return state_->ledger.objects().Upsert(std::move(priority_class));
}
bool QuotaScheduler::Remove(const kube::ResourceFlavor& flavor) {
  return state_->Note(state_->ledger.objects().Remove(flavor));
}
bool QuotaScheduler::Remove(const kube::Topology& topology) {
  const bool changed = state_->ledger.objects().Remove(topology);
  if (changed) InvalidatePlacement();
  return changed;
}
bool QuotaScheduler::Remove(const kube::ClusterQueue& queue) {
  return state_->Note(state_->ledger.objects().Remove(queue));
}
bool QuotaScheduler::Remove(const kube::LocalQueue& queue) {
  return state_->Note(state_->ledger.objects().Remove(queue));
}
bool QuotaScheduler::Remove(const kube::Cohort& cohort) {
  return state_->Note(state_->ledger.objects().Remove(cohort));
}
bool QuotaScheduler::Remove(const kube::Namespace& name_space) {
  return state_->Note(state_->ledger.objects().Remove(name_space));
}
bool QuotaScheduler::Remove(const kube::WorkloadPriorityClass& priority_class) {
  return state_->ledger.objects().Remove(priority_class);
}
bool QuotaScheduler::Remove(const kube::PriorityClass& priority_class) {
  return state_->ledger.objects().Remove(priority_class);
}

void QuotaScheduler::SetAdmitted(const Workload& workload, const Admission& admission) {
  Ledger& ledger = state_->ledger;
  Reservation* known = ledger.Find(workload.id);
  if (known != nullptr && *known->admission == admission) {
    // An echo of what was decided here. Its victim's mark and its waiting surplus stay.
    if (known->queue >= 0 && !ledger.is_stale() &&
        (known->workload.priority != workload.priority ||
         known->workload.queued_at != workload.queued_at)) {
      const int root = ledger.layout().queue(known->queue).root;
      ledger.Touch(root);
      state_->Wake(root);
    }
    known->workload = workload;
    return;
  }
  state_->room.Leave(workload.id);
  const int root_before = state_->RootOf(known);
  const Reservation& reservation =
      ledger.Set(workload, std::make_shared<const Admission>(admission));
  state_->Wake(root_before);
  state_->Wake(state_->RootOf(&reservation));
}

void QuotaScheduler::Withdraw(std::string_view id) {
  state_->room.Leave(id);
  state_->GiveBack(id);
}

void QuotaScheduler::Enqueue(const Workload& workload) {
  state_->GiveBack(workload.id);
  state_->room.EnterGang(workload);
}

void QuotaScheduler::EnqueueSurplus(const Workload& workload) {
  Reservation* reservation = state_->ledger.Find(workload.id);
  if (reservation == nullptr) return;
  reservation->workload = workload;
  state_->room.EnterSurplus(workload, *reservation->admission);
}

bool QuotaScheduler::SetOrphans(const std::vector<Orphan>& orphans,
                                absl::FunctionRef<bool(const std::string&)> is_told) {
  std::map<std::string, bool, std::less<>> before = std::exchange(state_->orphans, {});
  bool changed = false;
  for (const Orphan& orphan : orphans) {
    const std::string& id = orphan.workload->meta.uid;
    state_->orphans[id] = orphan.going;
    const auto known = before.extract(id);
    // A gang that told of it and went meanwhile took its count with it.
    const bool counted = !known.empty() && state_->ledger.Find(id) != nullptr;
    if (counted && known.mapped() == orphan.going) continue;
    changed = true;
    if (!counted) SetAdmitted(AsAsked(*orphan.workload), CountedIn(*orphan.workload));
    Reservation* reservation = state_->ledger.Find(id);
    state_->SetPaid(*reservation, !orphan.going);
    if (!orphan.going) continue;
    reservation->marked = Reservation::Part::kAll;
    const int root = state_->RootOf(reservation);
    if (root != kNoNode) state_->ledger.Touch(root);
    state_->Wake(root);
  }
  for (const auto& [id, going] : before) {
    const Reservation* reservation = state_->ledger.Find(id);
    if (reservation != nullptr) state_->SetPaid(*reservation, false);
    if (!is_told(id)) Withdraw(id);
  }
  return changed || !before.empty();
}

void QuotaScheduler::State::SetPaid(const Reservation& orphan, bool paid) {
  FlavorAmounts amounts;
  for (const PodSetAssignment& set : orphan.admission->pod_sets) {
    for (const auto& [resource, amount] : set.usage.entries()) {
      const auto flavor = set.flavors.find(resource);
      if (paid && flavor != set.flavors.end()) amounts[{flavor->second, resource}] -= amount;
    }
  }
  // Names of gangs have no colon.
  const std::string& name_space = orphan.workload.name_space;
  if (ledger.SetUnadmitted(name_space, "workload:" + orphan.workload.id, std::move(amounts))) {
    room.Resettle(name_space);
  }
}

void QuotaScheduler::SetUnadmitted(const std::string& name_space, const std::string& who,
                                   FlavorAmounts amounts) {
  if (state_->ledger.SetUnadmitted(name_space, who, std::move(amounts))) {
    state_->room.Resettle(name_space);
  }
}

void QuotaScheduler::SetUnadmittedOn(const std::string& node,
                                     std::map<std::string, FlavorAmounts> amounts) {
  for (const std::string& name_space : state_->ledger.SetUnadmittedOn(node, std::move(amounts))) {
    state_->room.Resettle(name_space);
  }
}

std::vector<std::pair<std::string, std::string>> QuotaScheduler::Unadmitted() const {
  return state_->ledger.Unadmitted();
}

void QuotaScheduler::InvalidatePlacement() { state_->room.WakeEverybody(); }
void QuotaScheduler::InvalidatePlacement(std::string_view id) { state_->room.WakeAlone(id); }

void QuotaScheduler::InvalidateEviction(std::string_view id) {
  const int root = state_->RootOf(state_->ledger.Find(id));
  if (root == kNoNode) return;
  state_->ledger.Touch(root);  // what was judged before was judged with other victims
  state_->Wake(root);
}

void QuotaScheduler::Close(Wait why) { state_->closed = std::move(why); }
bool QuotaScheduler::IsClosed() const { return state_->closed.code != WaitCode::kNone; }

bool QuotaScheduler::Hold(const std::vector<const kube::Workload*>& untaken) {
  const bool ends = HoldsAny() && untaken.empty();
  state_->held.clear();
  if (untaken.empty()) return ends;
  state_->Refresh();
  for (const kube::Workload* workload : untaken) {
    const int root = state_->RootOf(*workload);
    if (root != kNoNode) state_->held.insert(root);
  }
  return false;
}

bool QuotaScheduler::HoldsAny() const { return !state_->held.empty(); }

int QuotaScheduler::State::RootOf(const kube::Workload& workload) const {
  const auto& locals = ledger.objects().local_queues();
  const auto local = locals.find(absl::StrCat(workload.meta.name_space, "/", workload.queue));
  if (local == locals.end()) return kNoNode;
  const int queue = ledger.layout().FindQueue(local->second.cluster_queue);
  return queue < 0 ? kNoNode : ledger.layout().queue(queue).root;
}

bool QuotaScheduler::NeedsSchedule() const {
  const State& state = *state_;
  if (IsClosed() || state.room.entries().empty()) return false;
  return state.ledger.is_stale() || std::ranges::any_of(state.room.changed_roots(), [&](int root) {
           return !state.IsHeld(root);
         });
}

std::vector<Decision> QuotaScheduler::Schedule(absl::Time now, const Feasibility& feasible) {
  state_->Refresh();
  std::vector<Decision> decisions;
  if (IsClosed()) return decisions;
  Cycle cycle(state_->ledger, state_->room, state_->options, now, feasible, decisions);
  std::set<int>& roots = state_->room.changed_roots();
  const auto next = [&] {
    return std::ranges::find_if(roots, [this](int root) { return !state_->IsHeld(root); });
  };
  for (auto found = next(); found != roots.end(); found = next()) {
    const int root = *found;
    cycle.Begin(root);
    while (cycle.Run(root)) {
    }
    roots.erase(root);
  }
  return decisions;
}

std::vector<const kube::ResourceFlavor*> QuotaScheduler::FlavorsOf(
    const PodSetAssignment& given) const {
  std::vector<const kube::ResourceFlavor*> flavors;
  for (const std::string& name : FlavorNames(given)) {
    if (const kube::ResourceFlavor* flavor = FindFlavor(name)) flavors.push_back(flavor);
  }
  return flavors;
}

const kube::ResourceFlavor* QuotaScheduler::FindFlavor(std::string_view name) const {
  const auto& flavors = state_->ledger.objects().flavors();
  auto it = flavors.find(name);
  return it == flavors.end() ? nullptr : &it->second;
}

const kube::Topology* QuotaScheduler::FindTopology(std::string_view name) const {
  const auto& topologies = state_->ledger.objects().topologies();
  auto it = topologies.find(name);
  return it == topologies.end() ? nullptr : &it->second;
}

std::vector<const kube::Topology*> QuotaScheduler::Topologies() const {
  std::vector<const kube::Topology*> topologies;
  for (const auto& [name, topology] : state_->ledger.objects().topologies()) {
    topologies.push_back(&topology);
  }
  return topologies;
}

const kube::LocalQueue* QuotaScheduler::FindLocalQueue(std::string_view name) const {
  const auto& queues = state_->ledger.objects().local_queues();
  auto it = queues.find(name);
  return it == queues.end() ? nullptr : &it->second;
}

const kube::ClusterQueue* QuotaScheduler::FindClusterQueue(std::string_view name) const {
  const auto& queues = state_->ledger.objects().cluster_queues();
  auto it = queues.find(name);
  return it == queues.end() ? nullptr : &it->second;
}

const kube::WorkloadPriorityClass* QuotaScheduler::FindPriorityClass(std::string_view name) const {
  const auto& classes = state_->ledger.objects().priority_classes();
  auto it = classes.find(name);
  return it == classes.end() ? nullptr : &it->second;
}

std::optional<int64_t> QuotaScheduler::MayOptOutUpTo(std::string_view class_name) const {
  const auto& classes = state_->ledger.objects().pod_priority_classes();
  const auto named = classes.find(class_name);
  if (named == classes.end()) return std::nullopt;
  const std::string* text = named->second.meta.Annotation(kube::kMayOptOutAnnotation);
  int64_t most = 0;
  if (text == nullptr || !absl::SimpleAtoi(*text, &most)) return std::nullopt;
  return most;
}

// Of several defaults the least counts (k8s.io/kubernetes v1.34
// plugin/pkg/admission/priority/admission.go).
std::optional<int32_t> QuotaScheduler::PodPriorityOf(std::string_view class_name) const {
  const auto& classes = state_->ledger.objects().pod_priority_classes();
  const auto named = classes.find(class_name);
  if (named != classes.end()) return named->second.value;
  if (!class_name.empty()) return std::nullopt;
  std::optional<int32_t> least;
  for (const auto& [name, each] : classes) {
    if (each.global_default) least = std::min(least.value_or(each.value), each.value);
  }
  return least.value_or(0);
}

std::vector<const kube::ResourceFlavor*> QuotaScheduler::OtherFlavors(
    std::string_view id, std::string_view pod_set, std::string_view flavor) const {
  const Entry* entry = std::as_const(state_->room).Find(id);
  if (entry == nullptr || entry->kind == nullptr) return {};
  const auto& pod_sets = entry->is_surplus ? entry->asked : entry->workload.pod_sets;
  return OthersIn(state_->ledger, state_->ledger.layout().queue(entry->queue), pod_sets,
                  entry->kind->demand, pod_set, flavor);
}

std::vector<const kube::ResourceFlavor*> QuotaScheduler::OtherFlavors(const Workload& workload,
                                                                      std::string_view pod_set,
                                                                      std::string_view flavor) {
  state_->Refresh();
  int index = kNoNode;
  const Wait blocked =
      WhyInNoLine(state_->ledger.objects(), state_->ledger.layout(), workload, index);
  if (blocked.code != WaitCode::kNone) return {};
  const QueueConfig& queue = state_->ledger.layout().queue(index);
  return OthersIn(
      state_->ledger, queue, workload.pod_sets,
      MakeDemand(workload.pod_sets, queue, state_->options.resources, state_->ledger.names()),
      pod_set, flavor);
}

std::vector<const kube::ResourceFlavor*> QuotaScheduler::Flavors() const {
  std::vector<const kube::ResourceFlavor*> all;
  for (const auto& [name, flavor] : state_->ledger.objects().flavors()) all.push_back(&flavor);
  return all;
}

int QuotaScheduler::State::RootOf(const Reservation* reservation) const {
  if (reservation == nullptr || reservation->queue < 0 || ledger.is_stale()) return kNoNode;
  return ledger.layout().queue(reservation->queue).root;
}

void QuotaScheduler::State::Wake(int root) {
  if (root != kNoNode && !ledger.is_stale()) room.Wake(root);
}

void QuotaScheduler::State::GiveBack(std::string_view id) {
  const int root = RootOf(ledger.Find(id));
  ledger.Remove(id);
  Wake(root);
}

}  // namespace muster::quota
