// The placement pass: all gangs that wait, first claim first, on one snapshot.

#include <algorithm>
#include <set>
#include <utility>

#include "cluster/predicates.h"
#include "coscheduling/engine_state.h"
#include "coscheduling/gangs/pod_sets.h"

namespace muster::coscheduling {
namespace {

// Gangs that ask for the same thing fail alike: what one couldn't find, a later one of the same
// shape and at least the same size can't find either within the same pass, because places are only
// taken during it.
class KnownFailures {
 public:
  static std::string ShapeOf(const PlanRequest& request) {
    std::set<std::string> classes;
    for (const kube::Pod* pod : request.members) classes.insert(cluster::ClassKey(*pod));
    // Members of several classes, or with relations to other pods, are not compared.
    if (classes.size() != 1 || cluster::HasRelations(*request.members.front()->spec) ||
        !request.excluded_nodes.empty()) {
      return "";
    }
    return *classes.begin();
  }
  const PlanShortfall* Find(const std::string& shape, size_t required) const {
    auto it = failures_.find(shape);
    return shape.empty() || it == failures_.end() || required < it->second.required
               ? nullptr
               : &it->second.shortfall;
  }
  void Note(const std::string& shape, size_t required, const PlanShortfall& shortfall) {
    if (shape.empty()) return;
    auto it = failures_.find(shape);
    if (it == failures_.end() || required < it->second.required) {
      failures_[shape] = {required, shortfall};
    }
  }

