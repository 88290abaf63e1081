// What lint's rules know of manifests: jobs and what their pods ask for, PodGroups, NodePools, and
// Kueue's queues and flavors, each value with the line that it stands in.
//
// Unknown kinds and unknown fields are passed over. A field that is needed and can't be read is an
// error of its file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "coscheduling/engine_options.h"
#include "kube/objects/resource_list.h"
#include "lint/requirement.h"
#include "yaml/tree.h"

namespace muster::lint {

// Line 0: absent.
struct LocatedText {
  std::string value;
  int line = 0;
  bool quoted = false;  // never a number or a boolean
  bool present() const { return line > 0; }
};
struct LocatedCount {
  int64_t value = 0;
  int line = 0;
  bool present() const { return line > 0; }
};
using LocatedTexts = std::map<std::string, LocatedText, std::less<>>;
// Amounts in base units: cpu in thousandths.
using LocatedAmounts = std::map<std::string, LocatedCount, std::less<>>;

struct Container {
  std::string name;
  int line = 0;
  std::vector<yaml::YamlValue> words;  // command, then args
  int words_line = 0;                  // if they stand in another file; 0: they have their own
  LocatedTexts env;                    // those with a plain value
  LocatedAmounts requests, limits;
  std::string shm_volume;  // mounted at /dev/shm; empty: none

  // What it asks for: the request, or else the limit. 0: nothing.
  LocatedCount Asks(std::string_view resource) const;
};

// Pods that a job makes alike.
struct PodTemplate {
  std::string file;
  std::string role;  // "Master", "worker"; empty: the job has one template only
  int line = 0;
  int64_t pods = 1;
  int64_t pods_per_job = 1;  // below a JobSet's replicated job that makes several
  int pods_line = 0;         // of the field that says how many
  int part = 0;              // templates of one part exist at the same time
  // A runtime that isn't known says what isn't said here: nothing is missing.
  bool incomplete = false;

  int metadata_line = 0, spec_line = 0;
  std::map<std::string, std::string> labels;  // with those that the job's controller adds
  LocatedTexts annotations;
  LocatedText priority_class;
  LocatedText group;  // label scheduling.x-k8s.io/pod-group
  LocatedText scheduler_name;
  std::vector<Requirement> node_selector;
  // Any one of these must hold; empty: no matter.
  std::vector<std::vector<Requirement>> node_affinity;
  int pod_affinity_line = 0;  // of the required terms
  std::vector<Container> containers;
  std::vector<std::string> memory_volumes;  // emptyDir with medium Memory, or the node's
  // Processes per pod as the job says it (nprocPerNode, numProcPerNode), beside the command.
  LocatedText processes;
  // Its controller tells torchrun how many nodes and processes there are.
  bool launcher_is_told = false;
  std::string name;  // of a pod that stands by itself
  int told_at = 0;   // the line of what another object says of them; 0: they say it themselves
  yaml::YamlValue metadata;
  yaml::YamlValue whole;  // the template, or the Pod
  // The specs that it is read from, the later laid over the earlier; and resources that take the
  // place of those of its first container. Empty once the text is gone.
  std::vector<yaml::YamlValue> layers;
  yaml::YamlValue resources;

  // The sum over its containers, at the first line that says it. 0: nothing.
  LocatedCount Asks(std::string_view resource) const;
  bool WantsDevices() const;  // GPUs, Neuron or EFA devices
};

// A job, or the plain pods of one PodGroup.
struct Workload {
  std::string kind, name_space, name, file;
  int line = 0;
  std::vector<PodTemplate> templates;
  LocatedText queue;          // label kueue.x-k8s.io/queue-name
  LocatedText max_seconds;    // label kueue.x-k8s.io/max-exec-time-seconds
  LocatedTexts not_honoured;  // annotations of kube/objects/not_honoured.h on the job
  // Its pods are one gang (coscheduling/gangs/job_gangs.h says whose are).
  bool is_gang = true;
  bool unreadable = false;  // something of it is an error of its file
  bool elastic = false;
  int64_t elastic_least = 0;     // pods it can run with, if elastic
  LocatedCount min_available;    // runPolicy.schedulingPolicy
  LocatedCount timeout_seconds;  // the same
  LocatedText one_by_one;        // a StatefulSet's podManagementPolicy, if its pods aren't parallel
  yaml::YamlValue yaml;
  yaml::YamlValue job_set;  // the spec of the JobSet that a TrainJob's runtime makes

  std::string ToString() const;  // "PyTorchJob default/x"
};

struct PodGroup {
  std::string name_space, name, file;
  int line = 0;
  LocatedCount min_member, timeout_seconds;
  LocatedText max_seconds;
  LocatedText preemptible;  // annotation muster.dev/preemptible
};

struct PriorityClass {
  std::string name, file;
  LocatedText may_opt_out;  // annotation muster.dev/may-opt-out-up-to
};

struct NodePool {
  std::string name, file;
  int line = 0;
  bool ec2 = true;  // its node class is AWS's
  std::map<std::string, std::string> labels;
  std::vector<Requirement> requirements;
  std::vector<std::string> taints;  // their keys
  LocatedAmounts limits;
  int disruption_line = 0;
  LocatedText consolidation_policy;  // absent: WhenEmptyOrUnderutilized
  LocatedText consolidate_after;
  absl::Duration consolidate_after_value = absl::ZeroDuration();
  bool never_disrupted = false;  // a budget of zero, at all times and for all reasons
  yaml::YamlValue yaml;          // empty once the text is gone
};

struct ResourceFlavor {
  std::string name, file;
  int line = 0;
  yaml::YamlValue node_selector;  // a field that it doesn't have
  std::vector<Requirement> node_labels;
};

struct ClusterQueue {
  std::string name, file;
  LocatedText admission_mode;  // of its admissionScope
};

// An object beside the jobs, as the scheduler reads it.
struct Given {
  std::string file;
  int line = 0;
  yaml::YamlValue yaml;  // empty once the text is gone
  std::shared_ptr<const coscheduling::Observed> object;
};

// An object as it is written.
struct Written {
  std::string file;
  yaml::YamlValue yaml;
};

struct FileError {
  std::string file;
  int line = 0;
  std::string message;
};

// All that was given in one invocation.
struct Manifests {
  std::vector<Workload> workloads;
  std::vector<PodGroup> groups;
  std::vector<NodePool> pools;
  std::vector<ResourceFlavor> flavors;
  std::vector<ClusterQueue> cluster_queues;
  std::vector<PriorityClass> priority_classes;
  std::vector<Given> given;
  std::vector<Written> others;  // all that make no pods
  // What Muster's configuration says: who decides about quota, and what requests count as.
  coscheduling::QuotaMode quota_mode = coscheduling::QuotaMode::kInternal;
  quota::ResourceRules resources;
  std::vector<FileError> errors;
  // What the values above point into.
  std::vector<std::unique_ptr<yaml::YamlFile>> files;
};

struct SourceText {
  std::string file;
  std::string text;
};

Manifests ReadManifests(const std::vector<SourceText>& sources,
                        const coscheduling::EngineOptions& options = {});

// The resources that rules look at.
inline constexpr std::string_view kGpu = kube::kNvidiaGpu;
inline constexpr std::string_view kNeuron = "aws.amazon.com/neuron";
using kube::kEfa;

}  // namespace muster::lint
