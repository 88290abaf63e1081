// API JSON to typed views. Unknown fields are ignored; a missing optional field takes its API
// default. InvalidArgument naming the field where a type is wrong
// ("spec.nodeName: want string, got 7").
//
// A value the API server would accept but Muster can't use (a quantity past int64, an operator of a
// later release) does not fail the decode: the object carries it in its own `error` or `spec_error`
// field, so that it is explained, not lost. A PodGroup's integers are treated so whatever their
// JSON type, and so is everything in Kueue's objects: their decode fails only for what isn't a JSON
// object.
// The annotation kubectl.kubernetes.io/last-applied-configuration is left out: nothing reads it and
// it would be most of the memory.
// Thread-safe; each thread has its own parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kube/objects/event.h"
#include "kube/objects/job.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "kube/objects/storage.h"
#include "kube/objects/workload.h"

namespace muster::kube {

template <typename T>
absl::StatusOr<T> Decode(std::string_view json) = delete;
template <>
absl::StatusOr<Pod> Decode<Pod>(std::string_view json);
template <>
absl::StatusOr<Node> Decode<Node>(std::string_view json);
template <>
absl::StatusOr<PodGroup> Decode<PodGroup>(std::string_view json);
template <>
absl::StatusOr<ResourceSlice> Decode<ResourceSlice>(std::string_view json);
template <>
absl::StatusOr<NodeClaim> Decode<NodeClaim>(std::string_view json);
template <>
absl::StatusOr<NodePool> Decode<NodePool>(std::string_view json);
template <>
absl::StatusOr<DaemonSet> Decode<DaemonSet>(std::string_view json);
template <>
absl::StatusOr<PodDisruptionBudget> Decode<PodDisruptionBudget>(std::string_view json);
template <>
absl::StatusOr<Namespace> Decode<Namespace>(std::string_view json);
template <>
absl::StatusOr<PersistentVolumeClaim> Decode<PersistentVolumeClaim>(std::string_view json);
template <>
absl::StatusOr<PersistentVolume> Decode<PersistentVolume>(std::string_view json);
template <>
absl::StatusOr<NodeClass> Decode<NodeClass>(std::string_view json);
template <>
absl::StatusOr<StorageClass> Decode<StorageClass>(std::string_view json);
template <>
absl::StatusOr<CsiNode> Decode<CsiNode>(std::string_view json);
template <>
absl::StatusOr<CsiDriver> Decode<CsiDriver>(std::string_view json);
template <>
absl::StatusOr<CsiStorageCapacity> Decode<CsiStorageCapacity>(std::string_view json);
template <>
absl::StatusOr<VolumeAttachment> Decode<VolumeAttachment>(std::string_view json);
// Of the job kinds (job.h) only metadata can fail the decode.
template <>
absl::StatusOr<Job> Decode<Job>(std::string_view json);
template <>
absl::StatusOr<StatefulSet> Decode<StatefulSet>(std::string_view json);
template <>
absl::StatusOr<JobSet> Decode<JobSet>(std::string_view json);
template <>
absl::StatusOr<PyTorchJob> Decode<PyTorchJob>(std::string_view json);
template <>
absl::StatusOr<TrainJob> Decode<TrainJob>(std::string_view json);
template <>
absl::StatusOr<MPIJob> Decode<MPIJob>(std::string_view json);
template <>
absl::StatusOr<RayCluster> Decode<RayCluster>(std::string_view json);
template <>
absl::StatusOr<RayJob> Decode<RayJob>(std::string_view json);
template <>
absl::StatusOr<Event> Decode<Event>(std::string_view json);
template <>
absl::StatusOr<ResourceFlavor> Decode<ResourceFlavor>(std::string_view json);
template <>
absl::StatusOr<Topology> Decode<Topology>(std::string_view json);
template <>
absl::StatusOr<ClusterQueue> Decode<ClusterQueue>(std::string_view json);
template <>
absl::StatusOr<LocalQueue> Decode<LocalQueue>(std::string_view json);
template <>
absl::StatusOr<Cohort> Decode<Cohort>(std::string_view json);
template <>
absl::StatusOr<WorkloadPriorityClass> Decode<WorkloadPriorityClass>(std::string_view json);
template <>
absl::StatusOr<PriorityClass> Decode<PriorityClass>(std::string_view json);
template <>
absl::StatusOr<Workload> Decode<Workload>(std::string_view json);

// What identifies an object in a watch or a list, without decoding the rest of it.
struct ObjectHeader {
  std::string name_space;  // empty for cluster-scoped objects
  std::string name;
  std::string uid;
  std::string resource_version;
};

// One line of a watch.
struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark, kError };
  Type type = Type::kError;
  std::string_view object;          // JSON of the object, a slice of the line; empty for kError
  ObjectHeader header;              // a bookmark has a resource version only
  bool initial_events_end = false;  // the bookmark that closes a WatchList's first part
  int error_code = 0;               // kError: Status.code, e.g. 410
  std::string error_message;
};
// Looks at the envelope and at metadata; that the rest of `object` is sound is for Decode to find.
absl::StatusOr<WatchEvent> DecodeWatchEvent(std::string_view line);

// One page of a LIST.
struct ListPage {
  struct Item {
    std::string_view object;  // a slice of the page; without apiVersion and kind
    ObjectHeader header;
  };
  std::string resource_version;
  std::string continue_token;  // empty on the last page
  std::vector<Item> items;
};
absl::StatusOr<ListPage> DecodeListPage(std::string_view json);

}  // namespace muster::kube
