// Gangs that follow from what owns their pods (job_gangs.h): which pods join them, their PodGroups,
// and what there is to say of them while members are missing.

#include <algorithm>
#include <utility>

#include "coscheduling/gangs/gangs.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/kueue_pod_group.h"
#include "kube/objects/max_seconds.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

// An owner reference takes about 150 bytes, and etcd takes 1.5 MB. Pods beyond these are fewer than
// can go while the rest stays.
constexpr size_t kMaxGroupOwners = 1'000;

bool IsMadeFor(const kube::PodGroup& group, const DerivedGang& gang) {
  const std::string* derived = group.meta.Label(kDerivedLabel);
  if (derived == nullptr || *derived != "true") return false;
  const kube::OwnerReference* owner = group.meta.Controller();
  return owner == nullptr ? gang.owner.uid.empty() : owner->uid == gang.owner.uid;
}

// Of a job that went, and whose name another one has now.
bool IsLeftOver(const kube::PodGroup& group, const DerivedGang& gang) {
  const kube::OwnerReference* owner = group.meta.Controller();
  return owner != nullptr && owner->uid != gang.owner.uid && owner->kind == gang.owner.kind &&
         owner->name == gang.owner.name;
}

// By label where a Job was deleted without its pods, which run on.
kube::NamespacedUid OwnerOf(const kube::Pod& pod) {
  kube::NamespacedUid owner = pod.meta.ControllerUid();
  const std::string* job = pod.meta.Label(kube::kControllerUidLabel);
  if (pod.meta.Controller() == nullptr && job != nullptr) owner.uid = *job;
  return owner;
}

std::string FirstLabel(const std::vector<const kube::Pod*>& pods, std::string_view key) {
  for (const kube::Pod* pod : pods) {
    const std::string* value = pod->meta.Label(key);
    if (value != nullptr && !value->empty()) return *value;
  }
  return "";
}

}  // namespace

const kube::PodGroup* Gangs::FindGroup(const GangKey& key) const {
  const Gang* gang = Find(key);
  return gang == nullptr ? nullptr : gang->group.get();
}

std::string Gangs::GroupNameOf(const std::string& name_space, const DerivedGang& gang) const {
  const kube::PodGroup* spare = FindGroup({name_space, gang.spare_name, false});
  if (spare != nullptr && IsMadeFor(*spare, gang)) return gang.spare_name;
  const kube::PodGroup* group = FindGroup({name_space, gang.name, false});
  const kube::OwnerReference* owner = group == nullptr ? nullptr : group->meta.Controller();
  if (owner == nullptr) return gang.contested ? gang.spare_name : gang.name;
  const bool is_its_own = owner->uid == gang.owner.uid || IsLeftOver(*group, gang);
  return is_its_own ? gang.name : gang.spare_name;
}

Gangs::Membership Gangs::MembershipOf(const kube::Pod& pod) const {
  const std::string& name_space = pod.meta.name_space;
  const std::string* group = pod.meta.Label(kube::kPodGroupLabel);
  if (group != nullptr && !group->empty()) return {{name_space, *group, false}, std::nullopt};
  if (std::optional<DerivedGang> gang = KueueGroupOf(pod)) {
    gang->contested = jobs_.IsClaimed(name_space, gang->name);
    return {{name_space, GroupNameOf(name_space, *gang), false}, gang};
  }
  Membership alone = {{name_space, pod.meta.name, true}, std::nullopt};
  Derivation derivation = jobs_.Derive(pod);
  if (derivation.missing) {
    // One whose owner is gone stays where it was until it goes too.
    const auto it = gang_of_pod_.find(pod.meta.uid);
    if (it == gang_of_pod_.end() || !it->second->derived) return alone;
    return {it->second->key, it->second->derived};
  }
  if (!derivation.gang || !derivation.gang->wanted) return alone;
  const DerivedGang& gang = *derivation.gang;
  const GangKey key{name_space, GroupNameOf(name_space, gang), false};
  if (gang.min_member <= 1 && gang.fault.empty() && !gang.is_stage) {
    // A job that once made more keeps its gang; one that has quota is one.
    const kube::PodGroup* made = FindGroup(key);
    const bool has_quota = awaited_.contains({name_space, gang.owner.uid});
    if (!has_quota && (made == nullptr || !IsMadeFor(*made, gang))) return alone;
  }
  return {key, std::move(derivation.gang)};
}

