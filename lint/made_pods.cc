#include "lint/made_pods.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "coscheduling/labels.h"
#include "kube/objects/decode.h"
#include "kube/objects/well_known.h"
#include "lint/json_tree.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using nlohmann::json;

constexpr const char* kReplicatedJobLabel = "jobset.sigs.k8s.io/replicatedjob-name";

std::string Compact(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json& MappingIn(json* object, const char* key) {
  json& field = (*object)[key];
  if (!field.is_object()) field = json::object();
  return field;
}

class Maker {
 public:
  Maker(const Workload& workload, const std::string& scheduler_name)
      : workload_(workload), scheduler_name_(scheduler_name) {}

  MadePods Make() {
    for (const PodTemplate& pods : workload_.templates) {
      if (pods.incomplete || __builtin_add_overflow(count_, pods.pods, &count_) ||
          count_ > kMostPodsMade) {
        return {};
      }
    }
    SetScheduler();
    // A PodGroup of Kubernetes' own is for its own scheduler.
    for (const PodTemplate& pods : workload_.templates) {
      const bool native = std::ranges::any_of(pods.layers, [](const yaml::YamlValue& layer) {
        return layer.Get("schedulingGroup").present();
      });
      if (native && pods.scheduler_name.value != scheduler_name_) return {};
    }
    const std::string& kind = workload_.kind;
    if (kind == "Pod" || kind == "Pods of group") {
      for (const PodTemplate& pods : workload_.templates) AddPods(pods, json(), "", pods.pods);
      return std::move(made_);
    }
    json job = JsonOf(workload_.yaml);
    Name(&job);
    if (json& spec = job["spec"]; spec.is_object()) {
      spec.erase("suspend");
      if (const auto policy = spec.find("runPolicy"); policy != spec.end() && policy->is_object()) {
        policy->erase("suspend");
      }
    }
    Own(kind, job);
    if (kind == "MPIJob") {
      OfMPIJob(job);
    } else if (kind == "JobSet") {
      OfJobSet(job);
    } else if (kind == "TrainJob") {
      json set = {{"apiVersion", "jobset.x-k8s.io/v1alpha2"}, {"kind", "JobSet"}};
      set["metadata"] = {{"name", workload_.name},
                         {"ownerReferences", json::array({Reference(job)})}};
      set["spec"]["replicatedJobs"] = ReplicatedJobs();
      const yaml::YamlValue order = workload_.job_set.Get("startupPolicy");
      if (order.present()) set["spec"]["startupPolicy"] = JsonOf(order);
      Name(&set);
      Own("JobSet", set);
      OfJobSet(set);
    } else if (kind == "RayJob") {
      json cluster = {{"apiVersion", "ray.io/v1"}, {"kind", "RayCluster"}};
      cluster["metadata"] = {{"name", workload_.name + "-raycluster"},
                             {"ownerReferences", json::array({Reference(job)})}};
      cluster["spec"] = JsonOf(workload_.yaml.At("spec.rayClusterSpec"));
      Name(&cluster);
      Own("RayCluster", cluster);
      for (const PodTemplate& pods : workload_.templates) AddPods(pods, cluster, pods.role);
    } else {
      // A StatefulSet's next pod waits for the one before it, which the gang holds back.
      const int64_t at_once = workload_.one_by_one.present() ? 1 : -1;
      for (const PodTemplate& pods : workload_.templates) AddPods(pods, job, pods.role, at_once);
    }
    return std::move(made_);
  }

 private:
  void Name(json* object) {
    json& metadata = MappingIn(object, "metadata");
    if (!metadata.contains("name") || !metadata["name"].is_string()) {
      metadata["name"] = workload_.name.empty() ? "job" : workload_.name;
    }
    metadata["namespace"] = workload_.name_space;
    metadata["uid"] = Concat("owner-", made_.owners.size());
    metadata["resourceVersion"] = "1";
  }

  static json Reference(const json& owner) {
    return {{"apiVersion", owner.value("apiVersion", "")},
            {"kind", owner.value("kind", "")},
            {"name", owner["metadata"]["name"]},
            {"uid", owner["metadata"]["uid"]},
            {"controller", true}};
  }

  template <typename Kind>
  void Decoded(const std::string& text) {
    absl::StatusOr<Kind> object = kube::Decode<Kind>(text);
    if (object.ok()) made_.owners.emplace_back(*std::move(object));
  }

  void Own(std::string_view kind, const json& object) {
    const std::string text = Compact(object);
    if (kind == "Job") Decoded<kube::Job>(text);
    if (kind == "StatefulSet") Decoded<kube::StatefulSet>(text);
    if (kind == "JobSet") Decoded<kube::JobSet>(text);
    if (kind == "PyTorchJob") Decoded<kube::PyTorchJob>(text);
    if (kind == "TrainJob") Decoded<kube::TrainJob>(text);
    if (kind == "MPIJob") Decoded<kube::MPIJob>(text);
    if (kind == "RayCluster") Decoded<kube::RayCluster>(text);
    if (kind == "RayJob") Decoded<kube::RayJob>(text);
  }

  // Which scheduler's pods they are to be taken for: none if they don't agree.
  void SetScheduler() {
    const std::string& first = workload_.templates.empty()
                                   ? scheduler_name_
                                   : workload_.templates.front().scheduler_name.value;
    as_ours_ = std::ranges::all_of(workload_.templates, [&](const PodTemplate& pods) {
      return pods.scheduler_name.value == first;
    });
  }

  // The spec of the pods: what was said first, and what is laid over it.
  json SpecOf(const PodTemplate& pods) const {
    json spec = json::object();
    for (const yaml::YamlValue& layer : pods.layers) {
      json over = JsonOf(layer);
      if (!over.is_object()) continue;
      if (spec.empty()) {
        spec = std::move(over);
        continue;
      }
      // Lists of a later one name a part of what there is.
      for (const char* list : {"containers", "initContainers", "volumes"}) over.erase(list);
      if (over.contains("tolerations") && spec.contains("tolerations") &&
          over["tolerations"].is_array() && spec["tolerations"].is_array()) {
        spec["tolerations"].insert(spec["tolerations"].end(), over["tolerations"].begin(),
                                   over["tolerations"].end());
        over.erase("tolerations");
      }
      spec.merge_patch(over);
    }
    if (pods.resources.present()) {
      json& containers = spec["containers"];
      if (!containers.is_array() || containers.empty()) containers = json::array({json::object()});
      if (containers[0].is_object()) containers[0]["resources"] = JsonOf(pods.resources);
    }
    if (as_ours_) spec["schedulerName"] = scheduler_name_;
    return spec;
  }

  void AddPods(const PodTemplate& pods, const json& owner, const std::string& infix,
               int64_t count = -1) {
    if (count < 0) count = pods.pods;
    json pod = {{"metadata", json::object()}, {"spec", SpecOf(pods)}};
    json& metadata = pod["metadata"];
    metadata["namespace"] = workload_.name_space;
    metadata["resourceVersion"] = "1";
    for (const auto& [key, value] : pods.labels) metadata["labels"][key] = value;
    for (const auto& [key, value] : pods.annotations) metadata["annotations"][key] = value.value;
    if (!owner.is_null()) metadata["ownerReferences"] = json::array({Reference(owner)});
    absl::StatusOr<kube::Pod> decoded = kube::Decode<kube::Pod>(Compact(pod));
    if (!decoded.ok()) return;
    decoded->scheduling_gates.emplace_back(coscheduling::kGate);
    // Pods that are alike are known as such by their spec.
    auto& spec = specs_[&pods];
    if (spec == nullptr) spec = decoded->spec;
    decoded->spec = spec;
    std::string name = owner.is_null() ? pods.name : owner["metadata"].value("name", "");
    if (!infix.empty() && owner.value("kind", "") != "Job") Append(&name, "-", infix);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (int64_t i = 0; i < count; ++i) {
      kube::Pod& made = made_.pods.emplace_back(*decoded);
      made.meta.name = owner.is_null() && count == 1 ? name : Concat(name, "-", i);
      made.meta.uid = Concat("pod-", made_.pods.size());
      made_.templates.push_back(&pods);
    }
  }

  json JobOf(const std::string& name, const PodTemplate& pods, const json& owner) {
    json job = {{"apiVersion", "batch/v1"}, {"kind", "Job"}};
    job["metadata"] = {{"name", name}, {"ownerReferences", json::array({Reference(owner)})}};
    for (const auto& [key, value] : pods.labels) job["metadata"]["labels"][key] = value;
    job["spec"] = JobSpecOf(pods);
    Name(&job);
    return job;
  }

  json JobSpecOf(const PodTemplate& pods) const {
    json spec = {{"parallelism", pods.pods_per_job}, {"completions", pods.pods_per_job}};
    spec["template"]["spec"] = SpecOf(pods);
    return spec;
  }

  // Of a JobSet that a TrainJob makes.
  json ReplicatedJobs() const {
    json all = json::array();
    for (const PodTemplate& pods : workload_.templates) {
      json each = {{"name", pods.role}, {"replicas", Jobs(pods)}};
      each["template"]["spec"] = JobSpecOf(pods);
      for (const yaml::YamlValue& job : workload_.job_set.Get("replicatedJobs").Items()) {
        const yaml::YamlValue after = job.Get("dependsOn");
        if (job.Get("name").Text() == pods.role && after.present()) {
          each["dependsOn"] = JsonOf(after);
        }
      }
      all.push_back(std::move(each));
    }
    return all;
  }

  static int64_t Jobs(const PodTemplate& pods) {
    return pods.pods_per_job == 0 ? 0 : pods.pods / pods.pods_per_job;
  }

  void OfJobSet(const json& set) {
    for (const PodTemplate& pods : workload_.templates) {
      for (int64_t i = 0; i < Jobs(pods); ++i) {
        json job = JobOf(Concat(workload_.name, "-", pods.role, "-", i), pods, set);
        job["metadata"]["labels"][kReplicatedJobLabel] = pods.role;
        Own("Job", job);
        AddPods(pods, job, "", pods.pods_per_job);
      }
    }
  }

  void OfMPIJob(const json& job) {
    for (const PodTemplate& pods : workload_.templates) {
      if (pods.part > 0) continue;
      if (pods.role != "Launcher") {
        AddPods(pods, job, pods.role);
        continue;
      }
      const json launcher = JobOf(workload_.name + "-launcher", pods, job);
      Own("Job", launcher);
      AddPods(pods, launcher, "");
    }
  }

  const Workload& workload_;
  const std::string& scheduler_name_;
  bool as_ours_ = false;
  int64_t count_ = 0;
  std::map<const PodTemplate*, std::shared_ptr<const kube::PodSpec>> specs_;
  MadePods made_;
};

}  // namespace

MadePods MakePods(const Workload& workload, const std::string& scheduler_name) {
  return Maker(workload, scheduler_name).Make();
}

}  // namespace muster::lint
