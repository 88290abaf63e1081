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

class ClusterWatch {
 public:
  using Post = std::function<void(EngineTask)>;

  // Transport, timer and observer (null: none) must outlive it. `post` must be thread-safe and may
  // block. `with_workloads`: Kueue's Workloads are read too, if that is allowed.
  ClusterWatch(kube::Transport& transport, kube::Timer& timer, Post post,
               ObjectObserver* observer = nullptr, bool with_workloads = false);
  // No task is posted afterwards.
  ~ClusterWatch();

  // Posts Engine::SetSynced once every kind is whole (or known to be absent). Events, which
  // only explain, and Workloads aren't waited for here nor below.
  void Start();

  // "" while every kind is synced or absent; else which isn't, and why.
  std::string NotReadyReason() const;

  struct KindStats {
    std::string kind;
    kube::ReflectorStats reflector;
    uint64_t undecodable = 0;  // objects that were left out because they can't be read
  };
  std::vector<KindStats> Stats() const;
  // In which the queues are being read.
  QueueVersions VersionsOfQueues() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::extender