 private:
  struct Failure {
    size_t required;
    PlanShortfall shortfall;
  };
  std::map<std::string, Failure> failures_;
};

}  // namespace

std::vector<std::string> Engine::State::Unplaced(const Gang& gang) const {
  std::vector<std::string> uids;
  for (const std::string& uid : gang.unbound) {
    if (!gang.fixed.contains(uid) && MayBePlaced(gang, uid)) uids.push_back(uid);
  }
  return uids;
}

// With quota: it was counted, and carries the labels of its flavors.
bool Engine::State::MayBePlaced(const Gang& gang, const std::string& uid) const {
  if (!HoldsQuota(gang)) return true;
  if (gang.quota.uncounted.contains(uid)) return false;
  const kube::Pod& pod = *snapshot.FindPod(uid);
  if (!IsGivenFlavors(pod)) return false;
  const quota::PodSetAssignment* given = GivenTo(gang, pod);
  return given != nullptr && HasFlavors(pod, *given);
}

PlanRequest Engine::State::RequestFor(const Gang& gang,
                                      const std::vector<std::string>& uids) const {
  PlanRequest request;
  for (const std::string& uid : uids) request.members.push_back(snapshot.FindPod(uid));
  const auto placed = static_cast<int64_t>(gang.fixed.size());
  request.required = static_cast<size_t>(std::max<int64_t>(0, gang.required() - placed));
  request.required = std::min(request.required, request.members.size());
  for (const std::string& uid : gang.bound) {
    if (gang.lost.contains(uid)) continue;
    request.sibling_nodes.push_back(snapshot.FindPod(uid)->node_name);
  }
  for (const auto& [uid, node] : gang.fixed) request.sibling_nodes.push_back(node);
  for (const auto& [node, until] : gang.refused_nodes.left_out()) {
    request.excluded_nodes.insert(node);
  }
  const std::string name = gang.key.ToString();
  for (const auto& [node, entry] : suspects.nodes()) {
    if (suspects.IsSuspectFor(node, name)) request.excluded_nodes.insert(node);
  }
  ExcludeOtherFlavors(gang, uids, &request);
  return request;
}

// A member whose gate was lifted by somebody else can't be given its flavor's nodeSelector any
// more. The plan keeps it to the flavor's nodes all the same.
void Engine::State::ExcludeOtherFlavors(const Gang& gang, const std::vector<std::string>& uids,
                                        PlanRequest* request) const {
  if (!HoldsQuota(gang)) return;
  for (const std::string& uid : uids) {
    const kube::Pod& pod = *snapshot.FindPod(uid);
    const quota::PodSetAssignment* given = GivenTo(gang, pod);
    if (given == nullptr) continue;
    for (const std::string& name : FlavorNames(*given)) {
      const kube::ResourceFlavor* flavor = quotas.FindFlavor(name);
      if (flavor == nullptr) continue;
      for (const auto& [key, value] : flavor->node_labels) {
        if (pod.spec->node_selector.contains(key)) continue;
        for (const auto& [node, info] : snapshot.nodes()) {
          const std::string* label = info.node->meta.Label(key);
          if (label == nullptr || *label != value) request->excluded_nodes.insert(node);
        }
      }
    }
  }
}

// The gang is planned as a whole: not before all that it needs may be placed.
bool Engine::State::WaitsForPlace(const Gang& gang) const {
  if (!gang.ours || !gang.facts.admitted || gang.facts.blocked || gang.facts.infeasible ||
      gang.unbound.empty()) {
    return false;
  }
  const size_t unplaced = Unplaced(gang).size();
  return unplaced > 0 && static_cast<int64_t>(unplaced + gang.fixed.size()) >= gang.required();
}

void Engine::State::DropTentative(Gang& gang) {
  if (gang.tentative_assumed) {
    for (const auto& [uid, node] : gang.tentative) snapshot.Forget(uid);
  }
  gang.stale |= !gang.tentative.empty();
  gang.tentative.clear();
  gang.tentative_assumed = false;
}

// A place whose binding is asked for can't be given up, only seen.
void Engine::State::DropFixed(Gang& gang) {
  std::vector<std::string> uids;
  uids.reserve(gang.fixed.size());
  for (const auto& [uid, node] : gang.fixed) uids.push_back(uid);
  DropFixed(gang, uids);
}

void Engine::State::DropFixed(Gang& gang, const std::vector<std::string>& uids) {
  for (const std::string& uid : uids) {
    if (IsCommitted(gang, uid) || gang.fixed.erase(uid) == 0) continue;
    snapshot.Forget(uid);
    gang.stale = true;
  }
}

// Places in force that no longer hold: the node is gone, unusable, refused, suspect, or taken by
// somebody who didn't ask.
std::vector<std::string> Engine::State::BrokenPlaces(const Gang& gang) const {
  std::vector<std::string> broken;
  const std::string name = gang.key.ToString();
  for (const auto& [uid, node] : gang.fixed) {
    if (IsCommitted(gang, uid)) continue;
    const cluster::NodeInfo* info = snapshot.FindNode(node);
    const kube::Pod* pod = snapshot.FindPod(uid);
    const bool good = info != nullptr && pod != nullptr && info->UsableNow() &&
                      MayBePlaced(gang, uid) && !gang.refused_nodes.left_out().contains(node) &&
                      !suspects.IsSuspectFor(node, name) &&
                      !cluster::CheckClass(snapshot, *pod, *info) &&
                      info->node->allocatable.Covers(info->requested);
    if (!good) broken.push_back(uid);
  }
  return broken;
}

// scheduler-plugins' reading of minResources: that much must be free in the cluster. Below the
// members' own sum the plan itself is the stricter test.
bool Engine::State::MinResourcesFree(const Gang& gang) const {
  if (gang.group == nullptr || !gang.group->min_resources || !gang.bound.empty()) return true;
  kube::ResourceList asked;
  for (const std::string& uid : gang.unbound) {
    if (!asked.Add(snapshot.FindPod(uid)->spec->requests).ok()) return false;
  }
  if (asked.Covers(*gang.group->min_resources)) return true;
  kube::ResourceList free;
  for (const auto& [name, info] : snapshot.nodes()) {
    if (!info.UsableNow()) continue;
    if (!free.Add(info.FreeResources()).ok()) return true;  // more than int64 holds
  }
  return free.Covers(*gang.group->min_resources);
}

void Engine::State::PlaceGang(Gang& gang, bool keeps_partial, absl::Time now) {
  const std::vector<std::string> uids = Unplaced(gang);
  PlanRequest request = RequestFor(gang, uids);
  ++stats.plans;
  Plan plan = MakePlan(snapshot, request);
  const bool whole = plan.complete && plan.placements.size() == uids.size();
  gang.min_resources_short = plan.complete && !MinResourcesFree(gang);
  if (gang.min_resources_short) {
    gang.short_of_nodes = true;
    return;
  }
  if (plan.complete) {
    for (const auto& [uid, node] : plan.placements) {
      if (snapshot.Assume(uid, node).ok()) gang.fixed.emplace(uid, node);
    }
    gang.short_of_nodes = false;
    gang.coming_suffices = false;
    if (whole) return;
    // The surplus may still get nodes of its own.
    request = RequestFor(gang, Unplaced(gang));
    request.required = request.members.size();
  }
  request.include_virtual = true;
  ++stats.plans;
  plan = MakePlan(snapshot, request);
  gang.tentative = std::move(plan.placements);
  gang.coming_suffices = plan.complete;
  gang.short_of_nodes = !plan.complete;
  gang.shortfall = std::move(plan.shortfall);
  const bool in_grace = gang.signalled && now < gang.signalled_at + options.signal_grace;
  if (in_grace && !plan.complete) PassAt(gang.signalled_at + options.signal_grace);
  if (!plan.complete && !in_grace && !keeps_partial) return;
  for (const auto& [uid, node] : gang.tentative) snapshot.Assume(uid, node).IgnoreError();
  gang.tentative_assumed = true;
}

// What is free now, and what the provider had before nodes went, suffice together, once the
// provider is asked again.
bool Engine::State::CapacityMaySuffice(const Gang& gang, const Plan& plan, int64_t required,
                                       absl::Time now) {
  const int64_t room = setbacks.RoomSinceRefusal(gang.key);
  if (room == 0 || static_cast<int64_t>(plan.shortfall.placeable) + room < required) return false;
  const absl::Time asked_again =
      std::max(gang.record->deadline, setbacks.LastRefusal(gang.key)) + options.capacity_backoff;
  if (now >= asked_again) return true;
  PassAt(asked_again);
  return false;
}

void Engine::State::Place(absl::Time now) {
  ++stats.passes;
  needs_pass = false;
  next_pass = Never();
  std::vector<Gang*> waiting;
  for (auto& [key, gang] : gangs) {
    gang.refused_nodes.Expire(now);
    for (const auto& [node, until] : gang.refused_nodes.left_out()) PassAt(until);
    if (gang.facts.blocked || !gang.facts.admitted) DropFixed(gang);
    if (std::vector<std::string> broken = BrokenPlaces(gang); !broken.empty()) {
      // Before its commit a gang is solved anew as a whole; after, only what broke is.
      if (IsFree(gang)) {
        DropFixed(gang);
      } else {
        DropFixed(gang, broken);
      }
      FailHeldBinds(gang, "the plan no longer holds; a new one is being made");
    }
    DropTentative(gang);
    gang.coming_suffices = gang.short_of_nodes = gang.fits_now = false;
    if (!gang.awaits_writes && WaitsForPlace(gang)) waiting.push_back(&gang);
    if (gang.facts.backing_off && !gang.facts.blocked && !gang.unbound.empty()) {
      waiting.push_back(&gang);
    }
  }
  std::ranges::sort(waiting, [](const Gang* a, const Gang* b) { return PlacedBefore(*a, *b); });
  KnownFailures failures;
  bool guard_taken = false;
  for (Gang* gang : waiting) {
    gang->stale = true;
    PlanRequest request = RequestFor(*gang, Unplaced(*gang));
    if (gang->facts.backing_off) {
      const Plan plan = MakePlan(snapshot, request);
      gang->fits_now = plan.complete || CapacityMaySuffice(*gang, plan, request.required, now);
      if (gang->fits_now) gang->dirty = places_changed = true;
      continue;
    }
    const std::string shape = KnownFailures::ShapeOf(request);
    if (const PlanShortfall* known = failures.Find(shape, request.required)) {
      gang->short_of_nodes = true;
      gang->shortfall = *known;
      gang->dirty = true;
      continue;
    }
    bool guards = false;
    if (!guard_taken && gang->required() > 0 &&
        now >= gang->record->admitted_at + options.starvation_after) {
      guard_taken = true;
      if (now >= gang->guard_since + options.starvation_after) gang->guard_since = now;
      guards = now < gang->guard_since + options.starvation_hold;
      PassAt(guards ? gang->guard_since + options.starvation_hold
                    : gang->guard_since + options.starvation_after);
    }
    PlaceGang(*gang, guards, now);
    gang->dirty = true;
    if (gang->short_of_nodes && !gang->min_resources_short && request.required > 0) {
      failures.Note(shape, request.required, gang->shortfall);
    }
  }
  CountOnNodes(waiting);
}

}  // namespace muster::coscheduling
