// May this pod go on this node? The required parts of kube-scheduler's filters (v1.34 to v1.37),
// exactly.
//
// Split by what they depend on, so that a planner can check each once: the class part depends only
// on pod spec and node (cacheable per class and node), the room part on what is free, the
// relational part on where other pods stand (relations.h counts that once for many pods).
//
// Left to kube-scheduler, because they need what isn't in the snapshot: volumes written in a pod
// without a claim, device claims.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/node_affinity.h"
#include "cluster/node_families.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

struct WantedVolumes;

// Why a node can't take a pod. `code` is stable, for counting and grouping; `detail` carries the
// numbers or names.
enum class RejectionCode {
  kNotUsable,  // node_stage.h
  kUnschedulable,
  kUntoleratedTaint,
  kNodeSelector,  // nodeSelector or required node affinity
  kNodeFeature,   // the kubelet doesn't declare what the pod needs it to do
  kResources,
  kHostPorts,
  kVolume,  // a bound volume can't be reached from here, or a claim isn't ready for use
  kVolumeLimit,
  kVolumeInUse,  // by another pod, which has it alone
  kPodAffinity,
  kPodAntiAffinity,
  kExistingAntiAffinity,
  kTopologySpread,
  kExcluded,  // suspect, refused by kube-scheduler, or kept for another gang
};

// "not enough free": the code in words, for what follows "3 node(s)".
const char* TextOf(RejectionCode code);

struct Rejection {
  RejectionCode code;
  std::string detail;
  bool operator==(const Rejection&) const = default;
};

// Whether somebody will read the detail of a rejection. Writing it costs more than the verdict.
enum class Detail { kWritten, kOmitted };

// Node usable now or coming (the caller decides whether it wants virtual nodes), whole if the pod
// takes whole nodes (node_stage.h, IsWholeFor; kube-scheduler knows no such rule), schedulable,
// taints tolerated, selector and node affinity met, bound volumes reachable.
//
// A virtual node that isn't registered yet is judged by its claim's requirements where its labels
// leave something open: a key with several allowed values passes if one value meets everything that
// the pod asks of this key. Before the claim is launched the same goes for the well-known keys
// that it doesn't mention (zone, instance type, architecture, those of the cloud provider); other
// keys count as absent, as Karpenter counts them.
std::optional<Rejection> CheckClass(const Snapshot& snapshot, const kube::Pod& pod,
                                    const NodeInfo& info);

// The same for one pod and many nodes of one state of the snapshot: what depends on a node's family
// only is found out once. Pod and snapshot must outlive it.
class ClassCheck {
 public:
  ClassCheck(const Snapshot& snapshot, const kube::Pod& pod);
  ~ClassCheck();
  ClassCheck(ClassCheck&&) noexcept;

  std::optional<Rejection> Check(const NodeInfo& info, Detail detail = Detail::kWritten);
  // RoomNow, but that neither class nor host ports are looked at; and NodePreferenceScore.
  int64_t RoomOn(const NodeInfo& info);
  int64_t PreferenceOn(const NodeInfo& info);

 private:
  // What the pod asks for, by position in NodeInfo::free; nullopt: the node has no such resource.
  using Asked = std::optional<std::vector<std::pair<size_t, int64_t>>>;

  const Snapshot& snapshot_;
  const kube::Pod& pod_;
  const bool looks_at_names_;
  std::unique_ptr<const WantedVolumes> wanted_;  // null: it has no claims
  PerFamily<std::optional<RejectionCode>> by_family_;
  PerFamily<Asked> asked_;
  PerFamily<int64_t> preferences_;
};

// Resources, host ports and volumes to attach (attached_volumes.h), against what stands there now;
// and that nobody has its ReadWriteOncePod claims. The pod itself doesn't count against itself if
// it stands there already.
std::optional<Rejection> CheckRoom(const Snapshot& snapshot, const kube::Pod& pod,
                                   const NodeInfo& info);
