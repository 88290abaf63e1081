#include "writes/answers.h"

#include <utility>

#include "absl/status/statusor.h"
#include "kube/objects/decode.h"

namespace muster::writes {
namespace {

template <typename T>
Observation Upsert(std::string_view body) {
  absl::StatusOr<T> object = kube::Decode<T>(body);
  if (!object.ok()) return nullptr;
  return [object = *std::move(object)](coscheduling::Engine& engine) { engine.Upsert(object); };
}

}  // namespace

Observation ObservationOf(AnswerKind kind, std::string_view body) {
  switch (kind) {
    case AnswerKind::kPod:
      return Upsert<kube::Pod>(body);
    case AnswerKind::kNode:
      return Upsert<kube::Node>(body);
    case AnswerKind::kPodGroup:
      return Upsert<kube::PodGroup>(body);
    case AnswerKind::kJob:
      return Upsert<kube::Job>(body);
    case AnswerKind::kJobSet:
      return Upsert<kube::JobSet>(body);
    case AnswerKind::kPyTorchJob:
      return Upsert<kube::PyTorchJob>(body);
    case AnswerKind::kTrainJob:
      return Upsert<kube::TrainJob>(body);
    case AnswerKind::kMPIJob:
      return Upsert<kube::MPIJob>(body);
    case AnswerKind::kRayCluster:
      return Upsert<kube::RayCluster>(body);
    case AnswerKind::kRayJob:
      return Upsert<kube::RayJob>(body);
    case AnswerKind::kWorkload:
      return Upsert<kube::Workload>(body);
    case AnswerKind::kVolumeClaim:
      return Upsert<kube::PersistentVolumeClaim>(body);
    case AnswerKind::kVolume:
      return Upsert<kube::PersistentVolume>(body);
    case AnswerKind::kNone:
      return nullptr;
  }
  return nullptr;
}

}  // namespace muster::writes
