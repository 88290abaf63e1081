// Everything the engine observes of the cluster: one reflector per kind, decoded on the transport's
// thread, handed to the engine's thread object by object.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "extender/executor.h"
#include "kube/api.h"
#include "kube/client/reflector.h"
#include "kube/client/timer.h"
#include "writes/action_requests.h"

namespace muster::extender {

// Sees the objects as they come, on the transport's threads, before the engine does.
class ObjectObserver {
 public:
  virtual ~ObjectObserver() = default;
  // `kind` as KindStats names it; `json` as ReflectorSink::Upsert gets it.
  virtual void Upsert(std::string_view kind, const kube::ObjectHeader& header,
                      std::string_view json) = 0;
  virtual void Remove(std::string_view kind, const kube::ObjectHeader& header) = 0;
};

// How what is observed gets to the engine's thread. The first two never block: they are called with
// a reflector's lock held, which the timer's thread and the engine's take too.
struct EngineIntake {
  std::function<void(EngineTask)> post;
  // Of tasks with the same key that wait, only the newest is run.
  std::function<void(std::string_view key, EngineTask)> post_latest;
  // Called between two lines of a watch, with no lock held: may wait for a moment.
  std::function<void()> await_room;
};

struct ClusterWatchOptions {
  // Pods of other schedulers lose what only members need (kube/objects/occupants.h).
  std::string scheduler_name;
  // Kueue's Workloads are read too: where quota lies in them they are waited for, elsewhere they
  // are read if that is allowed.
  enum class WorkloadUse { kNone, kIfAllowed, kQuota };
  WorkloadUse workloads = WorkloadUse::kNone;
};

class ClusterWatch {
 public:
  // Transport, timer and observer (null: none) must outlive it. `intake` must be thread-safe.
  ClusterWatch(kube::Transport& transport, kube::Timer& timer, const ClusterWatchOptions& options,
               EngineIntake intake, ObjectObserver* observer = nullptr);
  // No task is posted afterwards.
  ~ClusterWatch();

  // Posts Engine::SetSynced once every kind is whole (or known to be absent). Events, which
  // only explain, aren't waited for here nor below, nor Workloads that hold no quota of ours.
  void Start();

  // "" while every kind is synced or absent; else which isn't, and why.
  std::string NotReadyReason() const;

  struct KindStats {
    std::string kind;
    kube::ReflectorStats reflector;
    uint64_t undecodable = 0;  // objects that were left out because they can't be read
  };
  std::vector<KindStats> Stats() const;
  // In which the queues are being read. The engine's thread asks too.
  writes::QueueVersions VersionsOfQueues() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::extender
