#include "quota/testing/quota_case.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/objects/decode.h"
#include "kube/objects/time_text.h"

namespace muster::quota::testing {
namespace {

using nlohmann::json;

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "quota case: " << what << "\n";
  std::abort();
}

template <typename Object>
Object DecodeObject(json object, const std::string& kind) {
  object["apiVersion"] = kind == "Pod" ? "v1" : "kueue.x-k8s.io/v1beta2";
  object["kind"] = kind;
  const std::string text = object.dump();
  absl::StatusOr<Object> decoded = kube::Decode<Object>(text);
  if (!decoded.ok()) Fail(text + ": " + decoded.status().ToString());
  return *std::move(decoded);
}

template <typename Object>
Object DecodeSound(const json& object, const std::string& kind) {
  auto decoded = DecodeObject<Object>(object, kind);
  if (!decoded.error.empty()) Fail(object.dump() + ": " + decoded.error);
  return decoded;
}

absl::Time Time(const json& workload, const char* field) {
  const auto text = workload.value(field, std::string("2026-01-01T00:00:00Z"));
  const auto time = kube::ReadTimeText(text);
  if (!time) Fail(text + ": not a time");
  return *time;
}

Admission MakeAdmission(const json& from, const Workload& workload) {
  Admission admission;
  admission.cluster_queue = from.at("clusterQueue");
  admission.reserved_at = Time(from, "reservedAt");
  for (size_t i = 0; i < workload.pod_sets.size(); ++i) {
    const PodSet& pod_set = workload.pod_sets[i];
    PodSetAssignment& made = admission.pod_sets.emplace_back();
    made.name = pod_set.name;
    made.count = pod_set.count;
    const json flavors = from.at("podSets")[i].value("flavors", json::object());
    for (const auto& [resource, flavor] : flavors.items()) {
      made.flavors[resource] = flavor;
      made.usage.Set(resource, pod_set.spec->requests.Get(resource) * pod_set.count);
    }
  }
  return admission;
}

const char* ModeName(AssignmentMode mode) {
  switch (mode) {
    case AssignmentMode::kNoFit:
      return "NoFit";
    case AssignmentMode::kPreempt:
      return "Preempt";
    case AssignmentMode::kFit:
      return "Fit";
  }
  return "";
}

json Verdict(const json& result) {
  return {{"mode", result.at("mode")},
          {"borrowing", result.at("borrowing")},
          {"podSets", result.at("podSets")},
          {"victims", result.at("victims")}};
}

}  // namespace

Workload MakeWorkload(const json& from) {
  Workload workload;
  workload.id = from.at("uid");
  workload.name = from.at("name");
  workload.name_space = kNamespace;
  workload.queue = from.at("clusterQueue");
  workload.priority = from.value("priority", 0);
  workload.queued_at = Time(from, "createdAt");
  for (const json& pod_set : from.at("podSets")) {
    json container = {{"name", "main"}};
    container["resources"]["requests"] = pod_set.value("requests", json::object());
    json spec = {{"nodeSelector", pod_set.value("nodeSelector", json::object())},
                 {"tolerations", pod_set.value("tolerations", json::array())},
                 {"affinity", pod_set.value("affinity", json::object())},
                 {"containers", json::array({container})}};
    json pod = {{"metadata", {{"name", "pod"}, {"namespace", kNamespace}}}, {"spec", spec}};
    const auto decoded = DecodeObject<kube::Pod>(pod, "Pod");
    if (!decoded.spec_error.empty()) Fail(pod.dump() + ": " + decoded.spec_error);
    workload.pod_sets.push_back({pod_set.at("name"), pod_set.at("count"), decoded.spec});
  }
  return workload;
}

void UpsertObject(QuotaScheduler& scheduler, const std::string& field, const json& object) {
  if (field == "flavor") {
    scheduler.Upsert(DecodeSound<kube::ResourceFlavor>(object, "ResourceFlavor"));
  } else if (field == "cohort") {
    scheduler.Upsert(DecodeSound<kube::Cohort>(object, "Cohort"));
  } else if (field == "clusterQueue") {
    scheduler.Upsert(DecodeSound<kube::ClusterQueue>(object, "ClusterQueue"));
  } else if (field == "localQueue") {
    json placed = object;
    placed["metadata"]["namespace"] = kNamespace;
    scheduler.Upsert(DecodeSound<kube::LocalQueue>(placed, "LocalQueue"));
  } else {
    Fail(field + ": no field for an object");
  }
}

LoadedCase LoadCase(const json& quota_case) {
  LoadedCase loaded;
  loaded.scheduler = std::make_unique<QuotaScheduler>(
      QuotaOptions{.fair_sharing = quota_case.value("fairSharing", false)});
  QuotaScheduler& scheduler = *loaded.scheduler;
  for (const json& each : quota_case.at("flavors")) UpsertObject(scheduler, "flavor", each);
  for (const json& each : quota_case.at("cohorts")) UpsertObject(scheduler, "cohort", each);
  for (const json& each : quota_case.at("clusterQueues")) {
    UpsertObject(scheduler, "clusterQueue", each);
    const json& name = each.at("metadata").at("name");
    UpsertObject(scheduler, "localQueue",
                 {{"metadata", {{"name", name}}}, {"spec", {{"clusterQueue", name}}}});
  }
  kube::Namespace name_space;
  name_space.meta.name = kNamespace;
  loaded.scheduler->Upsert(std::move(name_space));
  for (const json& each : quota_case.at("admitted")) {
    const Workload workload = MakeWorkload(each);
    loaded.scheduler->SetAdmitted(workload, MakeAdmission(each, workload));
  }
  for (const json& each : quota_case.at("pending")) loaded.pending.push_back(MakeWorkload(each));
  return loaded;
}

json AnswerCase(const json& quota_case, const OwnRules& rules) {
  const LoadedCase loaded = LoadCase(quota_case);
  json results = json::array();
  for (const Workload& workload : loaded.pending) {
    Judgement judgement = Judge::Alone(*loaded.scheduler, workload, {}, rules);
    json pod_sets = json::array();
    for (const PodSetAssignment& each : judgement.pod_sets) {
      json flavors = json::object();
      for (const auto& [resource, flavor] : each.flavors) flavors[resource] = flavor;
      pod_sets.push_back({{"name", each.name}, {"flavors", flavors}});
    }
    std::sort(judgement.victims.begin(), judgement.victims.end(),
              [](const Victim& a, const Victim& b) { return a.id < b.id; });
    json victims = json::array();
    for (const Victim& each : judgement.victims) {
      victims.push_back({{"uid", each.id}, {"reason", KueueReason(each.reason)}});
    }
    results.push_back({{"uid", workload.id},
                       {"mode", ModeName(judgement.mode)},
                       {"borrowing", judgement.borrowing},
                       {"podSets", pod_sets},
                       {"victims", victims}});
  }
  return {{"id", quota_case.at("id")}, {"results", results}};
}

bool Agrees(const json& our_result, const json& their_result) {
  const json verdict = Verdict(our_result);
  if (verdict == Verdict(their_result)) return true;
  const json others = their_result.value("alternatives", json::array());
  return std::ranges::any_of(others, [&](const json& other) { return verdict == Verdict(other); });
}

}  // namespace muster::quota::testing
