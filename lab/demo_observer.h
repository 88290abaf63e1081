// When things happened, seen on the API server and not by Muster's own account: what the demo's
// claims are checked against.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace muster::kube::embedded {
class ApiServer;
class WatchSession;
struct WatchItem;
}  // namespace muster::kube::embedded

namespace muster::lab {

// A moment, and the API server's revision by which what happened is in order with everything else.
struct Moment {
  absl::Time at;
  uint64_t revision = 0;
};

struct BoundPod {
  std::string node;
  Moment bound;
};

// Watches all pods and nodes on a thread of its own. Thread-safe.
class DemoObserver {
 public:
  // `server` must outlive this; `now` is its clock.
  DemoObserver(kube::embedded::ApiServer* server, std::function<absl::Time()> now);
  ~DemoObserver();
  DemoObserver(const DemoObserver&) = delete;
  DemoObserver& operator=(const DemoObserver&) = delete;

  // By pod name: where it was bound, and when.
  std::map<std::string, BoundPod> bound_pods() const;
  // By node name: when it first was registered, initialized, Ready, without the taints of a new
  // node and with its GPU.
  std::map<std::string, Moment> complete_nodes() const;

 private:
  void Run();
  void Show(const std::vector<kube::embedded::WatchItem>& items);

  const std::function<absl::Time()> now_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;                               // guarded by mutex_
  bool ready_ = true;                                   // guarded by mutex_
  std::map<std::string, BoundPod> bound_pods_;          // guarded by mutex_
  std::map<std::string, Moment> complete_nodes_;        // guarded by mutex_
  std::unique_ptr<kube::embedded::WatchSession> pods_;  // the thread's, as nodes_
  std::unique_ptr<kube::embedded::WatchSession> nodes_;
  std::thread thread_;
};

}  // namespace muster::lab
