// The demo's cluster, in this process and in real time: the embedded API server on a loopback port,
// and stand-ins for Karpenter, the kubelets and kube-scheduler, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/api.h"
#include "kube/simulators/karpenter_simulator.h"
#include "kube/simulators/kubelet_simulator.h"
#include "kube/simulators/scheduler_simulator.h"

namespace muster::kube {
class ThreadTimer;
}
namespace muster::kube::embedded {
class ApiServer;
class HttpFront;
}  // namespace muster::kube::embedded

namespace muster::lab {

class HttpExtenderClient;

class DemoCluster {
 public:
  // Serves HTTPS on any free port; nothing moves yet.
  static absl::StatusOr<std::unique_ptr<DemoCluster>> Start();
  // Stops everything. What speaks to the server must have stopped.
  ~DemoCluster();
  DemoCluster(const DemoCluster&) = delete;
  DemoCluster& operator=(const DemoCluster&) = delete;

  std::string url() const;
  std::string Kubeconfig() const;
  kube::embedded::ApiServer& server() { return *server_; }
  // The server's and the simulators' clock. Never steps back; any thread.
  absl::Time Now() const;

  // Starts the simulators; kube-scheduler's asks the extender at this URL. Once.
  void Run(kube::simulators::KarpenterConfig karpenter, kube::simulators::KubeletConfig kubelet,
           kube::simulators::SchedulerConfig scheduler, const std::string& extender_url);

  // One after the other, as a controller would, so webhooks are called. Stops at the first that is
  // refused.
  absl::Status Submit(const std::vector<kube::Request>& requests);

 private:
  // Ticks a simulator when it is due, and often enough to see what others have changed.
  class Ticker;

  DemoCluster();

  std::unique_ptr<kube::ThreadTimer> clock_;
  std::unique_ptr<kube::embedded::ApiServer> server_;
  std::unique_ptr<kube::embedded::HttpFront> front_;
  std::unique_ptr<HttpExtenderClient> extender_;
  std::unique_ptr<kube::simulators::KarpenterSimulator> karpenter_;
  std::unique_ptr<kube::simulators::KubeletSimulator> kubelet_;
  std::unique_ptr<kube::simulators::SchedulerSimulator> scheduler_;
  std::vector<std::unique_ptr<Ticker>> tickers_;
};

}  // namespace muster::lab
