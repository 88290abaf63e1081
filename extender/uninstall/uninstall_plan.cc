#include "extender/uninstall/uninstall_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_replace.h"
#include "cluster/suspect_nodes.h"
#include "coscheduling/actions.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/any_job.h"
#include "kube/objects/decode.h"
#include "kube/objects/excerpt.h"
#include "kube/objects/job_restart.h"
#include "kube/objects/node_holds.h"
#include "kube/objects/well_known.h"
#include "quota/flavor_terms.h"
#include "quota/job_start.h"
#include "quota/pod_sets.h"
#include "quota/workload_status.h"
#include "writes/action_requests.h"

namespace muster::extender {
namespace {

using coscheduling::Action;
using nlohmann::json;
using Waiting = UninstallSettings::Waiting;

constexpr size_t kNamed = 5;  // of many
constexpr std::string_view kPartOf = "app.kubernetes.io/part-of";
constexpr std::string_view kKueueLease = "c1f6bfd2.kueue.x-k8s.io";
constexpr std::string_view kOwnLease = "muster";
constexpr const char* kWhy = "Muster is being uninstalled";

// As the chart makes it; aggregated/api_resources.h.
constexpr const char* kApiService = "v1beta1.visibility.muster.dev";

// On pods, PodGroups, jobs and Workloads: what deploy/policies/state.yaml keeps from others.
constexpr std::array kStateAnnotations = {
    coscheduling::kRecordAnnotation, coscheduling::kEpochAnnotation, coscheduling::kWakeAnnotation,
    quota::kPodSetAnnotation,        quota::kFlavorsAnnotation,      coscheduling::kZoneAnnotation,
    quota::kQueueAnnotation,         kube::kTriedAnnotation,         quota::kLeaderAnnotation,
    quota::kOwnerAnnotation};
constexpr std::array kNodeAnnotations = {kube::kHoldsAnnotation, kube::kHoldAddedAnnotation,
                                         cluster::kSuspectAnnotation};

struct JobList {
  const char* name;
  const char* path;
};
constexpr std::array kJobLists = {
    JobList{"jobs", "/apis/batch/v1/jobs"},
    JobList{"jobsets", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"},
    JobList{"pytorchjobs", "/apis/kubeflow.org/v1/pytorchjobs"},
    JobList{"mpijobs", "/apis/kubeflow.org/v2beta1/mpijobs"},
    JobList{"trainjobs", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"},
    JobList{"rayclusters", "/apis/ray.io/v1/rayclusters"},
    JobList{"rayjobs", "/apis/ray.io/v1/rayjobs"},
    JobList{"statefulsets", "/apis/apps/v1/statefulsets"}};
constexpr std::array kQueueLists = {"clusterqueues", "resourceflavors"};

std::string Names(const std::vector<std::string>& all) { return kube::FirstFew(all, kNamed); }

bool HasAnnotation(const json& object, std::string_view key) {
  return !At(object, {"metadata", "annotations", key}).is_null();
}

template <typename Keys>
bool HasAny(const json& object, const Keys& keys) {
  return std::ranges::any_of(keys, [&](auto key) { return HasAnnotation(object, key); });
}

bool IsOurs(const json& object) {
  return Text(object, {"metadata", "labels", kPartOf}) == "muster";
}

bool HasFinalizer(const json& object) {
  return Any(At(object, {"metadata", "finalizers"}), [](const json& each) {
    return each.is_string() && each.get_ref<const std::string&>() == kube::kInUseFinalizer;
  });
}

bool IsGated(const json& pod) {
  return Any(At(pod, {"spec", "schedulingGates"}),
             [](const json& gate) { return Text(gate, {"name"}) == coscheduling::kGate; });
}

// And Muster has it ask, or has kube-scheduler say so: another scheduler may have taken the name.
bool AsksForNode(const json& pod) {
  if (!Text(pod, {"spec", "nodeName"}).empty()) return false;
  return Any(At(pod, {"status", "conditions"}), [&](const json& each) {
    return Text(each, {"type"}) == "PodScheduled" && Text(each, {"status"}) == "False" &&
           Text(each, {"reason"}) == "Unschedulable" &&
           (IsGated(pod) || HasAny(pod, kStateAnnotations) ||
            Text(each, {"message"}).find("gang ") != std::string::npos);
  });
}

coscheduling::ObjectRef RefTo(const json& object) {
  return {NamespaceOf(object), NameOf(object), UidOf(object),
          Text(object, {"metadata", "resourceVersion"})};
}

kube::Request RequestOf(const Action& action, absl::Time now) {
  return writes::ToRequest(action, now)->request;
}

std::string PathOf(std::string_view list_path, const json& object) {
  const std::string name_space = NamespaceOf(object);
  if (name_space.empty() || list_path.find("/namespaces/") != std::string_view::npos) {
    return fmt::format("{}/{}", list_path, NameOf(object));
  }
  const size_t slash = list_path.rfind('/');
  return fmt::format("{}/namespaces/{}{}/{}", list_path.substr(0, slash), name_space,
                     list_path.substr(slash), NameOf(object));
}

// `exactly`: nobody has changed it since it was looked at.
kube::Request Delete(std::string_view list_path, const json& object, bool exactly = false) {
  json preconditions = {{"uid", UidOf(object)}};
  if (exactly) preconditions["resourceVersion"] = Text(object, {"metadata", "resourceVersion"});
  kube::Request request;
  request.method = kube::Method::kDelete;
  request.path = PathOf(list_path, object);
  request.content_type = kube::kJson;
  request.body = json{{"apiVersion", "v1"},
                      {"kind", "DeleteOptions"},
                      {"preconditions", std::move(preconditions)}}
                     .dump();
  return request;
}

kube::Request Merge(std::string_view list_path, const json& object, json metadata) {
  metadata["uid"] = UidOf(object);
  json body = json::object();
  body["metadata"] = std::move(metadata);
  return PatchOf(PathOf(list_path, object), kube::kMergePatch, body);
}

const std::string& PathOfList(const std::vector<ListToRead>& lists, std::string_view name) {
  return std::ranges::find(lists, name, &ListToRead::name)->path;
}

template <typename T>
std::optional<kube::AnyJob> DecodeAs(const std::string& text) {
  absl::StatusOr<T> job = kube::Decode<T>(text);
  if (!job.ok()) return std::nullopt;
  return kube::ToAnyJob(*job);
}

std::optional<kube::AnyJob> JobOf(std::string_view list, const json& object) {
  const std::string text = object.dump();
  if (list == "jobs") return DecodeAs<kube::Job>(text);
  if (list == "jobsets") return DecodeAs<kube::JobSet>(text);
  if (list == "pytorchjobs") return DecodeAs<kube::PyTorchJob>(text);
  if (list == "mpijobs") return DecodeAs<kube::MPIJob>(text);
  if (list == "trainjobs") return DecodeAs<kube::TrainJob>(text);
  if (list == "rayclusters") return DecodeAs<kube::RayCluster>(text);
  if (list == "rayjobs") return DecodeAs<kube::RayJob>(text);
  return std::nullopt;  // can't be suspended
}

std::optional<kube::Workload> WorkloadOf(const json& object) {
  absl::StatusOr<kube::Workload> workload = kube::Decode<kube::Workload>(object.dump());
  if (!workload.ok()) return std::nullopt;
  return *std::move(workload);
}

// One that ran, and that Muster stopped of its own: nobody else will resume it.
bool IsEvicted(const kube::Workload& workload) {
  if (!workload.active || !workload.evicted || workload.finished) return false;
  const auto evicted = workload.conditions.find("Evicted");
  const bool by_queue =
      evicted != workload.conditions.end() && evicted->second.reason.ends_with("QueueStopped");
  return !by_queue && !quota::KeeperOf(workload).empty();
}

class Planner {
 public:
  Planner(const ClusterObjects& objects, const UninstallSettings& settings, absl::Time now)
      : objects_(objects), settings_(settings), now_(now), lists_(ListsToUninstall(settings)) {}

  ChangePlan Plan() {
    LookForKueue();
    ReadJobs();
    Webhooks();
    ApiServices();
    Running();
    Undecided();
    Signals();
    Nodes();
    GivenBackToKueue();
    if (lifts_) {
      Jobs();
      Gates();
    }
    Finalizers();
    if (lifts_) State();
    Policies();
    Leases();
    Notes();
    return std::move(plan_);
  }

 private:
  struct ToResume {
    kube::AnyJob job;
    bool marked = false;
    bool resume = false;
    std::vector<quota::TemplateChange> templates;  // what they get back
  };

  const std::string& Path(std::string_view list) const { return PathOfList(lists_, list); }

  // `what` has a place for their number.
  void Add(std::vector<kube::Request> requests, const std::string& what) {
    if (requests.empty()) return;
    plan_.fixes.push_back({what, std::move(requests)});
  }

  void LookForKueue() {
    for (const json& each : objects_.of("kueue deployments")) {
      if (ReplicasOf(each) > 0) kueue_runs_ = true;
    }
    for (const json& each : objects_.of("kueue leases")) {
      if (NameOf(each) == kKueueLease && HeldSince(each, now_)) kueue_runs_ = true;
    }
  }

  // Those that Muster suspended, with what is to be done with them.
  void ReadJobs() {
    std::map<std::string, kube::Workload> evicted;  // by their owners' UIDs
    for (const json& each : objects_.of("workloads")) {
      std::optional<kube::Workload> workload = WorkloadOf(each);
      if (!workload || kueue_runs_ || !IsEvicted(*workload)) continue;
      const kube::OwnerReference* owner = workload->meta.Controller();
      if (owner != nullptr) evicted.emplace(owner->uid, *std::move(workload));
    }
    for (const JobList& list : kJobLists) {
      for (const json& object : objects_.of(list.name)) {
        std::optional<kube::AnyJob> job = JobOf(list.name, object);
        if (!job || job->going) continue;
        const bool marked = job->annotations.contains(kube::kRestartAnnotation);
        const auto workload = evicted.find(job->uid);
        const bool is_evicted = workload != evicted.end() && job->suspended;
        if (!marked && !is_evicted) continue;
        const bool resume = is_evicted || kube::NextRestartStep(*job, /*pods_left=*/0) ==
                                              kube::RestartStep::kResume;
        ToResume& one = jobs_.emplace_back();
        one.marked = marked;
        one.resume = resume;
        if (is_evicted && job->HasFlavors()) {
          one.templates = quota::WithoutFlavors(*job, workload->second);
        }
        one.job = *std::move(job);
      }
    }
    for (const json& pod : objects_.of("pods")) {
      if (IsGated(pod)) gated_.push_back(&pod);
    }
  }

  void Webhooks() {
    std::vector<kube::Request> requests;
    std::vector<std::string> names;
    for (const char* list : {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}) {
      for (const json& each : objects_.of(list)) {
        if (NameOf(each) != "muster-admission" && NameOf(each) != "muster-warnings") continue;
        requests.push_back(Delete(Path(list), each));
        names.push_back(NameOf(each));
      }
    }
    Add(std::move(requests),
        fmt::format("delete its webhooks ({}), so that no pod is refused once nobody answers",
                    Names(names)));
    if (!names.empty()) plan_.fixes.back().at_once = true;
    webhooks_ = !names.empty();
  }

  void ApiServices() {
    std::vector<kube::Request> requests;
    for (const json& each : objects_.of("apiservices")) {
      if (NameOf(each) == kApiService) requests.push_back(Delete(Path("apiservices"), each));
    }
    const bool any = !requests.empty();
    Add(std::move(requests),
        fmt::format("delete its APIService ({}), since no namespace can be deleted while nobody "
                    "answers for it",
                    kApiService));
    if (any) plan_.fixes.back().at_once = true;
  }

  void Running() {
    for (const json& each : objects_.of("deployments")) {
      if (!IsOurs(each) || ReplicasOf(each) == 0) continue;
      plan_.by_hand.push_back(fmt::format(
          "Muster runs: Deployment {} has {} replicas{}\n"
          "kubectl -n {} scale deployment {} --replicas=0",
          FullName(each), ReplicasOf(each),
          webhooks_ ? "; once its webhooks are deleted, which --yes does also now, stop it" : "",
          NamespaceOf(each), NameOf(each)));
    }
    for (const json& each : objects_.of("leases")) {
      if (!IsLeaders(each)) continue;
      if (const std::optional<std::string> held = HeldSince(each, now_)) {
        plan_.by_hand.push_back(
            fmt::format("A Muster is alive: {}; stop it, and wait until it has ended", *held));
      }
    }
  }

  bool IsLeaders(const json& lease) const {
    return NameOf(lease) == settings_.scheduler_name || NameOf(lease) == kOwnLease;
  }

  void Undecided() {
    const auto resumed = std::ranges::count_if(jobs_, &ToResume::resume);
    const bool nothing_waits = gated_.empty() && resumed == 0;
    lifts_ = settings_.waiting == Waiting::kLift ||
             (settings_.waiting == Waiting::kUndecided && nothing_waits);
    if (settings_.waiting != Waiting::kUndecided || nothing_waits) return;
    std::vector<std::string> names;
    for (const json* pod : gated_) names.push_back(FullName(*pod));
    for (const ToResume& each : jobs_) {
      if (each.resume) names.push_back(each.job.Title());
    }
    plan_.by_hand.push_back(fmt::format(
        "{} pods wait behind Muster's gate, and {} jobs that it suspended wait to be resumed ({})\n"
        "say --gates=lift to let them go: whoever schedules as {} starts them, one by one\n"
        "or --gates=keep to leave them as they are, for another Muster",
        gated_.size(), resumed, Names(names), settings_.scheduler_name));
  }

  // No reason that Karpenter minds; whoever schedules them next says what he finds.
  void Signals() {
    std::vector<kube::Request> requests;
    for (const json& pod : objects_.of("pods")) {
      if (!AsksForNode(pod)) continue;
      const char* reason = IsGated(pod) ? "SchedulingGated" : "SchedulerError";
      requests.push_back(RequestOf(coscheduling::SignalPod{RefTo(pod), reason, kWhy}, now_));
    }
    const size_t count = requests.size();
    Add(std::move(requests),
        fmt::format("have {} pods ask the autoscaler for no more nodes", count));
  }

  void Nodes() {
    std::vector<kube::Request> requests;
    for (const json& node : objects_.of("nodes")) {
      json operations =
          json::array({{{"op", "test"}, {"path", "/metadata/uid"}, {"value", UidOf(node)}}});
      const json& taints = At(node, {"spec", "taints"});
      for (size_t i = taints.is_array() ? taints.size() : 0; i-- > 0;) {
        if (Text(taints[i], {"key"}) != cluster::kSuspectTaint) continue;
        const std::string path = fmt::format("/spec/taints/{}", i);
        operations.push_back(
            {{"op", "test"}, {"path", path + "/key"}, {"value", cluster::kSuspectTaint}});
        operations.push_back({{"op", "remove"}, {"path", path}});
      }
      const auto remove = [&](std::string_view key) {
        if (!HasAnnotation(node, key)) return;
        const std::string name = absl::StrReplaceAll(std::string(key), {{"~", "~0"}, {"/", "~1"}});
        operations.push_back({{"op", "remove"}, {"path", "/metadata/annotations/" + name}});
      };
      // What was there before the first hold stays.
      if (HasAnnotation(node, kube::kHoldAddedAnnotation)) remove(kube::kDoNotDisruptAnnotation);
      for (std::string_view key : kNodeAnnotations) remove(key);
      if (operations.size() == 1) continue;
      requests.push_back(PatchOf("/api/v1/nodes/" + NameOf(node), kube::kJsonPatch, operations));
    }
    const size_t count = requests.size();
    Add(std::move(requests),
        fmt::format("give {} nodes back: holds, suspicions and their taints", count));
  }

  // What Muster took from Kueue for another flavor's sake goes on.
  void GivenBackToKueue() {
    std::vector<kube::Request> requests;
    for (const json& each : objects_.of("workloads")) {
      const std::optional<kube::Workload> workload = WorkloadOf(each);
      if (!workload || workload->finished) continue;
      const bool marked = workload->meta.Annotation(kube::kRestartAnnotation) != nullptr;
      coscheduling::PatchWorkload patch;
      patch.workload = kube::RefOf(workload->meta);
      patch.has_annotations = true;
      if (marked) patch.annotations[std::string(kube::kRestartAnnotation)] = std::nullopt;
      if (marked && !workload->active) patch.active = true;
      for (size_t i = 0; !workload->reserved && i < workload->pod_sets.size(); ++i) {
        const kube::Workload::PodSet& set = workload->pod_sets[i];
        const quota::NodeTerms& terms = set.spec->affinity.required_node_terms;
        if (!quota::IsRestricted(terms)) continue;
        patch.pod_sets.push_back(
            {i, set.has_affinity, set.has_node_affinity, quota::Unrestricted(terms)});
      }
      if (patch.annotations.empty() && patch.pod_sets.empty()) continue;
      requests.push_back(RequestOf(std::move(patch), now_));
    }
    const size_t count = requests.size();
    Add(std::move(requests), fmt::format("give {} Workloads back to Kueue as they were", count));
  }

  void Jobs() {
    std::vector<kube::Request> resumed;
    std::vector<kube::Request> marks;
    std::vector<std::string> names;
    for (const ToResume& each : jobs_) {
      const kube::AnyJob& job = each.job;
      if (each.resume) names.push_back(job.Title());
      if (!each.templates.empty()) {
        resumed.push_back(RequestOf(WithTemplates(each), now_));
        continue;
      }
      const std::optional<bool> suspend = each.resume ? std::optional(false) : std::nullopt;
      std::map<std::string, std::optional<std::string>> annotations;
      if (each.marked) annotations[std::string(kube::kRestartAnnotation)] = std::nullopt;
      (each.resume ? resumed : marks)
          .push_back(RequestOf(quota::SuspendTo(job, suspend, std::move(annotations)), now_));
    }
    const size_t count = marks.size();
    Add(std::move(resumed),
        fmt::format("resume {} jobs that it suspended ({})", names.size(), Names(names)));
    Add(std::move(marks), fmt::format("take its mark off {} jobs", count));
  }

  // A job's own templates, as it is resumed. Of a batch/v1 Job that ran they can be changed only
  // once its start time is reset, which makes another version of it: the next round's.
  static Action WithTemplates(const ToResume& each) {
    const kube::AnyJob& job = each.job;
    const kube::ObjectRef ref = {job.name_space, job.name, job.uid, job.resource_version};
    if (job.has_start_time) return coscheduling::ResetStartTime{ref};
    return coscheduling::ChangeTemplates{.api_version = std::string(job.api_version),
                                         .kind = std::string(job.kind),
                                         .job = ref,
                                         .resume = true,
                                         .templates = each.templates};
  }

  void Gates() {
    std::vector<kube::Request> requests;
    for (const json* pod : gated_) {
      requests.push_back(RequestOf(coscheduling::LiftGate{RefTo(*pod)}, now_));
    }
    const size_t count = requests.size();
    Add(std::move(requests), fmt::format("lift the gate of {} pods", count));
  }

  void Finalizers() {
    if (kueue_runs_) return;
    std::vector<kube::Request> requests;
    const auto take_off = [&](std::string_view list, const json& object) {
      if (!HasFinalizer(object)) return;
      json left = json::array();
      for (const json& each : At(object, {"metadata", "finalizers"})) {
        if (each != kube::kInUseFinalizer) left.push_back(each);
      }
      json metadata = {{"resourceVersion", Text(object, {"metadata", "resourceVersion"})}};
      metadata["finalizers"] = std::move(left);
      requests.push_back(Merge(Path(list), object, std::move(metadata)));
    };
    for (const json& each : objects_.of("workloads")) take_off("workloads", each);
    for (const char* list : kQueueLists) {
      for (const json& each : objects_.of(list)) take_off(list, each);
    }
    const size_t count = requests.size();
    Add(std::move(requests), fmt::format("take finalizer {} off {} Workloads, queues and flavors",
                                         kube::kInUseFinalizer, count));
  }

  // It says that Muster is to resume the job: until that is done.
  bool IsOfJobToResume(const json& workload) const {
    const json* owner = ControllerOf(workload);
    return owner != nullptr && std::ranges::any_of(jobs_, [&](const ToResume& each) {
             return each.job.uid == Text(*owner, {"uid"});
           });
  }

  void State() {
    std::vector<kube::Request> requests;
    const auto take_off = [&](std::string_view list) {
      for (const json& object : objects_.of(list)) {
        if (list == "workloads" && IsOfJobToResume(object)) continue;
        json annotations = json::object();
        for (std::string_view key : kStateAnnotations) {
          if (HasAnnotation(object, key)) annotations[key] = nullptr;
        }
        if (annotations.empty()) continue;
        json metadata = json::object();
        metadata["annotations"] = std::move(annotations);
        requests.push_back(Merge(Path(list), object, std::move(metadata)));
      }
    };
    for (const char* list : {"pods", "podgroups", "workloads"}) take_off(list);
    for (const JobList& list : kJobLists) take_off(list.name);
    const size_t count = requests.size();
    Add(std::move(requests),
        fmt::format("take its state off {} pods, PodGroups, jobs and Workloads", count));
  }

  void Policies() {
    std::vector<kube::Request> requests;
    std::vector<std::string> names;
    for (const char* list : {"validatingadmissionpolicybindings", "validatingadmissionpolicies"}) {
      for (const json& each : objects_.of(list)) {
        if (!IsOurs(each)) continue;
        requests.push_back(Delete(Path(list), each));
        if (list == std::string_view("validatingadmissionpolicies")) names.push_back(NameOf(each));
      }
    }
    Add(std::move(requests), fmt::format("delete its policies ({})", Names(names)));
  }

  void Leases() {
    std::vector<kube::Request> requests;
    std::vector<std::string> names;
    for (const json& each : objects_.of("leases")) {
      if (!IsLeaders(each)) continue;
      requests.push_back(Delete(Path("leases"), each, /*exactly=*/true));
      names.push_back(FullName(each));
    }
    Add(std::move(requests), fmt::format("delete Lease {}", Names(names)));
  }

  void Notes() {
    size_t waiting = 0;
    for (const json& pod : objects_.of("pods")) {
      const std::string phase = Text(pod, {"status", "phase"});
      if (Text(pod, {"spec", "nodeName"}).empty() && phase != "Succeeded" && phase != "Failed") {
        ++waiting;
      }
    }
    if (waiting > 0) {
      plan_.notes.push_back(fmt::format(
          "{} pods that have no node name schedulerName {}, which can't be changed: a scheduler of "
          "that name starts them, or their jobs are created anew with another",
          waiting, settings_.scheduler_name));
    }
    std::vector<std::string> held;
    for (const JobList& list : kJobLists) {
      for (const json& object : objects_.of(list.name)) {
        const std::optional<kube::AnyJob> job = JobOf(list.name, object);
        if (!job || !job->suspended || job->going || job->finished || job->parent) continue;
        if (!job->labels.contains(kube::kQueueLabel) || kueue_runs_) continue;
        const auto same = [&](const ToResume& each) { return each.job.uid == job->uid; };
        if (std::ranges::none_of(jobs_, same)) held.push_back(job->Title());
      }
    }
    if (!held.empty()) {
      plan_.notes.push_back(fmt::format(
          "{} jobs were created suspended and wait for quota; nobody resumes them any more ({})",
          held.size(), Names(held)));
    }
    if (kueue_runs_) {
      plan_.notes.push_back(
          "Kueue runs: Workloads, queues and flavors are left to it, with their finalizers");
    }
    const size_t groups = objects_.of("podgroups").size();
    size_t derived = 0;
    for (const json& each : objects_.of("podgroups")) {
      if (Text(each, {"metadata", "labels", coscheduling::kDerivedLabel}) == "true") ++derived;
    }
    const size_t workloads = objects_.of("workloads").size();
    if (groups + workloads > 0) {
      plan_.notes.push_back(fmt::format(
          "what stays: the definitions, {} PodGroups ({} of them Muster's, which go with their "
          "jobs), {} Workloads, queues and flavors with the status that they had",
          groups, derived, workloads));
    }
    if (!plan_.by_hand.empty() || !objects_.of("deployments").empty()) {
      plan_.notes.push_back(
          fmt::format("the Deployment and its rights go afterwards\n"
                      "helm uninstall muster --namespace {0}, or kubectl delete -k deploy/base",
                      settings_.muster_namespace));
    }
  }

  const ClusterObjects& objects_;
  const UninstallSettings& settings_;
  const absl::Time now_;
  const std::vector<ListToRead> lists_;
  ChangePlan plan_;
  bool webhooks_ = false;
  bool lifts_ = false;
  bool kueue_runs_ = false;
  std::vector<ToResume> jobs_;
  std::vector<const json*> gated_;
};

}  // namespace

std::vector<ListToRead> ListsToUninstall(const UninstallSettings& settings) {
  const auto in = [](const char* group, const std::string& name_space, const char* resource) {
    return fmt::format("/apis/{}/namespaces/{}/{}", group, name_space, resource);
  };
  const std::string admission = "/apis/admissionregistration.k8s.io/v1/";
  const std::string kueue = "/apis/kueue.x-k8s.io/v1beta2/";
  std::vector<ListToRead> lists = {
      {"deployments", in("apps/v1", settings.muster_namespace, "deployments"), {}},
      {"leases", in("coordination.k8s.io/v1", settings.muster_namespace, "leases"), {}},
      {"kueue deployments", in("apps/v1", settings.kueue_namespace, "deployments"), {}},
      {"kueue leases", in("coordination.k8s.io/v1", settings.kueue_namespace, "leases"), {}},
      {"workloads", kueue + "workloads", {}},
      {"pods",
       "/api/v1/pods",
       {{"fieldSelector", "spec.schedulerName=" + settings.scheduler_name}}},
      {"nodes", "/api/v1/nodes", {}},
      {"podgroups", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", {}},
  };
  for (const char* list : {"mutatingwebhookconfigurations", "validatingwebhookconfigurations",
                           "validatingadmissionpolicybindings", "validatingadmissionpolicies"}) {
    lists.push_back({list, admission + list, {}});
  }
  lists.push_back({"apiservices", "/apis/apiregistration.k8s.io/v1/apiservices", {}});
  for (const char* list : kQueueLists) lists.push_back({list, kueue + list, {}});
  for (const JobList& list : kJobLists) lists.push_back({list.name, list.path, {}});
  return lists;
}

bool ConcernsUninstall(const std::string& list, const json& object) {
  if (list == "nodes") {
    return HasAny(object, kNodeAnnotations) ||
           Any(At(object, {"spec", "taints"}),
               [](const json& taint) { return Text(taint, {"key"}) == cluster::kSuspectTaint; });
  }
  if (std::ranges::find(kJobLists, list, &JobList::name) == kJobLists.end()) return true;
  const auto suspends = [&](JsonPath path) {
    const json& is = At(object, path);
    return is.is_boolean() && is.get<bool>();
  };
  return HasAny(object, kStateAnnotations) || HasAnnotation(object, kube::kRestartAnnotation) ||
         suspends({"spec", "suspend"}) || suspends({"spec", "runPolicy", "suspend"});
}

ChangePlan PlanUninstall(const ClusterObjects& objects, const UninstallSettings& settings,
                         absl::Time now) {
  return Planner(objects, settings, now).Plan();
}

HeldLeases LeasesHeld(const ClusterObjects& objects, const UninstallSettings& settings) {
  HeldLeases held;
  for (const json& lease : objects.of("leases")) {
    if (NameOf(lease) != settings.scheduler_name && NameOf(lease) != kOwnLease) continue;
    if (Text(lease, {"spec", "holderIdentity"}).empty()) continue;
    const json& seconds = At(lease, {"spec", "leaseDurationSeconds"});
    held.longest =
        std::max(held.longest, absl::Seconds(seconds.is_number() ? seconds.get<int64_t>() : 15));
    held.renewals.push_back(
        fmt::format("{} {}", FullName(lease), Text(lease, {"spec", "renewTime"})));
  }
  return held;
}

}  // namespace muster::extender