void Gangs::ForgetOwner(const kube::Pod& pod) {
  auto it = pods_of_owner_.find(OwnerOf(pod));
  if (it == pods_of_owner_.end()) return;
  it->second.erase(pod.meta.uid);
  if (it->second.empty()) pods_of_owner_.erase(it);
}

const Gang& Gangs::Join(const kube::Pod& pod) {
  Membership membership = MembershipOf(pod);
  const std::string& uid = pod.meta.uid;
  const kube::Pod* known = snapshot_.FindPod(uid);
  if (known != nullptr && known != &pod) ForgetOwner(*known);  // it may have been released
  kube::NamespacedUid owner = OwnerOf(pod);
  if (!owner.uid.empty()) pods_of_owner_[std::move(owner)].insert(uid);
  Gang& gang = GangFor(membership.key);
  const auto it = gang_of_pod_.find(uid);
  if (it == gang_of_pod_.end() || it->second != &gang) {
    gang.pods.insert(uid);
    Detach(uid);
    gang_of_pod_[uid] = &gang;
  }
  if (membership.derived) gang.derived = std::move(membership.derived);
  agenda_->Note(gang.id);
  return gang;
}

void Gangs::Rejoin(const std::string& pod_uid) {
  const kube::Pod* pod = snapshot_.FindPod(pod_uid);
  if (pod == nullptr || !gang_of_pod_.contains(pod_uid)) return;
  Join(*pod);
}

void Gangs::OwnersChanged(const std::vector<kube::NamespacedUid>& owners) {
  for (const kube::NamespacedUid& owner : owners) SyncSpec(owner.uid);
  for (const kube::NamespacedUid& owner : owners) {
    auto it = pods_of_owner_.find(owner);
    if (it == pods_of_owner_.end()) continue;
    const std::vector<std::string> uids(it->second.begin(), it->second.end());
    for (const std::string& uid : uids) Rejoin(uid);
  }
}

void Gangs::ReadOwners(Gang& gang, const std::vector<const kube::Pod*>& live) const {
  gang.missing_owner.reset();
  for (const kube::Pod* pod : live) {
    if (pod->IsBound() || pod->meta.labels.contains(kube::kPodGroupLabel)) continue;
    if (gang.derived && gang.derived->owner.uid.empty()) continue;
    if (const kube::OwnerReference* owner = jobs_.MissingOwner(*pod)) {
      gang.missing_owner = *owner;
      break;
    }
  }
}

void Gangs::ReadQueueLabels(Gang& gang, const std::vector<const kube::Pod*>& live) const {
  if (live.empty() && !gang.unmade) return;
  const auto read = [&](std::string_view key) {
    std::string value = FirstLabel(live, key);
    if (value.empty() && gang.group != nullptr) {
      if (const std::string* label = gang.group->meta.Label(key)) value = *label;
    }
    if (!value.empty()) return value;
    return gang.unmade ? jobs_.LabelOf(gang.spec_of, key) : jobs_.OwnersLabel(*live.front(), key);
  };
  gang.queue_name = read(kube::kQueueLabel);
  gang.priority_class_name = read(kPriorityClassLabel);
  gang.max_seconds = read(kube::kMaxSecondsLabel);
}

// A gang that stands isn't broken by its job being scaled up: what it must have grows with the
// members that stand, and is what the job makes as soon as the gang starts anew.
int64_t Gangs::MinMemberOf(const Gang& gang, int64_t standing) {
  const int64_t have = gang.group == nullptr ? 1 : std::max<int64_t>(1, gang.group->min_member);
  if (!gang.derived) return have;
  if (gang.group != nullptr && !IsMadeFor(*gang.group, *gang.derived)) return have;
  const int64_t want = std::max<int64_t>(1, gang.derived->min_member);
  if (gang.group == nullptr || want <= have || standing < have) return want;
  return std::min(want, standing);
}