// True if more than resources decides whether the node has room.
inline bool LooksBeyondResources(const kube::PodSpec& spec) {
  return !spec.host_ports.empty() || !spec.persistent_volume_claims.empty();
}
// Why it has no room for a pod that wants so much of a resource, or of another need
// (attached_volumes.h), of which so much is free for it.
Rejection ShortOf(const NodeInfo& info, const std::string& resource, int64_t wanted, int64_t free,
                  Detail detail = Detail::kWritten);
// For how many pods like this one the node has resources: kManyPods if it asks for none, and one at
// most if it asks for host ports, whether they are free or not.
inline constexpr int64_t kManyPods = std::numeric_limits<int32_t>::max();
int64_t RoomFor(const kube::Pod& pod, const NodeInfo& info);

// For how many of them it has room now and takes them, relations aside.
int64_t RoomNow(const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info);
// At most so many pods of several classes fit beside each other on the node: of each for how many
// it has room by itself, the device of which a pod of it asks first, and how much of that.
struct ClassRoom {
  int64_t room = 0;
  std::string_view device;  // empty: of none
  int64_t amount = 0;
};
int64_t RoomBeside(const NodeInfo& info, const std::vector<ClassRoom>& classes);

// Inter-pod affinity and anti-affinity (both directions) and hard topology spread, against the
// pods that stand in the snapshot now, assumed ones included. The first pod of a group that would
// satisfy its own required affinity passes when no pod matches anywhere, as in kube-scheduler.
// Walks the pods of the snapshot: to ask for many pods or nodes, make one Relations.
std::optional<Rejection> CheckRelations(const Snapshot& snapshot, const kube::Pod& pod,
                                        const NodeInfo& info);

// CheckClass, CheckRoom and CheckRelations, first failure wins.
std::optional<Rejection> CheckAll(const Snapshot& snapshot, const kube::Pod& pod,
                                  const NodeInfo& info);

// Weight of the preferences met that don't depend on other pods (those that do: relations.h).
// Higher is better; only comparable for one pod. Each preferred term of node affinity counts its
// weight (1 to 100) if the node meets it; an untolerated PreferNoSchedule taint counts 100 against.
int64_t NodePreferenceScore(const kube::PodSpec& spec, const NodeInfo& info);

// True if the pod has inter-pod terms or spread constraints of its own that CheckRelations reads.
bool HasRelations(const kube::PodSpec& spec);
// True if it has preferred inter-pod terms or soft spread constraints.
bool HasPreferredRelations(const kube::PodSpec& spec);

// True if `term` of `owner` selects `other` (namespaces and selectors). A namespace that isn't
// known has no labels.
bool TermSelects(const Snapshot& snapshot, const kube::PodAffinityTerm& term,
                 const kube::Pod& owner, const kube::Pod& other);

// The first NoSchedule or NoExecute taint that isn't tolerated, or nullptr.
const kube::Taint* FirstUntoleratedTaint(const kube::PodSpec& spec,
                                         const std::vector<kube::Taint>& taints);
// True if two pods can't be on one node because of these ports.
bool HostPortsConflict(const kube::PodSpec& a, const kube::PodSpec& b);
// Two members of one gang can't be planned on one node: because of these ports, or because both
// have resource claims. What a node has for those isn't counted, so they are taken to need it all.
bool MembersClash(const kube::PodSpec& a, const kube::PodSpec& b);
// It may clash with others.
bool MayClash(const kube::PodSpec& spec);

// Equal keys: the same verdict from CheckClass and CheckRoom on every node. Members of a gang with
// equal keys form a class.
std::string ClassKey(const kube::Pod& pod);
// Whether they are known to have equal ones without making these: specs that were found equal are
// kept once.
inline bool ShareClass(const kube::Pod& a, const kube::Pod& b) {
  return a.spec == b.spec && a.meta.name_space == b.meta.name_space;
}

}  // namespace muster::cluster
