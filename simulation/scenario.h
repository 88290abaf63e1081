// A scenario: a cluster, what happens in it and when, and what is expected of Muster.
//
// YAML, one behaviour per file, run in virtual time (world.h); tests/scenarios/README.md shows the
// form.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "muster/v1/states.pb.h"

namespace muster::simulation {

// Quantities as written ("64Gi"); the API server they are sent to judges them.
using Quantities = std::map<std::string, std::string>;
using Strings = std::map<std::string, std::string>;

struct InstanceTypeSpec {
  std::string name;
  Quantities resources;
  std::vector<std::string> zones;  // one offering each
};

// Delays of the n-th node that is bought, in the order of launch; the last entry goes for the rest.
struct NodeDelays {
  absl::Duration launch;
  absl::Duration registration;
  absl::Duration initialization;
  bool never_registers = false;
  bool insufficient_capacity = false;  // what it would have been made of is sold out
  // Until so long after its kubelet is ready it has these of its devices only.
  absl::Duration devices;
  Quantities devices_before;
};

struct DurationRange {
  absl::Duration low;
  absl::Duration high;
};

// Launches as they are drawn (workload.h): each delay between two times, each fault in so many of
// a hundred.
struct DrawnLaunches {
  DurationRange launch, registration, initialization;
  int never_registers = 0;        // percent
  int insufficient_capacity = 0;  // percent
  int incomplete = 0;             // percent: with devices_before only, until `devices` is over
  DurationRange devices;
  Quantities devices_before;
};

// Nothing can be bought there between two times since the start. An empty name stands for all.
struct OutageSpec {
  std::string instance_type;
  std::string zone;
  absl::Duration from;
  absl::Duration until = absl::InfiniteDuration();
};

// No more instances than these at a time. An empty zone stands for each by itself.
struct StockSpec {
  std::string instance_type;
  std::string zone;
  int most = 0;
};

struct NodePoolSpec {
  std::string name;
  std::vector<std::string> instance_types;
  std::vector<std::string> zones;  // that it requires; empty: any
  Strings labels;
  std::vector<std::string> taints;          // "key=value:NoSchedule"
  std::vector<std::string> startup_taints;  // likewise; they stay until a step takes them away
  Quantities limits;
  absl::Duration consolidate_after;
  std::vector<NodeDelays> delays;
  std::optional<DrawnLaunches> launches;  // instead of delays
};

struct NodeSpec {
  std::string name;  // with count above 1: NAME-0, NAME-1, ...
  int count = 1;
  Quantities resources;    // capacity
  Quantities allocatable;  // what differs from resources
  Strings labels;
  std::vector<std::string> taints;
};

// A PodGroup and its pods NAME-0 ... NAME-(members-1); without minMember bare pods.
struct GangSpec {
  std::string name;
  std::string name_space = "default";
  std::optional<int64_t> min_member;
  int first = 0;  // index of the first pod to create
  int members = 1;
  Quantities requests;
  Strings annotations;  // of each pod
  Strings node_selector;
  std::vector<std::string> tolerations;  // "key:NoSchedule" or "key"
  std::string scheduler_name;            // empty: the scenario's
  int32_t priority = 0;
  std::optional<int64_t> schedule_timeout_seconds;
  Quantities min_resources;
  absl::Duration run_time = absl::InfiniteDuration();  // of each member once it runs
  // Of each member once it is deleted; infinite: as short as may be.
  absl::Duration termination = absl::InfiniteDuration();
  std::string spec_json;  // more of the pod's spec, merged over the rest
  bool create_group = true;
};

// Objects are named KIND/NAME or KIND/NAMESPACE/NAME; the namespace defaults to "default".
struct DeleteStep {
  std::string object;
};
struct PatchStep {
  std::string object;
  std::string merge_patch_json;
  bool status = false;
};
struct ApplyStep {
  std::string manifest_json;
};
// A user who has lost patience: deletes the gang's PodGroup and members if none of them is bound or
// was.
struct AbandonStep {
  std::string name_space = "default";
  std::string name;
  int members = 1;
};
// A turn of the controller of a Job, JobSet, PyTorchJob, MPIJob, RayCluster, RayJob or StatefulSet:
// it makes the pods that the object asks for and that aren't there, or deletes them if it is
// suspended (job_controllers.h).
struct ReconcileStep {
  std::string object;
  std::string replicated_job;  // of a JobSet, only this one; of an MPIJob "Launcher" or "Worker"
  std::optional<int> only;     // as many pods at most
  std::string refused;         // why the API server takes no more; told in an event
  std::string gang;            // that these pods are expected in; empty: the object's name
};
// Muster is killed: everything it knew is gone, and so is what was under way.
struct RestartStep {};
// From now on Muster's writes of a kind (writes/action_requests.h: "gate-lift", "binding", ...)
// fail before they are sent, except the first few, until the time is over.
struct LoseWritesStep {
  std::string kind;
  int after = 0;
  absl::Duration duration = absl::InfiniteDuration();
};
// kube-scheduler leaves the node out for a time, because it is behind or knows better.
struct HideNodeStep {
  std::string node;
  absl::Duration duration = absl::InfiniteDuration();
};

// kube-scheduler's bind calls for the pod come only once the time is over: until then its volumes
// are being bound, which comes before.
struct DelayBindsStep {
  std::string pod;  // NAME or NAMESPACE/NAME
  absl::Duration duration = absl::InfiniteDuration();
};

struct Expectation {
  std::optional<absl::Duration> within;  // must come true by then; at once otherwise
  std::string gang;                      // NAME or NAMESPACE/NAME
  std::optional<v1::GangState> state;
  std::optional<v1::ReasonCode> reason;
  std::string message;  // a part of it
  // Where its nodes can be made, in order: "flavor in zone, flavor", each that lacks something with
  // " (lacks)" behind it.
  std::optional<std::string> node_sources;
  std::optional<int> bound;
  std::optional<int> gated;
  std::optional<int> signalled;
  std::optional<int> node_claims;
  std::optional<int> nodes;
  std::string node_pool;  // counts only its nodes above; empty: all
  std::optional<int> held_nodes;
  std::optional<std::string> phase;  // of the PodGroup's status
  std::optional<int> min_member;     // of the PodGroup's spec
  std::optional<std::string> owner;  // KIND/NAME of the PodGroup's controller, "" for none
  // ClusterQueue in which its Workload, and those of its members, have quota; "" for none.
  std::optional<std::string> reserved_in;
  std::optional<int> reserved_pods;  // that it is reserved for
  std::string workload_says;         // a part of the JSON of that Workload
  std::string pod;                   // with `node`: where it stands, "" for nowhere
  std::optional<std::string> node;
  std::optional<int> distinct_nodes;  // that the gang's bound members stand on
  // With those below: KIND/NAME of a job, or of a Workload, which is suspended if it isn't active.
  std::string job;
  std::optional<bool> suspended;
  std::optional<bool> restarting;  // it carries annotation muster.dev/restart
  std::string contains;            // a part of its JSON
  // All that Muster has written, by kind (writes/action_requests.h): "binding 3, event 1".
  std::optional<std::string> writes;
  bool settled = false;  // everything has come to rest, and is as it should (settled.h)
};

using Action = std::variant<GangSpec, DeleteStep, PatchStep, ApplyStep, AbandonStep, ReconcileStep,
                            RestartStep, LoseWritesStep, HideNodeStep, DelayBindsStep, Expectation>;

struct Step {
  absl::Duration at;  // since the start; never before the step above it
  Action action;
  int line = 0;
  bool may_be_refused = false;  // what it names may be gone by then
};

// One kind of gang in a mix: its name is the first part of theirs.
struct GangShape {
  int weight = 1;  // of how often it is drawn
  int fewest_members = 1, most_members = 1;
  DurationRange run_time;
  // How long its user waits for the start before deleting it.
  absl::Duration patience = absl::InfiniteDuration();
  GangSpec gang;  // all else; minMember is the number of members
  // What the first member asks for, as a PyTorchJob's master has a template of its own; empty: what
  // the others do.
  Quantities master_requests;
};

// Gangs that come one after the other, drawn from shapes (workload.h).
struct GangMix {
  int gangs = 0;
  absl::Duration from;
  absl::Duration every;  // on average: the next one comes after 0 to twice this
  std::vector<GangShape> shapes;
  int line = 0;
};

// What goes wrong on the way of Muster's writes and their answers. Shares in percent.
struct WriteFaults {
  DurationRange request;  // on its way
  DurationRange answer;
  double lost = 0;        // never reach the API server
  double refused = 0;     // answered with 409, 429, 500 or 503, and not carried out
  double unanswered = 0;  // carried out, but the answer doesn't come
};
// Of one kind's watch. Events keep their order within it; different kinds overtake each other.
struct WatchFaults {
  DurationRange latency;
  double stalls = 0;   // of the events come only after `stall`, and what follows with them
  double breaks = 0;   // of the events never come; after `stall` everything is read anew
  double repeats = 0;  // of the events are followed by the version before
  DurationRange stall;
};
// kube-scheduler's calls.
struct CallFaults {
  DurationRange latency;    // of a bind call, and of its answer
  double lost = 0;          // bind calls that never come
  double unanswered = 0;    // bind calls whose answer doesn't reach kube-scheduler
  double repeated = 0;      // bind calls that come twice
  double filter_fails = 0;  // filter calls that time out
};
// Between Muster and those it talks to, from the start until a time.
struct FaultSpec {
  uint64_t seed = 1;
  absl::Duration until = absl::InfiniteDuration();
  std::map<std::string, WriteFaults, std::less<>> writes;   // by kind of write; "any": the others
  std::map<std::string, WatchFaults, std::less<>> watches;  // by kind of object; "any": the others
  CallFaults calls;
};

// What it is about: Muster in either mode, or in one alone.
enum class Mode { kAny, kExtender, kStandalone };

struct Scenario {
  std::string name;
  std::string file;
  Mode mode = Mode::kAny;
  coscheduling::EngineOptions options;
  std::vector<InstanceTypeSpec> instance_types;
  std::vector<NodePoolSpec> node_pools;
  std::vector<NodeSpec> nodes;
  std::vector<OutageSpec> outages;
  std::vector<StockSpec> stocks;
  std::optional<GangMix> mix;
  std::optional<FaultSpec> faults;
  std::vector<Step> steps;
};

// InvalidArgument as "FILE:LINE: FIELD: what is wrong". An unknown field is an error, and so is
// what yaml/tree.h refuses.
absl::StatusOr<Scenario> ParseScenario(std::string_view yaml, std::string file);
// "-" is `in`. NotFound as "FILE:1: why" if it can't be read.
absl::StatusOr<Scenario> ReadScenario(const std::string& path, std::istream& in);
absl::StatusOr<Scenario> ReadScenario(const std::string& path);

}  // namespace muster::simulation
