#include "simulation/job_controllers.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"
#include "simulation/manifests.h"

namespace muster::simulation {
namespace {

using nlohmann::json;

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string NameOf(const json& object) { return object.at("metadata").at("name"); }

json OwnerReference(const json& owner) {
  return {{"apiVersion", owner.at("apiVersion")},
          {"kind", owner.at("kind")},
          {"name", NameOf(owner)},
          {"uid", owner.at("metadata").at("uid")},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

absl::StatusOr<json> Get(const Call& call, const std::string& path) {
  kube::Request request;
  request.path = path;
  const kube::Response response = call(request);
  if (!response.ok()) return kube::ToStatus(response);
  return json::parse(response.body);
}

// Makes an object unless there is one of its name. The one that is there afterwards.
absl::StatusOr<json> Make(const Call& call, const std::string& collection, const json& object,
                          bool* made) {
  const kube::Response response = call(CreateRequest({collection, object.dump()}));
  *made = response.ok();
  if (response.status == 409) return Get(call, collection + "/" + NameOf(object));
  if (!response.ok()) return kube::ToStatus(response);
  return json::parse(response.body);
}

class Controller {
 public:
  Controller(const ReconcileStep& step, const std::string& scheduler_name, const Call& call,
             std::string name_space, absl::Time now)
      : step_(step),
        scheduler_name_(scheduler_name),
        call_(call),
        name_space_(std::move(name_space)),
        now_(now) {}

  absl::Status Turn(const json& object) {
    const std::string kind = object.at("kind");
    if (kind == "Job") return OfJob(object);
    if (kind == "StatefulSet") return OfStatefulSet(object);
    if (kind == "PyTorchJob") return OfPyTorchJob(object);
    if (kind == "JobSet") return OfJobSet(object);
    if (kind == "MPIJob") return OfMPIJob(object);
    if (kind == "RayCluster") return OfRayCluster(object);
    if (kind == "RayJob") return OfRayJob(object);
    return absl::InvalidArgumentError(fmt::format("scenarios have no controller of {}", kind));
  }

 private:
  absl::Status Pod(const json& owner, const json& pod_template, const std::string& name,
                   const json& labels, const json& annotations = json::object()) {
    if (step_.only && made_ >= *step_.only) return Refuse(owner, name);
    json metadata = pod_template.value("metadata", json::object());
    metadata["name"] = name;
    metadata["namespace"] = name_space_;
    for (const auto& [key, value] : labels.items()) metadata["labels"][key] = value;
    for (const auto& [key, value] : annotations.items()) metadata["annotations"][key] = value;
    metadata["annotations"][kGangForObservers] = step_.gang;
    metadata["ownerReferences"] = json::array({OwnerReference(owner)});
    json spec = pod_template.at("spec");
    if (spec.value("schedulerName", "") == scheduler_name_) {
      spec["schedulingGates"].push_back({{"name", "muster.dev/admission"}});
    }
    const json pod = {
        {"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", metadata}, {"spec", spec}};
    bool made = false;
    const absl::StatusOr<json> there =
        Make(call_, fmt::format("/api/v1/namespaces/{}/pods", name_space_), pod, &made);
    made_ += made;
    return there.status();
  }

  // Tells once of each owner that its pods are refused.
  absl::Status Refuse(const json& owner, const std::string& pod) {
    if (step_.refused.empty() || !told_.insert(NameOf(owner)).second) return absl::OkStatus();
    const std::string kind = owner.at("kind");
    const std::string forbidden = fmt::format("pods \"{}\" is forbidden: {}", pod, step_.refused);
    const std::string time = kube::TimeText(now_);
    const json event = {
        {"apiVersion", "v1"},
        {"kind", "Event"},
        {"metadata",
         {{"name", fmt::format("{}.{:x}", NameOf(owner), absl::ToUnixNanos(now_))},
          {"namespace", name_space_}}},
        {"involvedObject",
         {{"apiVersion", owner.at("apiVersion")},
          {"kind", kind},
          {"namespace", name_space_},
          {"name", NameOf(owner)},
          {"uid", owner.at("metadata").at("uid")}}},
        {"type", "Warning"},
        {"reason", kind == "PyTorchJob" ? "FailedCreatePod" : "FailedCreate"},
        {"message", kind == "StatefulSet"
                        ? fmt::format("create Pod {} in StatefulSet {} failed error: {}", pod,
                                      NameOf(owner), forbidden)
                        : "Error creating: " + forbidden},
        {"count", 1},
        {"firstTimestamp", time},
        {"lastTimestamp", time}};
    bool made = false;
    return Make(call_, fmt::format("/api/v1/namespaces/{}/events", name_space_), event, &made)
        .status();
  }

  // Those that the object controls: all, or only those that haven't ended.
  absl::Status DeletePodsOf(const json& owner, bool ended_too) {
    const std::string pods = fmt::format("/api/v1/namespaces/{}/pods", name_space_);
    absl::StatusOr<json> list = Get(call_, pods);
    if (!list.ok()) return list.status();
    for (const json& pod : list->at("items")) {
      const json owners = pod.value("/metadata/ownerReferences"_json_pointer, json::array());
      const bool owned = std::ranges::any_of(owners, [&](const json& reference) {
        return reference.value("uid", "") ==
               owner.at("metadata").at("uid").get_ref<const std::string&>();
      });
      const std::string phase = pod.value("/status/phase"_json_pointer, "");
      const bool ended = phase == "Succeeded" || phase == "Failed";
      if (!owned || (ended && !ended_too)) continue;
      kube::Request request;
      request.method = kube::Method::kDelete;
      request.path = pods + "/" + NameOf(pod);
      const kube::Response response = call_(request);
      if (!response.ok() && response.status != 404) return kube::ToStatus(response);
    }
    return absl::OkStatus();
  }

  absl::Status OfJob(const json& job) {
    const json& spec = job.at("spec");
    const int64_t parallelism = spec.value("parallelism", int64_t{1});
    const int64_t count = std::min(parallelism, spec.value("completions", parallelism));
    const std::string name = NameOf(job);
    const bool indexed = spec.value("completionMode", "") == "Indexed";
    if (spec.value("suspend", false)) return DeletePodsOf(job, /*ended_too=*/false);
    for (int64_t i = 0; i < count; ++i) {
      json labels = {{"batch.kubernetes.io/job-name", name},
                     {"batch.kubernetes.io/controller-uid", job.at("metadata").at("uid")}};
      json annotations = json::object();
      if (indexed) {
        labels["batch.kubernetes.io/job-completion-index"] = std::to_string(i);
        annotations["batch.kubernetes.io/job-completion-index"] = std::to_string(i);
      }
      const absl::Status status =
          Pod(job, spec.at("template"), fmt::format("{}-{}", name, i), labels, annotations);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status OfStatefulSet(const json& set) {
    const json& spec = set.at("spec");
    const std::string name = NameOf(set);
    for (int64_t i = 0; i < spec.value("replicas", int64_t{1}); ++i) {
      const std::string pod = fmt::format("{}-{}", name, i);
      const absl::Status status = Pod(set, spec.at("template"), pod,
                                      {{"statefulset.kubernetes.io/pod-name", pod},
                                       {"apps.kubernetes.io/pod-index", std::to_string(i)}});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status OfPyTorchJob(const json& job) {
    const std::string name = NameOf(job);
    if (job.value("/spec/runPolicy/suspend"_json_pointer, false)) {
      return DeletePodsOf(job, /*ended_too=*/true);
    }
    for (const auto& [type, replica] : job.at("spec").at("pytorchReplicaSpecs").items()) {
      const std::string lower = Lower(type);
      for (int64_t i = 0; i < replica.value("replicas", int64_t{1}); ++i) {
        json labels = {{"training.kubeflow.org/operator-name", "pytorchjob-controller"},
                       {"training.kubeflow.org/job-name", name},
                       {"training.kubeflow.org/replica-type", lower},
                       {"training.kubeflow.org/replica-index", std::to_string(i)}};
        if (lower == "master") labels["training.kubeflow.org/job-role"] = "master";
        const absl::Status status =
            Pod(job, replica.at("template"), fmt::format("{}-{}-{}", name, lower, i), labels);
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  // The Job once it is suspended as its owner is. One that is resumed takes over what may have
  // changed of the template meanwhile (jobset v0.8 pkg/controllers/jobset_controller.go resumeJob).
  absl::StatusOr<json> SuspendedAs(bool suspend, const json& job, const json& wanted) {
    if (job.at("spec").value("suspend", false) == suspend) return job;
    kube::Request request;
    request.method = kube::Method::kPatch;
    request.path = fmt::format("/apis/batch/v1/namespaces/{}/jobs/{}", name_space_, NameOf(job));
    request.content_type = kube::kMergePatch;
    json spec = {{"suspend", suspend}};
    if (!suspend) {
      const json& from = wanted.at("spec").at("template");
      json& to = spec["template"];
      for (const char* field : {"labels", "annotations"}) {
        to["metadata"][field] = from.value("metadata", json::object()).value(field, json());
      }
      for (const char* field : {"nodeSelector", "tolerations"}) {
        to["spec"][field] = from.at("spec").value(field, json());
      }
    }
    request.body = json{{"spec", std::move(spec)}}.dump();
    const kube::Response response = call_(request);
    if (!response.ok()) return kube::ToStatus(response);
    return json::parse(response.body);
  }

  absl::Status OfJobSet(const json& set) {
    const std::string name = NameOf(set);
    int64_t global_index = 0;
    for (const json& replicated : set.at("spec").at("replicatedJobs")) {
      const std::string part = replicated.at("name");
      const int64_t replicas = replicated.value("replicas", int64_t{1});
      if (!step_.replicated_job.empty() && step_.replicated_job != part) {
        global_index += replicas;
        continue;
      }
      for (int64_t i = 0; i < replicas; ++i) {
        const json labels = {
            {"jobset.sigs.k8s.io/jobset-name", name},
            {"jobset.sigs.k8s.io/replicatedjob-name", part},
            {"jobset.sigs.k8s.io/replicatedjob-replicas", std::to_string(replicas)},
            {"jobset.sigs.k8s.io/job-index", std::to_string(i)},
            {"jobset.sigs.k8s.io/job-global-index", std::to_string(global_index++)},
            {"jobset.sigs.k8s.io/restart-attempt", "0"}};
        json job = {{"apiVersion", "batch/v1"},
                    {"kind", "Job"},
                    {"metadata",
                     {{"name", fmt::format("{}-{}-{}", name, part, i)},
                      {"namespace", name_space_},
                      {"labels", labels},
                      {"ownerReferences", json::array({OwnerReference(set)})}}},
                    {"spec", replicated.at("template").at("spec")}};
        // As the JobSet's webhook does.
        job["spec"].emplace("completionMode", "Indexed");
        json& pod_labels = job["spec"]["template"]["metadata"]["labels"];
        for (const auto& [key, value] : labels.items()) pod_labels[key] = value;
        bool made = false;
        absl::StatusOr<json> there =
            Make(call_, fmt::format("/apis/batch/v1/namespaces/{}/jobs", name_space_), job, &made);
        if (there.ok()) there = SuspendedAs(set.at("spec").value("suspend", false), *there, job);
        if (!there.ok()) return there.status();
        if (absl::Status status = OfJob(*there); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  // A launcher that waits comes only if it is named (`replicatedJob`).
  absl::Status OfMPIJob(const json& job) {
    const std::string name = NameOf(job);
    const json& spec = job.at("spec");
    const json& types = spec.at("mpiReplicaSpecs");
    const bool suspend = job.value("/spec/runPolicy/suspend"_json_pointer, false);
    const auto labels = [&](const char* role) {
      return json{{"training.kubeflow.org/operator-name", "mpi-operator"},
                  {"training.kubeflow.org/job-name", name},
                  {"training.kubeflow.org/job-role", role}};
    };
    if (suspend) {
      if (absl::Status status = DeletePodsOf(job, /*ended_too=*/true); !status.ok()) return status;
    } else if (step_.replicated_job != "Launcher") {
      const json& workers = types.at("Worker");
      for (int64_t i = 0; i < workers.value("replicas", int64_t{1}); ++i) {
        json worker = labels("worker");
        worker["training.kubeflow.org/replica-index"] = std::to_string(i);
        const absl::Status status =
            Pod(job, workers.at("template"), fmt::format("{}-worker-{}", name, i), worker);
        if (!status.ok()) return status;
      }
    }
    const bool waits = spec.value("launcherCreationPolicy", "") == "WaitForWorkersReady";
    if (step_.replicated_job == "Worker" || (waits && step_.replicated_job.empty())) {
      return absl::OkStatus();
    }
    json launcher = {{"apiVersion", "batch/v1"},
                     {"kind", "Job"},
                     {"metadata",
                      {{"name", name + "-launcher"},
                       {"namespace", name_space_},
                       {"ownerReferences", json::array({OwnerReference(job)})}}},
                     {"spec", {{"template", types.at("Launcher").at("template")}}}};
    // The operator's default (mpi-operator v0.6.0, pkg/apis/kubeflow/v2beta1/default.go).
    launcher["spec"]["template"]["spec"]["restartPolicy"] =
        types.at("Launcher").value("restartPolicy", "OnFailure");
    launcher["spec"]["template"]["metadata"]["labels"].update(labels("launcher"));
    bool made = false;
    absl::StatusOr<json> there =
        Make(call_, fmt::format("/apis/batch/v1/namespaces/{}/jobs", name_space_), launcher, &made);
    if (there.ok()) there = SuspendedAs(suspend, *there, launcher);
    return there.ok() ? OfJob(*there) : there.status();
  }

  absl::Status OfRayCluster(const json& cluster) {
    const std::string name = NameOf(cluster);
    const json& spec = cluster.at("spec");
    if (spec.value("suspend", false)) return DeletePodsOf(cluster, /*ended_too=*/true);
    const auto pod = [&](const json& group, const std::string& suffix, const char* type) {
      return Pod(cluster, group.at("template"), name + "-" + suffix,
                 {{"ray.io/cluster", name}, {"ray.io/node-type", type}});
    };
    absl::Status status = pod(spec.at("headGroupSpec"), "head", "head");
    for (const json& group : spec.value("workerGroupSpecs", json::array())) {
      const int64_t count =
          group.value("replicas", int64_t{0}) * group.value("numOfHosts", int64_t{1});
      for (int64_t i = 0; i < count && status.ok(); ++i) {
        status =
            pod(group, fmt::format("{}-{}", group.at("groupName").get<std::string>(), i), "worker");
      }
    }
    return status;
  }

  absl::Status DeleteCluster(const std::string& path) {
    const absl::StatusOr<json> cluster = Get(call_, path);
    if (!cluster.ok()) return absl::OkStatus();
    absl::Status status = DeletePodsOf(*cluster, /*ended_too=*/true);
    kube::Request request;
    request.method = kube::Method::kDelete;
    request.path = path;
    const kube::Response response = call_(request);
    return !status.ok() || response.ok() ? status : kube::ToStatus(response);
  }

  absl::Status OfRayJob(const json& job) {
    const std::string clusters =
        fmt::format("/apis/ray.io/v1/namespaces/{}/rayclusters", name_space_);
    const json cluster = {{"apiVersion", "ray.io/v1"},
                          {"kind", "RayCluster"},
                          {"metadata",
                           {{"name", NameOf(job) + "-raycluster"},
                            {"namespace", name_space_},
                            {"ownerReferences", json::array({OwnerReference(job)})}}},
                          {"spec", job.at("spec").at("rayClusterSpec")}};
    if (job.at("spec").value("suspend", false))
      return DeleteCluster(clusters + "/" + NameOf(cluster));
    bool made = false;
    const absl::StatusOr<json> there = Make(call_, clusters, cluster, &made);
    return there.ok() ? OfRayCluster(*there) : there.status();
  }

  const ReconcileStep& step_;
  const std::string& scheduler_name_;
  const Call& call_;
  const std::string name_space_;
  const absl::Time now_;
  int made_ = 0;
  std::set<std::string> told_;
};

}  // namespace

absl::Status Reconcile(const ReconcileStep& step, const std::string& scheduler_name,
                       const Call& call, absl::Time now) {
  absl::StatusOr<std::string> path = ObjectPath(step.object);
  if (!path.ok()) return path.status();
  absl::StatusOr<json> object = Get(call, *path);
  if (!object.ok()) return object.status();
  ReconcileStep named = step;
  if (named.gang.empty()) named.gang = NameOf(*object);
  Controller controller(named, scheduler_name, call,
                        object->at("metadata").value("namespace", "default"), now);
  return controller.Turn(*object);
}

absl::Status FillOwnerUids(kube::Request* request, const Call& call) {
  if (request->method != kube::Method::kPost || !absl::StrContains(request->body, "ownerRef")) {
    return absl::OkStatus();
  }
  json object = json::parse(request->body);
  json& metadata = object["metadata"];
  if (!metadata.contains("ownerReferences")) return absl::OkStatus();
  for (json& owner : metadata["ownerReferences"]) {
    if (owner.contains("uid")) continue;
    // Of another namespace: a UID that isn't the writer's to name.
    const std::string name_space = owner.value("namespace", metadata.value("namespace", "default"));
    owner.erase("namespace");
    absl::StatusOr<std::string> path = ObjectPath(fmt::format(
        "{}/{}/{}", Lower(owner.at("kind")), name_space, NameOf({{"metadata", owner}})));
    if (!path.ok()) return path.status();
    absl::StatusOr<json> found = Get(call, *path);
    if (!found.ok()) return found.status();
    owner["uid"] = found->at("metadata").at("uid");
  }
  request->body = object.dump();
  return absl::OkStatus();
}

}  // namespace muster::simulation
