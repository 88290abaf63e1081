#include "quota/cycle.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "quota/borrowing.h"
#include "quota/preemption_candidates.h"
#include "quota/surplus.h"
#include "quota/tournament.h"

namespace muster::quota {
namespace {

bool IsStrict(const Ledger& ledger, int queue) {
  return ledger.layout().queue(queue).object->strategy == kube::QueueingStrategy::kStrictFifo;
}

// Over all pod sets and groups.
size_t FlavorCount(const Demand& demand) {
  size_t count = 0;
  for (const PodSetDemand& pod_set : demand.pod_sets) {
    for (const GroupDemand& group : pod_set.groups) count += group.mismatches.size();
  }
  return count;
}

std::vector<PairAmount> WithoutNothing(std::vector<PairAmount> usage) {
  std::erase_if(usage, [](const PairAmount& each) { return each.amount == 0; });
  return usage;
}

bool IsRefusedPlacement(const FlavorRefusal& refusal) {
  return refusal.kind == FlavorRefusal::Kind::kNotPlaceable;
}

}  // namespace

const std::string& Cycle::Placement(Entry& entry, int pod_set, const GroupFlavor& flavor) const {
  if (entry.placements_epoch != room_.placement_epoch()) {
    entry.placements.clear();
    entry.placements_epoch = room_.placement_epoch();
  }
  auto [it, inserted] = entry.placements.try_emplace({pod_set, flavor.flavor});
  if (inserted) {
    const auto& pod_sets = entry.is_surplus ? entry.asked : entry.workload.pod_sets;
    it->second = feasible_(entry.workload, pod_sets[static_cast<size_t>(pod_set)], *flavor.object);
  }
  return it->second;
}

AssignmentRequest Cycle::RequestOf(Entry& entry) const {
  AssignmentRequest request = {.queue = entry.queue,
                               .priority = entry.workload.priority,
                               .queued_at = entry.workload.queued_at,
                               .fair_sharing = options_.fair_sharing,
                               .demand = &entry.kind->demand,
                               .unadmitted = &ledger_.UnadmittedIn(entry.workload.name_space)};
  if (feasible_) {
    request.placeable = [this, &entry](int pod_set,
                                       const GroupFlavor& flavor) -> const std::string& {
      return Placement(entry, pod_set, flavor);
    };
  }
  return request;
}

std::vector<PairAmount> Cycle::Needed(const Entry& entry, std::vector<PairAmount> usage) const {
  const std::vector<PairAmount>& unadmitted = ledger_.UnadmittedIn(entry.workload.name_space);
  for (PairAmount& each : usage) {
    if (each.amount == 0) continue;
    each.amount = Saturate(Amount(each.amount) + Amount(AmountOf(unadmitted, each.pair)));
  }
  return usage;
}

void Cycle::Judge(Entry& entry) {
  const int64_t version = ledger_.Version(ledger_.layout().queue(entry.queue).root);
  if (entry.judged_version == version) return;
  entry.judged_version = version;
  entry.targets.clear();
  if (entry.is_surplus) {
    JudgeSurplus(entry);
  } else {
    JudgeGang(entry);
  }
}

void Cycle::JudgeGang(Entry& entry) {
  AssignmentRequest request = RequestOf(entry);
  const int root = ledger_.layout().queue(entry.queue).root;
  const bool follows = room_.LastPass(root) - entry.next_flavor_pass <= 1;
  const bool woken = entry.next_flavor_wakes != room_.line(entry.queue).wakes();
  if (woken && !follows) entry.next_flavor.clear();
  request.next_flavor = &entry.next_flavor;
  if (entry.next_flavor.empty()) entry.full_version = entry.judged_version;
  Assignment before = std::move(entry.assignment);
  entry.assignment = AssignFlavors(ledger_, request);
  if (entry.assignment.mode != AssignmentMode::kPreempt) return;
  if (before.mode == AssignmentMode::kPreempt && KeepsChoice(entry, before)) return;
  entry.targets =
      FindTargets(ledger_, {.queue = entry.queue,
                            .priority = entry.workload.priority,
                            .queued_at = entry.workload.queued_at,
                            .usage = WithoutNothing(Needed(entry, entry.assignment.usage)),
                            .needed = entry.assignment.needed,
                            .fair_sharing = options_.fair_sharing});
}

// Where victims were named in an earlier pass, what was chosen with them stands as long as it fits
// once those are gone that haven't gone yet, or at once if all have. Judging anew, as Kueue does,
// may evict more than is needed: one of them may be no candidate by now, since its queue borrows
// less with each that goes, and goes all the same; and another flavor may look better meanwhile.
bool Cycle::KeepsChoice(Entry& entry, Assignment& before) {
  if (entry.claimed_pass < 0 || !IsPlaceable(entry, before)) return false;
  for (const Victim& victim : entry.reported) {
    Reservation* reservation = ledger_.Find(victim.id);
    if (reservation == nullptr) continue;
    if (reservation->marked < PartOf(victim.surplus_only)) continue;
    entry.targets.push_back({.reservation = reservation,
                             .surplus_only = victim.surplus_only,
                             .reason = victim.reason,
                             .gone_before = Reservation::Part::kNothing});
  }
  {
    Removal removal(ledger_);
    removal.TakeAll(entry.targets);
    const int node = ledger_.layout().queue(entry.queue).node;
    // While victims go, some pods stand whose quota has been given back, and will be gone as well.
    if (!Fits(ledger_.tree(), node,
              entry.targets.empty() ? Needed(entry, before.usage) : before.usage)) {
      entry.targets.clear();
      return false;
    }
    before.borrowing = 0;
    for (const PairAmount& each : before.usage) {
      const Reach reach = FindReach(ledger_.tree(), node, each.pair, each.amount);
      before.borrowing = std::max(before.borrowing, reach.height);
    }
  }
  if (entry.targets.empty()) {
    before.mode = AssignmentMode::kFit;
  } else if (before.usage == entry.assignment.usage) {
    return true;  // with the same flavors it ranks by what they are now
  }
  entry.assignment = std::move(before);
  return true;
}

bool Cycle::IsPlaceable(Entry& entry, const Assignment& assignment) const {
  if (!feasible_) return true;
  const QueueConfig& queue = ledger_.layout().queue(entry.queue);
  return std::ranges::all_of(assignment.choices, [&](const Assignment::Choice& choice) {
    const Group& group = queue.groups[static_cast<size_t>(queue.Find(choice.resource).group)];
    const auto flavor = std::ranges::find(group.flavors, choice.flavor,
                                          [](const GroupFlavor& f) { return f.flavor; });
    return flavor != group.flavors.end() && Placement(entry, choice.pod_set, *flavor).empty();
  });
}

void Cycle::JudgeSurplus(Entry& entry) {
  entry.assignment = {};
  entry.assignment.mode = AssignmentMode::kNoFit;
  const Reservation& reservation = *ledger_.Find(entry.workload.id);
  // Nothing is added to what is being taken back.
  if (reservation.marked != Reservation::Part::kNothing) return;
  SurplusGrant grant =
      FitSurplus(ledger_, reservation, entry.asked, entry.kind->demand, RequestOf(entry));
  entry.assignment.refusals = std::move(grant.refusals);
  if (grant.pod_sets.empty()) return;
  entry.assignment.mode = AssignmentMode::kFit;
  entry.assignment.usage = std::move(grant.usage);
  entry.assignment.borrowing = grant.borrowing;
}

bool Cycle::Run(int root) {
  room_.BeginPass(root);
  bool may_differ = false;
  std::vector<Entry*> refused;
  std::vector<Entry*> entries;
  for (int queue : room_.QueuesUnder(root)) {
    Entry* head = room_.line(queue).Head();
    // Whoever steps aside lets the next in line take part at once: that one may be waiting for
    // victims, whose quota would go to another queue in a pass without it, again and again.
    for (Entry* before = nullptr; head != nullptr && head != before;) {
      Judge(*head);
      if (!StepsAside(*head)) break;
      may_differ |= Requeue(*head);
      before = std::exchange(head, room_.line(queue).Head());
    }
    if (head == nullptr || StepsAside(*head)) continue;
    const bool is_refused = head->assignment.mode == AssignmentMode::kNoFit;
    (is_refused ? refused : entries).push_back(head);
  }
  if (options_.fair_sharing) {
    while (!entries.empty()) may_differ |= Process(*TakeFairest(ledger_, root, entries));
  } else {
    SortClassically(entries);
    for (Entry* entry : entries) may_differ |= Process(*entry);
  }
  for (Entry* entry : refused) may_differ |= Requeue(*entry);
  for (const SetAside& each : set_aside_) ledger_.tree().RemoveUsage(each.node, each.usage);
  set_aside_.clear();
  victims_.clear();
  return may_differ;
}

bool Cycle::Process(Entry& entry) {
  const bool preempts = entry.assignment.mode == AssignmentMode::kPreempt;
  if (preempts && entry.targets.empty()) {
    Reserve(entry);
    return Requeue(entry);
  }
  const bool overlaps =
      std::any_of(entry.targets.begin(), entry.targets.end(), [&](const Target& t) {
        return std::any_of(victims_.begin(), victims_.end(),
                           [&](const Target& other) { return other.reservation == t.reservation; });
      });
  const bool fits = FitsBeside(entry);
  if (overlaps || !fits) {
    // It keeps its place: what was in its way changes with the next pass. Where somebody else has
    // its victims now, and they don't suffice for both, it judges anew.
    const bool loses_them = overlaps && !fits && entry.claimed_pass >= 0;
    const bool was_full = entry.next_flavor.empty();
    const bool leaves_out = KeepFlavors(entry);
    const int64_t version = ledger_.Version(ledger_.layout().queue(entry.queue).root);
    if (leaves_out && was_full && std::exchange(entry.skipped_version, version) != version) {
      entry.full_version = -1;
    }
    if (loses_them) {
      entry.claimed_pass = -1;
      entry.judged_version = -1;
    }
    return leaves_out || loses_them;
  }
  if (!preempts) return Admit(entry);
  victims_.insert(victims_.end(), entry.targets.begin(), entry.targets.end());
  Use(entry, entry.assignment.usage);
  return NameVictims(entry);
}

// With all victims of this pass gone, and the usage of those who wait for them. What is admitted at
// once must fit beside the victims as well: they still run. (Kueue doesn't look at that.)
bool Cycle::FitsBeside(const Entry& entry) {
  const int node = ledger_.layout().queue(entry.queue).node;
  const bool waits = entry.claimed_pass >= 0 && !entry.targets.empty();
  const std::vector<PairAmount> usage =
      waits ? entry.assignment.usage : Needed(entry, entry.assignment.usage);
  if (victims_.empty() && entry.targets.empty()) return Fits(ledger_.tree(), node, usage);
  {
    Removal removal(ledger_);
    removal.TakeAll(victims_);
    removal.TakeAll(entry.targets);
    if (!Fits(ledger_.tree(), node, usage)) return false;
  }
  if (entry.assignment.mode != AssignmentMode::kFit) return true;
  for (const SetAside& each : set_aside_) ledger_.tree().RemoveUsage(each.node, each.usage);
  const bool fits = Fits(ledger_.tree(), node, usage);
  for (const SetAside& each : set_aside_) ledger_.tree().AddUsage(each.node, each.usage);
  return fits;
}

void Cycle::Use(const Entry& entry, std::vector<PairAmount> usage) {
  const int node = ledger_.layout().queue(entry.queue).node;
  ledger_.tree().AddUsage(node, usage);
  set_aside_.push_back({node, std::move(usage)});
}

// Keeps others in this pass from what it waits for, unless its queue can always take it back.
void Cycle::Reserve(const Entry& entry) {
  const QueueConfig& queue = ledger_.layout().queue(entry.queue);
  if (queue.object->preemption.reclaim_within_cohort == kube::ReclaimPolicy::kAny) return;
  std::vector<PairAmount> usage = entry.assignment.usage;
  for (PairAmount& each : usage) {
    const auto& limit = ledger_.tree().BorrowingLimit(queue.node, each.pair);
    const bool borrows = entry.assignment.borrowing > 0;
    if (borrows && !limit) continue;
    Amount room = Amount(ledger_.tree().Nominal(queue.node, each.pair)) -
                  ledger_.tree().Usage(queue.node, each.pair);
    if (borrows) room += Amount(*limit);
    each.amount = Saturate(std::clamp(room, Amount(0), Amount(each.amount)));
  }
  Use(entry, std::move(usage));
}

Admission Cycle::AdmissionOf(const Entry& entry) const {
  Admission admission;
  admission.cluster_queue = ledger_.layout().queue(entry.queue).object->meta.name;
  admission.reserved_at = now_;
  admission.pod_sets.reserve(entry.workload.pod_sets.size());
  for (const PodSet& pod_set : entry.workload.pod_sets) {
    PodSetAssignment& made = admission.pod_sets.emplace_back();
    made.name = pod_set.name;
    made.count = pod_set.count;
  }
  for (const Assignment::Choice& choice : entry.assignment.choices) {
    PodSetAssignment& made = admission.pod_sets[static_cast<size_t>(choice.pod_set)];
    const std::string& resource = ledger_.names().ResourceName(choice.resource);
    made.flavors.emplace(resource, ledger_.names().FlavorName(choice.flavor));
    made.usage.Set(resource, choice.amount);
  }
  return admission;
}

void Cycle::Announce(const Entry& entry, std::shared_ptr<const Admission> admission) {
  // Only surplus can be added to what was admitted in the same Schedule.
  if (entry.is_surplus || !entry.workload.surplus.empty()) {
    auto [it, inserted] = admitted_now_.try_emplace(entry.workload.id, decisions_.size());
    if (!inserted) {
      decisions_[it->second].admission = std::move(admission);
      return;
    }
  }
  Decision& decision = decisions_.emplace_back();
  decision.id = entry.workload.id;
  decision.admission = std::move(admission);
  decision.surplus_only = entry.is_surplus;
}

bool Cycle::Admit(Entry& entry) {
  Admission granted;
  if (entry.is_surplus) {
    const Reservation& reservation = *ledger_.Find(entry.workload.id);
    // Judged on the state before this pass: what fits may be less by now.
    const SurplusGrant grant =
        FitSurplus(ledger_, reservation, entry.asked, entry.kind->demand, RequestOf(entry));
    if (grant.pod_sets.empty()) return false;
    granted = *reservation.admission;
    AddSurplus(granted.surplus, grant.pod_sets);
  } else {
    granted = AdmissionOf(entry);
  }
  auto admission = std::make_shared<const Admission>(std::move(granted));
  Announce(entry, admission);
  const std::unique_ptr<Entry> left = room_.Leave(entry.workload.id);
  const Reservation& reservation =
      left->is_surplus ? ledger_.Set(std::move(left->workload), std::move(admission))
                       : ledger_.Add(std::move(left->workload), std::move(admission), left->queue,
                                     std::move(left->assignment.usage));
  if (!reservation.workload.surplus.empty()) {
    room_.EnterSurplus(reservation.workload, *reservation.admission);
  }
  return true;
}

bool Cycle::NameVictims(Entry& entry) {
  const int root = ledger_.layout().queue(entry.queue).root;
  std::vector<Victim> victims;
  bool any_new = false;
  for (const Target& target : entry.targets) {
    const Reservation::Part part = PartOf(target.surplus_only);
    victims.push_back({target.reservation->workload.id, target.reason, target.surplus_only});
    // Who was admitted again since it went for this one has to go again.
    any_new =
        any_new || target.reservation->marked < part ||
        std::none_of(
            entry.reported.begin(), entry.reported.end(),
            [&](const Victim& each) {
              return each.id == victims.back().id && (target.surplus_only || !each.surplus_only);
            });
    if (target.reservation->marked >= part) continue;
    target.reservation->marked = part;
    ledger_.Touch(root);
  }
  entry.next_flavor.clear();
  entry.reported = std::move(victims);
  entry.claimed_pass = room_.LastPass(root);
  bool has_other_head = false;
  if (IsStrict(ledger_, entry.queue)) {
    has_other_head = room_.NobodyStaysFirst(entry.queue);
  } else {
    room_.StayFirst(&entry);
  }
  if (!any_new) return has_other_head;
  Decision& decision = decisions_.emplace_back();
  decision.id = entry.workload.id;
  decision.victims = entry.reported;
  return true;
}

bool Cycle::KeepFlavors(Entry& entry) {
  // Where pod sets' flavors depend on each other, leaving out in turn may never come round; and
  // heads that begin anew in different passes would keep each other going.
  const int root = ledger_.layout().queue(entry.queue).root;
  if (entry.attempts_version != ledger_.Version(root) || entry.next_flavor_pass < first_pass_) {
    entry.attempts_version = ledger_.Version(root);
    entry.flavor_attempts = 0;
  }
  const bool has_untried = entry.assignment.HasUntriedFlavors() &&
                           ++entry.flavor_attempts <= FlavorCount(entry.kind->demand);
  if (has_untried || !entry.next_flavor.empty()) entry.judged_version = -1;
  entry.next_flavor = has_untried ? entry.assignment.next_flavor : std::vector<int>();
  entry.next_flavor_wakes = room_.line(entry.queue).wakes();
  entry.next_flavor_pass = room_.LastPass(root);
  return has_untried;
}

// Doesn't keep the next in line waiting: quota isn't what it lacks, or what it must have.
bool Cycle::StepsAside(const Entry& entry) {
  using Kind = FlavorRefusal::Kind;
  if (entry.assignment.mode != AssignmentMode::kNoFit) return false;
  return entry.is_surplus || (entry.assignment.IsRefusedFor(Kind::kNotPlaceable) &&
                              !entry.assignment.IsRefusedFor(Kind::kInUse));
}

// Somebody who gets nothing in this pass: waits at the head, or steps aside.
bool Cycle::Requeue(Entry& entry) {
  WaitingLine& line = room_.line(entry.queue);
  entry.reported.clear();
  const bool left_out = !entry.next_flavor.empty();
  if (KeepFlavors(entry)) return true;
  // Others have taken something since it was in their way, and may be what is to be evicted for it,
  // or it may wait for victims with a flavor that was left out, or have one that was only set
  // aside. (Kueue leaves it to the next wake.)
  const int root = ledger_.layout().queue(entry.queue).root;
  if (left_out && entry.full_version < ledger_.Version(root)) return true;
  if (StepsAside(entry)) {
    line.ParkAlone(&entry);
    return true;
  }
  if (IsStrict(ledger_, entry.queue)) return false;
  const auto& refusals = entry.assignment.refusals;
  if (std::any_of(refusals.begin(), refusals.end(), IsRefusedPlacement)) {
    line.ParkAlone(&entry);
  } else {
    line.ParkClass(&entry);
  }
  return true;
}

}  // namespace muster::quota