Reason Gangs::OwnerBlocker(const Gang& gang, const std::vector<const kube::Pod*>& live) const {
  if (gang.missing_owner) {
    const kube::OwnerReference& owner = *gang.missing_owner;
    const std::string what = fmt::format("{} {}/{} (UID {}), which owns members,", owner.kind,
                                         gang.key.name_space, owner.name, owner.uid);
    if (!kube::IsAnyJob(owner)) {
      return {v1::OWNER_KIND_UNKNOWN,
              fmt::format("{} is of a kind that isn't read ({}), so which of its pods start "
                          "together isn't known",
                          what, owner.api_version),
              fmt::format("on its pod template, set label {}: NAME if they start together, with a "
                          "PodGroup of that name, or annotation {}: \"false\" if each starts alone",
                          kube::kPodGroupLabel, kGangAnnotation)};
    }
    if (!gang.key.is_pod) return {v1::OWNER_NOT_FOUND, what + " isn't known any more", ""};
    return {v1::OWNER_NOT_FOUND, what + " isn't known yet",
            fmt::format("check that {} is served and that muster may list it",
                        kube::ReadVersionOf(owner))};
  }
  if (!gang.derived) return {};
  if (!gang.derived->fault.empty()) {
    return {v1::MEMBER_INVALID, gang.derived->fault, "correct it and create the pods anew"};
  }
  if (gang.group != nullptr && IsLeftOver(*gang.group, *gang.derived)) {
    return {v1::POD_GROUP_INVALID,
            fmt::format(
                "PodGroup {} belongs to an earlier {} of that name (UID {}) and is about to "
                "go with it",
                gang.key.ToString(), gang.derived->owner.kind, gang.group->meta.Controller()->uid),
            fmt::format("delete PodGroup {} if it stays", gang.key.ToString())};
  }
  if (!gang.derived->owner.uid.empty()) return {};
  for (const kube::Pod* pod : live) {
    const std::optional<DerivedGang> own = KueueGroupOf(*pod);
    if (!own || (own->fault.empty() && own->min_member == gang.derived->min_member)) continue;
    return {v1::MEMBERS_DISAGREE,
            own->fault.empty() ? fmt::format("annotation {} of {} is {}, of other members {}",
                                             kube::kKueueTotalCountAnnotation, pod->meta.name,
                                             own->min_member, gang.derived->min_member)
                               : own->fault,
            "give every pod of the group the same total count"};
  }
  return {};
}

// What the jobs of its members make at the same time; nullopt if that can't be told of all.
std::optional<Gangs::AtOnce> Gangs::AtOnceOf(const Gang& gang) const {
  AtOnce all;
  std::set<std::pair<std::string, std::string>> counted;
  for (const kube::Pod* pod : PodsOf(gang)) {
    if (pod->IsDeleting()) continue;
    const std::optional<DerivedGang> made = jobs_.Derive(*pod).gang;
    if (!made || !made->fault.empty()) return std::nullopt;
    if (!counted.emplace(made->owner.uid, made->name).second) continue;
    all.makers.insert(made->maker);
    if (!made->one_by_one.empty()) all.one_by_one = made->one_by_one;
    if (__builtin_add_overflow(all.count, made->at_once, &all.count)) return std::nullopt;
  }
  if (all.makers.empty()) return std::nullopt;
  return all;
}

