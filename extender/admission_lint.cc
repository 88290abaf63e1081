#include "extender/admission_lint.h"

#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "extender/cpu_time.h"

namespace muster::extender {
namespace {

std::optional<lint::PolicyKind> PolicyKindOf(std::string_view kind) {
  if (kind == "nodepools") return lint::PolicyKind::kNodePool;
  if (kind == "resourceflavors") return lint::PolicyKind::kResourceFlavor;
  if (kind == "clusterqueues") return lint::PolicyKind::kClusterQueue;
  if (kind == "localqueues") return lint::PolicyKind::kLocalQueue;
  if (kind == "topologies") return lint::PolicyKind::kTopology;
  if (kind == "podgroups") return lint::PolicyKind::kPodGroup;
  return std::nullopt;
}

std::string NameOf(const kube::ObjectHeader& header) {
  return header.name_space.empty() ? header.name : header.name_space + "/" + header.name;
}

}  // namespace

void AdmissionLint::Upsert(std::string_view kind, const kube::ObjectHeader& header,
                           std::string_view json) {
  if (const auto policy = PolicyKindOf(kind)) known_.Upsert(*policy, NameOf(header), json);
}

void AdmissionLint::Remove(std::string_view kind, const kube::ObjectHeader& header) {
  if (const auto policy = PolicyKindOf(kind)) known_.Remove(*policy, NameOf(header));
}

lint::ObjectLint AdmissionLint::Check(std::string_view name_space, std::string_view json) {
  if (!budget_.Allows(name_space, absl::Now())) return {.findings = {}, .skipped = true};
  const absl::Duration before = ThreadCpuTime();
  lint::ObjectLint found = Look(json);
  budget_.Charge(name_space, ThreadCpuTime() - before, absl::Now());
  return found;
}

lint::ObjectLint AdmissionLint::Look(std::string_view json) const {
  static const auto* nothing = new lint::Manifests;
  if (!whole_()) return lint::LintObject(json, scheduler_name_, *nothing, types_);
  return lint::LintObject(json, scheduler_name_, *known_.All(), types_,
                          [this](std::string_view name_space, std::string_view name) {
                            return known_.MinMember(name_space, name);
                          });
}

}  // namespace muster::extender
