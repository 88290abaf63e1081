#include "lab/demo_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "kube/client/timer.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/http_front.h"
#include "lab/http_extender_client.h"

namespace muster::lab {
namespace {

// How late a simulator may notice what others have changed.
constexpr absl::Duration kTick = absl::Milliseconds(5);

}  // namespace

class DemoCluster::Ticker {
 public:
  Ticker(const kube::ThreadTimer* clock, std::function<void(absl::Time)> tick,
         std::function<absl::Time()> next_wake)
      : clock_(clock),
        tick_(std::move(tick)),
        next_wake_(std::move(next_wake)),
        thread_([this] { Run(); }) {}

  ~Ticker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      tick_(clock_->Now());
      const absl::Duration wait =
          std::clamp(next_wake_() - clock_->Now(), absl::ZeroDuration(), kTick);
      lock.lock();
      changed_.wait_for(lock, absl::ToChronoNanoseconds(wait), [this] { return stopping_; });
    }
  }

  const kube::ThreadTimer* const clock_;
  const std::function<void(absl::Time)> tick_;
  const std::function<absl::Time()> next_wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

DemoCluster::DemoCluster() : clock_(std::make_unique<kube::ThreadTimer>()) {
  server_ = std::make_unique<kube::embedded::ApiServer>(
      kube::embedded::ApiServerOptions{.clock = [this] { return clock_->Now(); }});
}

DemoCluster::~DemoCluster() {
  tickers_.clear();
  // Fails the bind calls under way, whose answers the scheduler takes in any time.
  extender_.reset();
  front_.reset();
}

absl::StatusOr<std::unique_ptr<DemoCluster>> DemoCluster::Start() {
  std::unique_ptr<DemoCluster> cluster(new DemoCluster);
  kube::embedded::HttpFrontOptions options;
  options.tls = true;
  auto front = kube::embedded::HttpFront::Start(cluster->server_.get(), options);
  if (!front.ok()) return front.status();
  cluster->front_ = *std::move(front);
  return cluster;
}

std::string DemoCluster::url() const { return front_->url(); }
std::string DemoCluster::Kubeconfig() const { return front_->Kubeconfig(); }
absl::Time DemoCluster::Now() const { return clock_->Now(); }

void DemoCluster::Run(kube::simulators::KarpenterConfig karpenter,
                      kube::simulators::KubeletConfig kubelet,
                      kube::simulators::SchedulerConfig scheduler,
                      const std::string& extender_url) {
  extender_ = std::make_unique<HttpExtenderClient>(HttpExtenderOptions{.url = extender_url});
  karpenter_ =
      std::make_unique<kube::simulators::KarpenterSimulator>(server_.get(), std::move(karpenter));
  kubelet_ = std::make_unique<kube::simulators::KubeletSimulator>(server_.get(), kubelet);
  scheduler_ = std::make_unique<kube::simulators::SchedulerSimulator>(
      server_.get(), extender_.get(), std::move(scheduler));
  const auto drive = [this](auto* simulator) {
    tickers_.push_back(std::make_unique<Ticker>(
        clock_.get(), [simulator](absl::Time now) { simulator->Tick(now); },
        [simulator] { return simulator->NextWake(); }));
  };
  drive(karpenter_.get());
  drive(kubelet_.get());
  drive(scheduler_.get());
}

absl::Status DemoCluster::Submit(const std::vector<kube::Request>& requests) {
  for (const kube::Request& request : requests) {
    const kube::Response response = server_->Handle(request);
    if (response.ok()) continue;
    const absl::Status status = kube::ToStatus(response);
    return absl::Status(status.code(), fmt::format("the API server refuses {}: {}", request.path,
                                                   std::string(status.message())));
  }
  return absl::OkStatus();
}

}  // namespace muster::lab
