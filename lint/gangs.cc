#include "lint/gangs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lint/text.h"

namespace muster::lint {
namespace {

using GroupIndex = std::map<std::pair<std::string_view, std::string_view>, const PodGroup*>;

const PodGroup* FindGroup(const GroupIndex& groups, const LintGang& gang, bool only_part) {
  const auto find = [&](std::string_view name) {
    const auto group = groups.find({gang.workload->name_space, name});
    return group == groups.end() ? nullptr : group->second;
  };
  for (const PodTemplate* pods : gang.templates) {
    if (pods->group.present()) return find(pods->group.value);
  }
  if (!gang.workload->is_gang) return nullptr;
  if (only_part) return find(gang.workload->name);
  return find(Concat(gang.workload->name, "-", gang.templates.front()->role));
}

}  // namespace

std::string LintGang::Name() const {
  std::string name = workload->ToString();
  if (templates.size() != workload->templates.size()) {
    Append(&name, " (", templates.front()->role, ")");
  }
  return name;
}

bool LintGang::IsGang() const {
  return pods > 1 && (workload->is_gang || templates.front()->group.present());
}

bool LintGang::WantsDevices() const {
  return std::ranges::any_of(templates, &PodTemplate::WantsDevices);
}

LocatedCount LintGang::MinMember() const {
  return group != nullptr ? group->min_member : workload->min_available;
}

LocatedCount LintGang::TimeoutSeconds() const {
  return group != nullptr ? group->timeout_seconds : workload->timeout_seconds;
}

const std::string& LintGang::PolicyFile() const {
  return group != nullptr ? group->file : workload->file;
}

std::vector<LintGang> FindGangs(const Manifests& manifests) {
  GroupIndex groups;
  for (const PodGroup& group : manifests.groups) groups[{group.name_space, group.name}] = &group;
  std::vector<LintGang> gangs;
  for (const Workload& workload : manifests.workloads) {
    std::map<int, LintGang> parts;
    for (const PodTemplate& pods : workload.templates) {
      LintGang& part = parts[pods.part];
      part.workload = &workload;
      part.templates.push_back(&pods);
      if (__builtin_add_overflow(part.pods, pods.pods, &part.pods)) part.pods = INT64_MAX;
    }
    for (auto& [number, part] : parts) {
      part.least = workload.elastic ? workload.elastic_least : part.pods;
      part.group = FindGroup(groups, part, parts.size() == 1);
      gangs.push_back(std::move(part));
    }
  }
  return gangs;
}

}  // namespace muster::lint