Reason Gangs::MissingMembers(const Gang& gang, int64_t there) const {
  const int64_t min = gang.facts.min_member;
  const std::string exist = fmt::format("{} of {} members exist", there, min);
  if (const std::optional<AtOnce> at_once = AtOnceOf(gang); at_once && at_once->count < min) {
    const bool own =
        gang.derived && (gang.group == nullptr || IsMadeFor(*gang.group, *gang.derived));
    const bool turns = !at_once->one_by_one.empty();
    return {v1::MIN_MEMBER_UNREACHABLE,
            fmt::format("{}; {} asks for {}, but {} makes {} at a time{}{}", exist,
                        own ? gang.derived->maker : "PodGroup " + gang.key.ToString(), min,
                        fmt::join(at_once->makers, " and "), at_once->count, turns ? ": " : "",
                        at_once->one_by_one),
            turns ? "use podManagementPolicy Parallel, in a new StatefulSet, because that field "
                    "can't be changed"
                  : fmt::format("lower minMember to {} at most, or let the job make more at once",
                                at_once->count)};
  }
  if (!gang.derived) {
    return WithRefusals(gang, exist,
                        {v1::MEMBERS_MISSING, fmt::format("{} (spec.minMember {})", exist, min),
                         "create the missing pods, or lower spec.minMember"});
  }
  const DerivedGang& derived = *gang.derived;
  for (const kube::TemplateScheduler& other : derived.schedulers) {
    if (other.scheduler_name == options_.scheduler_name) continue;
    return {v1::MEMBERS_DISAGREE,
            fmt::format("{}; spec.schedulerName of {}{} is \"{}\", of the gang \"{}\"", exist,
                        derived.maker, other.where.empty() ? "" : ", " + other.where,
                        other.scheduler_name, options_.scheduler_name),
            fmt::format("set schedulerName: {} in every replica type", options_.scheduler_name)};
  }
  if (derived.owner.uid.empty()) {
    return {v1::MEMBERS_MISSING, fmt::format("{} of {}", exist, derived.maker),
            fmt::format("create the missing pods, or lower annotation {} on all of them",
                        kube::kKueueTotalCountAnnotation)};
  }
  const Reason missing = {
      v1::MEMBERS_MISSING,
      fmt::format("{}: {} wants {} and has made {}{}", exist, derived.maker, derived.at_once,
                  gang.members, derived.suspended ? "; it is suspended" : ""),
      fmt::format("look at the Warning events of {} and of the jobs it made", derived.maker)};
  // A suspended job asks for no pods, whatever it was told before.
  return derived.suspended ? missing : WithRefusals(gang, exist, missing);
}

Reason Gangs::GroupPending(const Gang& gang) const {
  if (!gang.derived || gang.group != nullptr) return {};
  const std::string name = gang.key.ToString();
  const std::string& error = group_errors_.Of(gang.id);
  if (error.empty()) {
    return {v1::RECORD_PENDING, fmt::format("PodGroup {} is being created", name), ""};
  }
  return {v1::RECORD_FAILED, fmt::format("PodGroup {} can't be created: {}", name, error),
          "install the PodGroup CRD, and let muster create podgroups"};
}

std::vector<kube::OwnerReference> Gangs::GroupOwners(const Gang& gang) const {
  if (!gang.derived->owner.uid.empty()) return {gang.derived->owner};
  std::vector<kube::OwnerReference> owners;
  for (const kube::Pod* pod : LiveOf(gang)) {
    if (owners.size() == kMaxGroupOwners) break;
    owners.push_back({"v1", "Pod", pod->meta.name, pod->meta.uid, false});
  }
  return owners;
}

void Gangs::KeepGroup(const Gang& gang) {
  if (!gang.derived || !gang.ours || gang.facts.live == 0) return;
  if (gang.missing_owner || !gang.derived->fault.empty()) return;
  const int64_t min = gang.facts.min_member;
  if (gang.group == nullptr) {
    // The pods of a group of plain pods own it together, so they must exist.
    if (gang.derived->owner.uid.empty() && gang.facts.live < min) return;
    outbox_->Act(gang.id, "group/" + gang.key.ToString(),
                 CreatePodGroup{gang.key.name_space, gang.key.name, GroupOwners(gang), min,
                                gang.derived->schedule_timeout_seconds},
                 KeepRefusal(*this, gang.id, &group_errors_));
    return;
  }
  if (!IsMadeFor(*gang.group, *gang.derived) || gang.group->min_member == min) return;
  // Where an operator labels new pods it minds the PodGroup too. Two writers would never come to
  // rest.
  if (std::ranges::any_of(PodsOf(gang), [](const kube::Pod* pod) {
        return pod->meta.labels.contains(kube::kPodGroupLabel);
      })) {
    return;
  }
  const kube::ObjectMeta& meta = gang.group->meta;
  // One at a time with the admission record, which is written to the same object.
  outbox_->Act(gang.id, "record/" + meta.uid, UpdateMinMember{RefOf(meta), min},
               KeepRefusal(*this, gang.id, &group_errors_));
}

}  // namespace muster::coscheduling
