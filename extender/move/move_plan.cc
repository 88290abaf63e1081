#include "extender/move/move_plan.h"

#include <algorithm>
#include <utility>

#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/any_job.h"
#include "kube/objects/excerpt.h"
#include "kube/objects/quota.h"
#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"
#include "quota/pod_sets.h"

namespace muster::extender {
namespace {

using nlohmann::json;

constexpr std::string_view kLeaseName = "c1f6bfd2.kueue.x-k8s.io";
constexpr std::string_view kManagedLabel = "kueue.x-k8s.io/managed";
constexpr std::string_view kPodFinalizer = "kueue.x-k8s.io/managed";
constexpr std::string_view kGroupAnnotation = "kueue.x-k8s.io/is-group-workload";
constexpr std::string_view kRoleHashAnnotation = "kueue.x-k8s.io/role-hash";
constexpr std::string_view kGatePrefix = "kueue.x-k8s.io/";
constexpr std::string_view kWorkloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/";
constexpr size_t kNamed = 5;  // of many

std::string Names(const std::vector<std::string>& all) { return kube::FirstFew(all, kNamed); }

bool HoldsQuota(const json& workload) {
  return IsTrue(workload, "QuotaReserved") && !IsTrue(workload, "Finished");
}

std::string ControllerUid(const json& object) {
  const json* owner = ControllerOf(object);
  return owner == nullptr ? "" : Text(*owner, {"uid"});
}

bool IsOfGroup(const json& workload) {
  return Text(workload, {"metadata", "annotations", kGroupAnnotation}) == "true";
}

// Whose it is; "group of pods" of what Kueue has all of its pods own.
std::string KindOf(const json& workload) {
  if (IsOfGroup(workload)) return "group of pods";
  const json* owner = ControllerOf(workload);
  return owner == nullptr ? "nothing" : Text(*owner, {"kind"});
}

bool IsRead(const json& workload) {
  const json* owner = ControllerOf(workload);
  if (owner == nullptr) return IsOfGroup(workload);
  const std::string kind = Text(*owner, {"kind"});
  return kind == "Pod" || kind == "PodGroup" ||
         kube::IsAnyJob({Text(*owner, {"apiVersion"}), kind, "", "", true});
}

// Whether some of its pods name this scheduler.
bool NamesScheduler(const json& workload, const std::string& scheduler) {
  return Any(At(workload, {"spec", "podSets"}), [&](const json& set) {
    return Text(set, {"template", "spec", "schedulerName"}) == scheduler;
  });
}

json Body(json metadata) {
  json body = json::object();
  body["metadata"] = std::move(metadata);
  return body;
}

std::string WorkloadPath(const json& workload) {
  return fmt::format("{}{}/workloads/{}", kWorkloads, NamespaceOf(workload), NameOf(workload));
}

std::string PodPath(const json& pod) {
  return fmt::format("/api/v1/namespaces/{}/pods/{}", NamespaceOf(pod), NameOf(pod));
}

// Of the very object that was looked at, in a merge and in a JSON patch.
json Identity(const json& object) {
  json metadata = json::object();
  metadata["uid"] = UidOf(object);
  return metadata;
}
json TestUid(const json& object) {
  return {{"op", "test"}, {"path", "/metadata/uid"}, {"value", UidOf(object)}};
}

void AddDeployments(const MoveObjects& objects, std::string_view list, std::string_view what,
                    MovePlan* plan) {
  for (const json& each : objects.of(list)) {
    const int64_t replicas = ReplicasOf(each);
    if (replicas == 0) continue;
    plan->by_hand.push_back(
        fmt::format("{} still runs: Deployment {} has {} replicas\n"
                    "kubectl -n {} scale deployment {} --replicas=0",
                    what, FullName(each), replicas, NamespaceOf(each), NameOf(each)));
  }
}

// --- in ---

void AddLease(const MoveObjects& objects, absl::Time now, MovePlan* plan) {
  for (const json& each : objects.of("leases")) {
    if (NameOf(each) != kLeaseName) continue;
    const std::optional<std::string> held = HeldSince(each, now);
    if (!held) continue;
    plan->by_hand.push_back(fmt::format("Kueue is alive: {}; wait until it has ended", *held));
  }
}

bool CallsNamespace(const json& webhooks, const std::string& name_space) {
  return Any(webhooks, [&](const json& each) {
    return Text(each, {"clientConfig", "service", "namespace"}) == name_space;
  });
}

void AddWebhooks(const MoveObjects& objects, const std::string& name_space, MovePlan* plan) {
  for (const char* kind : {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}) {
    for (const json& each : objects.of(kind)) {
      if (!CallsNamespace(At(each, {"webhooks"}), name_space)) continue;
      plan->by_hand.push_back(
          fmt::format("{} call a Service of {}, and refuse everything while nothing answers\n"
                      "kubectl delete {} {}",
                      kind, name_space, kind, NameOf(each)));
    }
  }
}

void AddConversions(const MoveObjects& objects, MovePlan* plan) {
  std::vector<std::string> names;
  for (const json& each : objects.of("customresourcedefinitions")) {
    if (Text(each, {"spec", "group"}) != "kueue.x-k8s.io") continue;
    if (Text(each, {"spec", "conversion", "strategy"}) != "Webhook") continue;
    names.push_back(NameOf(each));
  }
  if (names.empty()) return;
  // All of them, as they can be pasted.
  plan->by_hand.push_back(fmt::format(
      "{} definitions have Kueue convert their versions; keep them, and set conversion to None\n"
      "kubectl patch crd {} --type=json "
      R"(--patch='[{{"op":"replace","path":"/spec/conversion","value":{{"strategy":"None"}}}}]')",
      names.size(), fmt::join(names, " ")));
}

void AddApiServices(const MoveObjects& objects, MovePlan* plan) {
  for (const json& each : objects.of("apiservices")) {
    if (Text(each, {"spec", "group"}) != "visibility.kueue.x-k8s.io") continue;
    if (At(each, {"spec", "service"}).is_null()) continue;
    plan->by_hand.push_back(
        fmt::format("{} is answered by Kueue alone; kubectl and kueuectl fail on it\n"
                    "kubectl delete apiservice {}",
                    NameOf(each), NameOf(each)));
  }
}

// Gates and finalizers of Kueue's on pods, which nobody takes away any more.
void AddPods(const MoveObjects& objects, const MoveSettings& settings, MovePlan* plan) {
  MovePlan::Fix finalizers;
  MovePlan::Fix gates;
  std::vector<std::string> stuck;
  for (const json& pod : objects.of("pods")) {
    const json& have = At(pod, {"metadata", "finalizers"});
    for (size_t i = 0; have.is_array() && i < have.size(); ++i) {
      if (!have[i].is_string() || have[i].get_ref<const std::string&>() != kPodFinalizer) continue;
      const std::string path = fmt::format("/metadata/finalizers/{}", i);
      json test = {{"op", "test"}, {"path", path}, {"value", kPodFinalizer}};
      json remove = {{"op", "remove"}, {"path", path}};
      finalizers.requests.push_back(
          PatchOf(PodPath(pod), kube::kJsonPatch,
                  json::array({TestUid(pod), std::move(test), std::move(remove)})));
    }
    const json& gated = At(pod, {"spec", "schedulingGates"});
    if (!gated.is_array()) continue;
    json operations = json::array({TestUid(pod)});
    bool ours = false;
    json removals = json::array();
    for (size_t i = gated.size(); i-- > 0;) {
      const std::string name = Text(gated[i], {"name"});
      ours |= name == coscheduling::kGate;
      if (!name.starts_with(kGatePrefix)) continue;
      const std::string path = fmt::format("/spec/schedulingGates/{}", i);
      removals.push_back({{"op", "test"}, {"path", path + "/name"}, {"value", name}});
      removals.push_back({{"op", "remove"}, {"path", path}});
    }
    if (removals.empty()) continue;
    if (!ours || Text(pod, {"spec", "schedulerName"}) != settings.scheduler_name) {
      stuck.push_back(FullName(pod));
      continue;
    }
    for (json& each : removals) operations.push_back(std::move(each));
    gates.requests.push_back(PatchOf(PodPath(pod), kube::kJsonPatch, operations));
  }
  if (!gates.requests.empty()) {
    gates.what = fmt::format("take Kueue's gate off {} pods that wait; Muster's own keeps them",
                             gates.requests.size());
    plan->fixes.push_back(std::move(gates));
  }
  if (!finalizers.requests.empty()) {
    finalizers.what =
        fmt::format("take finalizer {} off {} pods", kPodFinalizer, finalizers.requests.size());
    plan->fixes.push_back(std::move(finalizers));
  }
  if (!stuck.empty()) {
    plan->notes.push_back(fmt::format(
        "{} pods wait behind Kueue's gate and not behind Muster's; nobody starts them: create them "
        "anew with schedulerName {} ({})",
        stuck.size(), settings.scheduler_name, Names(stuck)));
  }
}

void NoteWorkloads(const MoveObjects& objects, const MoveSettings& settings, MovePlan* plan) {
  std::map<std::string, int64_t> held;
  std::map<std::string, std::vector<std::string>> unread;
  std::vector<std::string> others;
  for (const json& workload : objects.of("workloads")) {
    if (IsTrue(workload, "Finished")) continue;
    if (!IsRead(workload)) unread[KindOf(workload)].push_back(FullName(workload));
    if (HoldsQuota(workload)) {
      ++held[KindOf(workload)];
      continue;
    }
    if (!NamesScheduler(workload, settings.scheduler_name)) others.push_back(FullName(workload));
  }
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : held) kinds.push_back(fmt::format("{} {}", kind, count));
  if (!kinds.empty()) {
    plan->notes.push_back(
        fmt::format("what holds quota goes on and is counted, whoever schedules its pods: {}",
                    fmt::join(kinds, ", ")));
  }
  for (const auto& [kind, names] : unread) {
    plan->notes.push_back(
        fmt::format("{} Workloads are of kind {}, which Muster doesn't read: those that hold quota "
                    "are counted until their owner is deleted, and none is started ({})",
                    names.size(), kind, Names(names)));
  }
  if (!others.empty()) {
    plan->notes.push_back(
        fmt::format("{} Workloads wait whose pods name another scheduler; Muster starts none of "
                    "them: create their jobs anew with schedulerName {} ({})",
                    others.size(), settings.scheduler_name, Names(others)));
  }
}

// --- out ---

// Pods by the Workload that they are of: by its owner, however many jobs are between.
class Standing {
 public:
  explicit Standing(const MoveObjects& objects) {
    std::map<std::string, std::string> parents;
    for (const char* list : {"jobs", "jobsets", "rayclusters"}) {
      for (const json& each : objects.of(list)) parents[UidOf(each)] = ControllerUid(each);
    }
    for (const json& pod : objects.of("pods")) {
      by_uid_[UidOf(pod)] = &pod;
      if (!IsOn(pod)) continue;
      std::string owner = ControllerUid(pod);
      for (int depth = 0; !owner.empty() && depth < 8; ++depth) {
        of_owner_[owner].push_back(&pod);
        const auto parent = parents.find(owner);
        owner = parent == parents.end() ? "" : parent->second;
      }
      for (const char* label :
           {"scheduling.x-k8s.io/pod-group", static_cast<const char*>(kube::kKueueGroupLabel)}) {
        const std::string group = Text(pod, {"metadata", "labels", label});
        if (!group.empty()) of_group_[NamespaceOf(pod) + "/" + group].push_back(&pod);
      }
    }
  }

