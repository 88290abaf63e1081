#include "kube/simulators/coscheduling_plugin.h"

#include <fmt/format.h>

#include <utility>

#include "kube/objects/well_known.h"

namespace muster::kube::simulators {
namespace {

// "namespace/name"; empty if the pod names no group.
std::string GroupName(const Pod& pod) {
  const std::string* name = pod.meta.Label(kPodGroupLabel);
  if (name == nullptr || name->empty()) return "";
  return pod.meta.name_space + "/" + *name;
}

}  // namespace

CoschedulingPlugin::CoschedulingPlugin(embedded::ApiServer* server, CoschedulingConfig config)
    : config_(config), groups_(server, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups") {}

bool CoschedulingPlugin::Sync() {
  return groups_.Sync([](auto&, const auto*, const auto*) {});
}

void CoschedulingPlugin::OnPod(const std::string& key, const Pod* before, const Pod* now) {
  const std::string group = GroupName(now == nullptr ? *before : *now);
  if (group.empty()) return;
  Members& members = members_[group];
  if (now != nullptr) {
    members.pods.insert(key);
    if (now->IsBound()) members.assigned.insert(key);
    return;
  }
  members.pods.erase(key);
  members.assigned.erase(key);
  members.leaving.erase(key);
  if (members.pods.empty()) members_.erase(group);
}

const PodGroup* CoschedulingPlugin::GroupOf(const Pod& pod) const {
  const auto* entry = groups_.Find(GroupName(pod));
  return entry == nullptr ? nullptr : &entry->object;
}

absl::Duration CoschedulingPlugin::PermitTime(const PodGroup& group) const {
  return group.schedule_timeout_seconds ? absl::Seconds(*group.schedule_timeout_seconds)
                                        : config_.permit_waiting_time;
}

absl::Time CoschedulingPlugin::QueueTime(const Pod& pod, absl::Time first_seen) const {
  const PodGroup* group = GroupOf(pod);
  return group == nullptr ? first_seen : group->meta.creation_time;
}

std::optional<std::string> CoschedulingPlugin::PreFilter(const Pod& pod, SchedulerHandle* handle,
                                                         absl::Time now) {
  const PodGroup* group = GroupOf(pod);
  if (group == nullptr) return std::nullopt;
  const std::string name = GroupName(pod);
  Members& members = members_[name];
  if (now < members.backed_off_until) {
    return fmt::format("podGroup {} failed recently", name);
  }
  if (static_cast<int64_t>(members.pods.size()) < group->min_member) {
    return fmt::format(
        "pre-filter pod {} cannot find enough sibling pods, current pods number: {}, minMember of "
        "group: {}",
        pod.meta.name, members.pods.size(), group->min_member);
  }
  if (!group->min_resources || now < members.checked_until) return std::nullopt;
  ResourceList wanted = *group->min_resources;
  wanted.Set(kPods, group->min_member);
  const ResourceList free = handle->FreeWithout(members.pods);
  if (const ResourceList::Entry* gap = free.FirstShortage(wanted)) {
    return fmt::format("resource gap: {} of {}, {} are free", gap->second, gap->first,
                       free.Get(gap->first));
  }
  members.checked_until = now + config_.permit_waiting_time;
  return std::nullopt;
}

void CoschedulingPlugin::PostFilter(const Pod& pod, SchedulerHandle* handle, absl::Time now) {
  const PodGroup* group = GroupOf(pod);
  if (group == nullptr) return;
  Members& members = members_[GroupName(pod)];
  const int64_t missing = group->min_member - static_cast<int64_t>(members.assigned.size());
  // Others of the group may still make it.
  if (missing * 10 <= group->min_member) return;
  RejectWaiting(&members, "optimistic rejection in PostFilter", handle);
  if (static_cast<int64_t>(members.pods.size()) >= group->min_member &&
      members.backed_off_until <= now) {
    members.backed_off_until = now + config_.pod_group_backoff;
  }
  members.checked_until = absl::InfinitePast();
}

PermitVerdict CoschedulingPlugin::Permit(const Pod& pod, SchedulerHandle* handle) {
  using Kind = PermitVerdict::Kind;
  const std::string name = GroupName(pod);
  if (name.empty()) return {};
  const PodGroup* group = GroupOf(pod);
  if (group == nullptr) return {.kind = Kind::kReject, .message = "PodGroup not found"};
  Members& members = members_[name];
  if (!members.leaving.empty()) {
    return {.kind = Kind::kReject, .message = "rejected with its group"};
  }
  members.assigned.insert(pod.meta.FullName());
  if (static_cast<int64_t>(members.assigned.size()) >= group->min_member) {
    for (const std::string& member : members.assigned) handle->Allow(member);
    return {};
  }
  if (members.assigned.size() == 1) {
    for (const std::string& member : members.pods) {
      if (member != pod.meta.FullName()) handle->Activate(member);
    }
  }
  return {.kind = Kind::kWait, .wait = PermitTime(*group)};
}

void CoschedulingPlugin::Unreserve(const Pod& pod, SchedulerHandle* handle) {
  if (GroupOf(pod) == nullptr) return;
  Members& members = members_[GroupName(pod)];
  members.assigned.erase(pod.meta.FullName());
  members.leaving.erase(pod.meta.FullName());
  RejectWaiting(&members, "rejection in Unreserve", handle);
  members.checked_until = absl::InfinitePast();
}

void CoschedulingPlugin::RejectWaiting(Members* members, const std::string& message,
                                       SchedulerHandle* handle) {
  for (const std::string& member : members->assigned) {
    if (handle->Reject(member, message)) members->leaving.insert(member);
  }
}

}  // namespace muster::kube::simulators
