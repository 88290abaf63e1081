// Room that gangs of lower priority give up for one that has none, whole or not at all. Who is to
// go is cluster/victims.h's rule; that a gang goes whole is remembered by quota_admission.h; and
// that room is kept for the one follows from its tentative places, assumed where others stand.

#include <algorithm>
#include <utility>

#include "cluster/victims.h"
#include "coscheduling/placement/placement.h"
#include "fmt/format.h"
#include "kube/objects/excerpt.h"

namespace muster::coscheduling {
namespace {

// A pod that is there so long after its grace period may stay for good: it isn't counted on.
constexpr absl::Duration kLate = absl::Minutes(1);
// Of those that wait, so many are planned again at once when somebody else could go.
constexpr size_t kRetries = 8;
// Gangs that a reason names.
constexpr size_t kShownGroups = 3;

size_t SurplusOf(const Gang& gang) {
  return gang.bound.size() - std::min(gang.bound.size(), gang.kept());
}

}  // namespace

// Keeps who could go, and who is going.
void Placement::FollowStanding(const Gang& gang, Part* part) {
  const bool leaves = quota_->IsLeaving(gang);
  if (leaves || gang.facts.terminating) {
    leaving_.insert(gang.id);
  } else {
    leaving_.erase(gang.id);
  }
  const bool whole =
      gang.facts.bound + gang.facts.succeeded >= gang.facts.min_member || gang.facts.bound_before;
  std::optional<int64_t> evictable;
  if (gang.ours && !gang.bound.empty() && !leaves && whole && part->pins.empty()) {
    evictable = quota_->ClaimOf(gang);
  }
  const size_t surplus = evictable ? SurplusOf(gang) : 0;
  evictable_changed_ |= evictable && (evictable != part->evictable || surplus > part->surplus);
  part->surplus = surplus;
  if (evictable == part->evictable) return;
  if (part->evictable) evictable_.erase({*part->evictable, gang.id});
  if (evictable) evictable_.emplace(*evictable, gang.id);
  part->evictable = evictable;
}

// The first of those who could gain by it; the others are caught up with as those whom a change
// concerns always are.
void Placement::RetryPreemption() {
  const uint64_t before = std::exchange(eviction_rules_, quota_->eviction_rules());
  evictable_changed_ |= before != eviction_rules_;
  if (!std::exchange(evictable_changed_, false) || evictable_.empty()) return;
  const int64_t least = evictable_.begin()->first;
  bool any = false;
  size_t left = kRetries;
  for (const Order& order : list_) {
    if (left == 0 || -order.less_important <= least) break;
    const Gang& gang = *gangs_.Find(order.gang());
    if (quota_->ClaimOf(gang) <= least || !gang.preempts) continue;
    any = true;
    --left;
    PlanSoon(&parts_.at(order.gang()));
  }
  if (any) ++epoch_;
}

// Members of gangs of lower claim, or of its own, that are going away or are to.
std::vector<std::string> Placement::GoingFor(const Gang& gang, Part* part) const {
  std::vector<std::string> going;
  std::vector<std::string> texts;
  const int64_t claim = quota_->ClaimOf(gang);
  for (GangId id : leaving_) {
    const Gang& other = *gangs_.Find(id);
    if (id != gang.id && quota_->ClaimOf(other) >= claim) continue;
    const bool whole = quota_->IsLeaving(other);
    size_t members = 0;
    for (const kube::Pod* pod : gangs_.PodsOf(other)) {
      if (!pod->IsBound() || pod->IsTerminal() || (!whole && !pod->IsDeleting())) continue;
      if (pod->IsDeleting()) {
        const absl::Time late = *pod->meta.deletion_time + kLate;
        if (agenda_->now() >= late) continue;
        part->awaits_until = std::min(part->awaits_until, late);
      }
      going.push_back(pod->meta.uid);
      ++members;
    }
    if (members > 0) texts.push_back(fmt::format("{} of gang {}", members, other.key.ToString()));
  }
  for (const std::string& uid : surplus_leaving_) {
    const Gang* other = gangs_.OfPod(uid);
    if (other == nullptr || quota_->ClaimOf(*other) >= claim) continue;
    if (!IsLive(*snapshot_.FindPod(uid))) continue;  // counted above
    going.push_back(uid);
    texts.push_back(snapshot_.FindPod(uid)->meta.name);
  }
  std::ranges::sort(texts);
  part->places.awaits = kube::FirstFew(texts, kShownGroups);
  return going;
}

// Gives it places where others stand that go, or makes them go; true if nobody who could go makes
// room for all that it needs.
bool Placement::TakesInVain(const Gang& gang, Part* part) {
  const int64_t claim = quota_->ClaimOf(gang);
  const bool anybody =
      !leaving_.empty() || (!evictable_.empty() && evictable_.begin()->first < claim);
  if (!anybody || !gang.preempts || may_buy_(gang)) return false;
  Places& places = part->places;
  const PlaceMap partial = places.tentative_assumed ? places.tentative : PlaceMap();
  for (const auto& [uid, node] : partial) room_->Forget(uid);
  const std::vector<std::string> going = GoingFor(gang, part);
  cluster::Aside aside(room_);

  std::vector<const Gang*> candidates;
  std::vector<cluster::EvictableGroup> groups;
  for (const auto& [others, id] : evictable_) {
    const Gang& other = *gangs_.Find(id);
    if (others >= claim || id == gang.id || !quota_->MayPreempt(gang, other)) continue;
    candidates.push_back(&other);
    groups.push_back({other.key.ToString(), others, other.created, {}, 0});
    for (const std::string& uid : other.bound) {
      if (!surplus_leaving_.contains(uid)) groups.back().members.push_back(snapshot_.FindPod(uid));
    }
    groups.back().needed = std::min(other.kept(), groups.back().members.size());
  }
  std::vector<const kube::Pod*> leaving;
  for (const std::string& uid : going) {
    if (IsLive(*snapshot_.FindPod(uid))) leaving.push_back(snapshot_.FindPod(uid));
  }
  PlanRequest request = RequestFor(gang, Unplaced(gang));
  KeepOff(gang, &request);
  Plan plan;
  const auto fits = [&](const std::vector<const kube::Pod*>& gone) {
    std::set<std::string_view> all(going.begin(), going.end());
    for (const kube::Pod* pod : gone) all.insert(pod->meta.uid);
    aside.Set(std::move(all));
    plan = Solve(request);
    return plan.complete && MinResourcesFree(gang);
  };
  auto victims = cluster::ChooseVictims(groups, quota_->budgets(), leaving, fits);
  if (victims && victims->pods.empty() && going.empty()) victims.reset();  // nobody stands there
  if (victims) fits(victims->pods);
  aside.Set({});
  if (!victims) {
    for (const auto& [uid, node] : partial) room_->Assume(uid, node).IgnoreError();
    places.awaits.clear();
    part->awaits_until = Never();
    return true;
  }

  for (size_t index : victims->whole) {
    const Gang& other = *candidates[index];
    quota_->StartEviction(
        other, {fmt::format("gang {} of higher priority needs their room", gang.key.ToString()),
                "Preempted", "InClusterQueue", false});
    FollowStanding(other, &parts_[other.id]);
    ++preempted_gangs_;
  }
  for (const kube::Pod* pod : victims->surplus) {
    surplus_leaving_.insert(pod->meta.uid);
    agenda_->Note(gangs_.OfPod(pod->meta.uid)->id);
    ++preempted_surplus_;
  }
  GoingFor(gang, part);
  agenda_->NoteAt(gang.id, part->awaits_until);
  places.tentative = std::move(plan.placements);
  for (const auto& [uid, node] : places.tentative) room_->Assume(uid, node).IgnoreError();
  places.tentative_assumed = true;
  places.short_of_nodes = false;
  tentative_.insert(part->order);
  return false;
}

void Placement::EvictSurplus(const Gang& gang) {
  if (surplus_leaving_.empty()) return;
  for (const std::string& uid : gang.bound) {
    if (!surplus_leaving_.contains(uid)) continue;
    outbox_->Act(gang.id, "evict/" + uid, EvictPod{RefOf(*snapshot_.FindPod(uid))});
  }
}

}  // namespace muster::coscheduling