  // On nodes, and not ended.
  std::vector<const json*> Of(const json& workload) const {
    if (IsOfGroup(workload)) return Found(of_group_, FullName(workload));
    const json* owner = ControllerOf(workload);
    if (owner == nullptr) return {};
    const std::string uid = Text(*owner, {"uid"});
    if (Text(*owner, {"kind"}) == "PodGroup") {
      return Found(of_group_, NamespaceOf(workload) + "/" + Text(*owner, {"name"}));
    }
    const auto pod = by_uid_.find(uid);
    if (pod == by_uid_.end()) return Found(of_owner_, uid);
    return IsOn(*pod->second) ? std::vector{pod->second} : std::vector<const json*>();
  }

 private:
  static bool IsOn(const json& pod) {
    const std::string phase = Text(pod, {"status", "phase"});
    return !Text(pod, {"spec", "nodeName"}).empty() && phase != "Succeeded" && phase != "Failed";
  }
  static std::vector<const json*> Found(const std::map<std::string, std::vector<const json*>>& from,
                                        const std::string& key) {
    const auto it = from.find(key);
    return it == from.end() ? std::vector<const json*>() : it->second;
  }

  std::map<std::string, const json*> by_uid_;
  std::map<std::string, std::vector<const json*>> of_owner_;
  std::map<std::string, std::vector<const json*>> of_group_;
};

// `metadata`: its name and namespace, and a UID where it must be that one.
kube::Request SetCondition(json metadata, std::string_view manager, std::string_view type,
                           std::string_view reason, std::string_view message, absl::Time now) {
  const std::string path = fmt::format("{}{}/workloads/{}/status", kWorkloads,
                                       Text(metadata, {"namespace"}), Text(metadata, {"name"}));
  json condition = {{"type", type},
                    {"status", "True"},
                    {"reason", reason},
                    {"message", message},
                    {"lastTransitionTime", kube::TimeText(now)}};
  json body = {{"apiVersion", "kueue.x-k8s.io/v1beta2"}, {"kind", "Workload"}};
  body["metadata"] = std::move(metadata);
  body["status"]["conditions"] = json::array({std::move(condition)});
  kube::Request request = PatchOf(path, kube::kApplyPatch, body);
  request.query = {{"fieldManager", std::string(manager)}, {"force", "true"}};
  return request;
}

json Named(const json& object) {
  json metadata = Identity(object);
  metadata["name"] = NameOf(object);
  metadata["namespace"] = NamespaceOf(object);
  return metadata;
}

kube::Request SetReady(json metadata, absl::Time now) {
  return SetCondition(std::move(metadata), "kueue-job-controller", "PodsReady", "Started",
                      "Its pods ran before Kueue came", now);
}

bool IsManaged(const json& pod) {
  return Text(pod, {"metadata", "labels", kManagedLabel}) == "true";
}

// Has Kueue look at the pod, as one of this pod set of a group, unless that is empty.
kube::Request Manage(const json& pod, const std::string& pod_set) {
  json metadata = Identity(pod);
  metadata["labels"][kManagedLabel] = "true";
  if (!pod_set.empty()) metadata["annotations"][kRoleHashAnnotation] = pod_set;
  return PatchOf(PodPath(pod), kube::kMergePatch, Body(std::move(metadata)));
}

// Kueue looks at labelled pods alone, and deletes those whose Workload has other containers.
void HandOverPod(const json& workload, const json& pod, MovePlan::Fix* fix) {
  if (IsManaged(pod)) {
    const json& sets = At(workload, {"spec", "podSets"});
    const json& spec = sets.is_array() && !sets.empty() ? At(sets[0], {"template", "spec"}) : sets;
    if (At(spec, {"containers"}) == At(pod, {"spec", "containers"}) &&
        At(spec, {"initContainers"}) == At(pod, {"spec", "initContainers"})) {
      return;
    }
  }
  json spec = At(pod, {"spec"});
  for (const char* given : {"nodeName", "schedulingGates"}) spec.erase(given);
  json replace = {{"op", "replace"}, {"path", "/spec/podSets/0/template/spec"}};
  replace["value"] = std::move(spec);
  fix->requests.push_back(PatchOf(WorkloadPath(workload), kube::kJsonPatch,
                                  json::array({TestUid(workload), std::move(replace)})));
  if (!IsManaged(pod)) fix->requests.push_back(Manage(pod, ""));
}

// Kueue tells the pods of a group apart by an annotation, which says which pod set each is in.
void NameMembers(const json& workload, const std::vector<const json*>& pods, MovePlan::Fix* fix) {
  const json& sets = At(workload, {"spec", "podSets"});
  for (const json* pod : pods) {
    const std::string set = Text(*pod, {"metadata", "annotations", quota::kPodSetAnnotation});
    const bool in_it = Any(sets, [&](const json& each) { return Text(each, {"name"}) == set; });
    const bool named = Text(*pod, {"metadata", "annotations", kRoleHashAnnotation}) == set;
    if (in_it && !(named && IsManaged(*pod))) fix->requests.push_back(Manage(*pod, set));
  }
}

// A Workload as Kueue has it for a group of plain pods, in place of the one of Muster's PodGroup.
// That one goes last: whoever ends in between leaves both, and the next run ends it. Pods that run
// without any Kueue would delete.
bool HandOverGroup(const json& workload, const std::vector<const json*>& pods, absl::Time now,
                   MovePlan::Fix* fix) {
  json owners = json::array();
  std::string group;
  for (const json* pod : pods) {
    group = Text(*pod, {"metadata", "labels", kube::kKueueGroupLabel});
    if (group.empty()) return false;
    owners.push_back(
        {{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", NameOf(*pod)}, {"uid", UidOf(*pod)}});
  }
  json spec = At(workload, {"spec"});
  json metadata = {{"name", group},
                   {"namespace", NamespaceOf(workload)},
                   {"annotations", {{kGroupAnnotation, "true"}}},
                   {"finalizers", json::array({kube::kInUseFinalizer})},
                   {"ownerReferences", std::move(owners)}};
  json made = {{"apiVersion", "kueue.x-k8s.io/v1beta2"},
               {"kind", "Workload"},
               {"metadata", std::move(metadata)},
               {"spec", std::move(spec)}};
  const std::string all = fmt::format("{}{}/workloads", kWorkloads, NamespaceOf(workload));
  kube::Request create;
  create.method = kube::Method::kPost;
  create.path = all;
  create.content_type = kube::kJson;
  create.body = made.dump();
  fix->requests.push_back(std::move(create));
  made.erase("spec");
  made["metadata"] = {{"name", group}, {"namespace", NamespaceOf(workload)}};
  made["status"] = {{"admission", At(workload, {"status", "admission"})},
                    {"conditions", At(workload, {"status", "conditions"})}};
  kube::Request status = PatchOf(all + "/" + group + "/status", kube::kApplyPatch, made);
  status.query = {{"fieldManager", "kueue-admission"}, {"force", "true"}};
  fix->requests.push_back(std::move(status));
  fix->requests.push_back(SetReady({{"name", group}, {"namespace", NamespaceOf(workload)}}, now));
  NameMembers(workload, pods, fix);
  json ended = Identity(workload);
  ended["finalizers"] = nullptr;
  fix->requests.push_back(
      PatchOf(WorkloadPath(workload), kube::kMergePatch, Body(std::move(ended))));
  kube::Request remove;
  remove.method = kube::Method::kDelete;
  remove.path = WorkloadPath(workload);
  fix->requests.push_back(std::move(remove));
  return true;
}

void AddMuster(const MoveObjects& objects, const MoveSettings& settings, MovePlan* plan) {
  AddDeployments(objects, "muster deployments", "Muster", plan);
  const auto add = [&](const char* kind, const char* name, const std::string& what) {
    if (!std::ranges::any_of(objects.of(kind),
                             [&](const json& each) { return NameOf(each) == name; }))
      return;
    plan->by_hand.push_back(fmt::format("{}\nkubectl delete {} {}", what, kind, name));
  };
  add("mutatingwebhookconfigurations", "muster-admission",
      fmt::format("Muster's webhook is registered; pods of schedulerName {} are refused while it "
                  "doesn't answer",
                  settings.scheduler_name));
  add("validatingwebhookconfigurations", "muster-warnings",
      "Muster's warnings are registered; they stop nobody, but writes may wait for them");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ListsToMove(const MoveSettings& settings) {
  const auto deployments = [](const std::string& name_space) {
    return "/apis/apps/v1/namespaces/" + name_space + "/deployments";
  };
  const std::string webhooks = "/apis/admissionregistration.k8s.io/v1/";
  return {
      {"kueue deployments", deployments(settings.kueue_namespace)},
      {"muster deployments", deployments(settings.muster_namespace)},
      {"leases", "/apis/coordination.k8s.io/v1/namespaces/" + settings.kueue_namespace + "/leases"},
      {"mutatingwebhookconfigurations", webhooks + "mutatingwebhookconfigurations"},
      {"validatingwebhookconfigurations", webhooks + "validatingwebhookconfigurations"},
      {"customresourcedefinitions", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"},
      {"apiservices", "/apis/apiregistration.k8s.io/v1/apiservices"},
      {"workloads", "/apis/kueue.x-k8s.io/v1beta2/workloads"},
      {"jobs", "/apis/batch/v1/jobs"},
      {"jobsets", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"},
      {"rayclusters", "/apis/ray.io/v1/rayclusters"},
      {"pods", "/api/v1/pods"},
  };
}

MovePlan PlanMoveIn(const MoveObjects& objects, const MoveSettings& settings, absl::Time now) {
  MovePlan plan;
  AddDeployments(objects, "kueue deployments", "Kueue", &plan);
  AddLease(objects, now, &plan);
  AddWebhooks(objects, settings.kueue_namespace, &plan);
  AddConversions(objects, &plan);
  AddApiServices(objects, &plan);
  AddPods(objects, settings, &plan);
  NoteWorkloads(objects, settings, &plan);
  return plan;
}

MovePlan PlanMoveOut(const MoveObjects& objects, const MoveSettings& settings, absl::Time now) {
  MovePlan plan;
  AddMuster(objects, settings, &plan);
  const Standing standing(objects);
  MovePlan::Fix ready;
  MovePlan::Fix evicted;
  MovePlan::Fix pods;
  MovePlan::Fix groups;
  size_t group_count = 0;
  std::map<std::string, std::vector<std::string>> foreign;
  std::vector<std::string> later;
  for (const json& workload : objects.of("workloads")) {
    if (IsTrue(workload, "Finished")) continue;
    const std::string kind = KindOf(workload);
    const std::vector<const json*> on_nodes = standing.Of(workload);
    // Of those that run it is so too, should Kueue evict them.
    if (on_nodes.empty() && kind != "Pod" && kind != "PodGroup" && !IsOfGroup(workload) &&
        NamesScheduler(workload, settings.scheduler_name)) {
      later.push_back(FullName(workload));
    }
    if (!HoldsQuota(workload)) continue;
    if (kind == "PodGroup" && !on_nodes.empty() &&
        HandOverGroup(workload, on_nodes, now, &groups)) {
      ++group_count;
      continue;
    }
    if (kind == "PodGroup") {
      foreign[kind].push_back(FullName(workload));
      continue;
    }
    if (on_nodes.empty()) {
      if (IsTrue(workload, "Evicted")) continue;
      evicted.requests.push_back(SetCondition(Named(workload), "muster-move", "Evicted",
                                              "Preempted",
                                              "It had quota of Muster's and no node yet", now));
      continue;
    }
    if (kind == "Pod") HandOverPod(workload, *on_nodes.front(), &pods);
    if (IsOfGroup(workload)) NameMembers(workload, on_nodes, &pods);
    if (!IsTrue(workload, "PodsReady")) ready.requests.push_back(SetReady(Named(workload), now));
  }
  const auto add = [&plan](MovePlan::Fix* fix, std::string what) {
    if (fix->requests.empty()) return;
    fix->what = std::move(what);
    plan.fixes.push_back(std::move(*fix));
  };
  add(&groups, fmt::format("give {} groups of plain pods a Workload in Kueue's form", group_count));
  add(&pods, "hand plain pods that run over to Kueue: its labels, and Workloads that fit them");
  add(&evicted, fmt::format("mark {} Workloads evicted that have quota and no pod on a node; Kueue "
                            "stops and queues them",
                            evicted.requests.size()));
  add(&ready, fmt::format("set condition PodsReady on {} Workloads that run, so that "
                          "waitForPodsReady evicts none",
                          ready.requests.size()));
  for (const auto& [kind, names] : foreign) {
    plan.notes.push_back(fmt::format(
        "{} Workloads are of kind {}, for which Kueue has no integration: it counts them for ever; "
        "wait for their end before, or take finalizer {} off them ({})",
        names.size(), kind, kube::kInUseFinalizer, Names(names)));
  }
  plan.notes.push_back(
      "Kueue takes up only kinds that are in integrations.frameworks of its configuration: enable "
      "those that run here before it starts");
  if (!later.empty()) {
    plan.notes.push_back(fmt::format(
        "{} Workloads wait whose pods name scheduler {}; Kueue starts them and nobody places them: "
        "start Muster again with quota: kueue once Kueue runs, or create their jobs anew ({})",
        later.size(), settings.scheduler_name, Names(later)));
  }
  std::vector<std::string> gated;
  for (const json& pod : objects.of("pods")) {
    const json& gates = At(pod, {"spec", "schedulingGates"});
    const bool ours =
        Any(gates, [](const json& gate) { return Text(gate, {"name"}) == coscheduling::kGate; });
    if (ours && ControllerOf(pod) == nullptr) gated.push_back(FullName(pod));
  }
  if (!gated.empty()) {
    plan.notes.push_back(
        fmt::format("{} plain pods wait behind Muster's gate, which nobody lifts any more: create "
                    "them anew ({})",
                    gated.size(), Names(gated)));
  }
  return plan;
}

}  // namespace muster::extender
