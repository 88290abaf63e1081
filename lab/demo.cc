#include "lab/demo.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "extender/rest_client.h"
#include "extender/service.h"
#include "extender/stop_signals.h"
#include "kube/client/kubeconfig.h"
#include "lab/demo_claims.h"
#include "lab/demo_cluster.h"
#include "lab/demo_job.h"
#include "lab/demo_observer.h"
#include "lab/demo_view.h"

namespace muster::lab {
namespace {

using extender::RestClient;
using extender::ServeOptions;
using extender::Service;
using extender::StopSignals;

constexpr int kDone = 0;
constexpr int kNo = 1;
constexpr int kFailed = 2;

constexpr const char* kFirstJob = "pytorch-dist-job";
constexpr const char* kSecondJob = "pytorch-dist-job-2";

constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr absl::Duration kReadyLimit = absl::Seconds(20);
// A part ends this long after it should have at the latest.
constexpr absl::Duration kPatience = absl::Seconds(15);

// From launch to registration, node by node.
constexpr absl::Duration kFirstNodes[] = {absl::Seconds(2), absl::Seconds(5), absl::Seconds(10),
                                          absl::Seconds(18)};
constexpr absl::Duration kSecondNodes[] = {absl::Seconds(2), absl::Seconds(3), absl::Seconds(5)};
constexpr absl::Duration kLaunch = absl::Milliseconds(500);
constexpr absl::Duration kInitialization = absl::Seconds(1);
constexpr absl::Duration kBatchIdle = absl::Seconds(1);
constexpr absl::Duration kSecondDeadline = absl::Seconds(12);

std::string Words(const absl::Status& status) { return std::string(status.message()); }

// 127.0.0.1 with this port if nobody listens there, else with a port of the system's choice.
std::string LoopbackAddress(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return fmt::format("127.0.0.1:{}", is_free ? port : 0);
}

absl::StatusOr<std::filesystem::path> MakeFolder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string folder = (parent / "muster-demo-XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError("no folder can be made in " + parent.string());
  }
  return std::filesystem::path(folder);
}

class Demo {
 public:
  explicit Demo(const DemoOptions& options) : options_(options), out_(*options.out) {}

  int Run() {
    if (absl::Status status = SetUp(); absl::IsCancelled(status)) {
      return Interrupted();
    } else if (!status.ok()) {
      keep_log_ = true;
      out_ << "muster demo: " << Words(status) << "\n";
      return kFailed;
    }
    PrintCommands();
    const bool shown = BindAtOnce() && GiveUpAtDeadline();
    if (signals_.received() != 0) return Interrupted();
    keep_log_ = !shown;
    out_ << (shown ? "\nBoth parts went as told.\n"
                   : "\nNot as told; see " + (folder_ / "muster.log").string() + "\n");
    if (options_.keep) Keep();
    return shown ? kDone : kNo;
  }

  ~Demo() {
    observer_.reset();
    if (service_ != nullptr) service_->Stop();
    service_.reset();
    cluster_.reset();
    if (before_ != nullptr) spdlog::set_default_logger(before_);
    if (folder_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove(folder_ / "kubeconfig", ignored);
    if (!keep_log_) std::filesystem::remove_all(folder_, ignored);
  }
  Demo(const Demo&) = delete;
  Demo& operator=(const Demo&) = delete;

 private:
  absl::Status SetUp() {
    absl::StatusOr<std::filesystem::path> folder = MakeFolder();
    if (!folder.ok()) return folder.status();
    folder_ = *folder;
    before_ = spdlog::default_logger();
    auto log = std::make_shared<spdlog::logger>(
        "muster-demo",
        std::make_shared<spdlog::sinks::basic_file_sink_mt>((folder_ / "muster.log").string()));
    log->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    log->flush_on(spdlog::level::info);
    spdlog::set_default_logger(std::move(log));

    absl::StatusOr<std::unique_ptr<DemoCluster>> cluster = DemoCluster::Start();
    if (!cluster.ok()) return cluster.status();
    cluster_ = *std::move(cluster);
    std::ofstream(folder_ / "kubeconfig") << cluster_->Kubeconfig();
    if (absl::Status status = StartService(); !status.ok()) return status;
    if (absl::Status status = cluster_->Submit(DemoClusterRequests()); !status.ok()) return status;
    cluster_->Run(Karpenter(), {.start = absl::Seconds(1) / options_.speed}, {},
                  fmt::format("http://127.0.0.1:{}", service_->extender_port()));
    observer_ = std::make_unique<DemoObserver>(&cluster_->server(), [this] { return Now(); });
    return AwaitReady();
  }

  absl::Status StartService() {
    const std::string kubeconfig = (folder_ / "kubeconfig").string();
    absl::StatusOr<kube::ClientConfig> client = kube::LoadKubeconfig({kubeconfig});
    if (!client.ok()) return client.status();
    ServeOptions serve;
    serve.leader_elect = false;
    serve.stop_grace = absl::Seconds(2);
    serve.extender_listen = LoopbackAddress(8888);
    serve.listen = LoopbackAddress(8080);
    serve.grpc_listen = LoopbackAddress(8081);
    // This cluster has no users.
    serve.query.authentication = extender::ServeOptions::Query::Authentication::kNone;
    serve.webhook_listen = LoopbackAddress(9443);
    serve.health_listen = LoopbackAddress(8082);
    absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(serve, *client);
    if (absl::IsUnavailable(service.status())) {
      // Somebody took one of the ports meanwhile.
      serve.extender_listen = serve.listen = serve.grpc_listen = serve.webhook_listen =
          serve.health_listen = "127.0.0.1:0";
      service = Service::Start(serve, *client);
    }
    if (!service.ok()) return service.status();
    service_ = *std::move(service);
    rest_.emplace(Url());
    return absl::OkStatus();
  }

  absl::Status AwaitReady() {
    const absl::Time until = Now() + kReadyLimit;
    for (;;) {
      const std::string missing = service_->NotReadyReason();
      if (missing.empty()) return absl::OkStatus();
      if (signals_.Wait(kLook)) return absl::CancelledError("interrupted");
      if (Now() > until) {
        return absl::DeadlineExceededError(fmt::format("the service isn't ready after {}: {}",
                                                       absl::FormatDuration(kReadyLimit), missing));
      }
    }
  }

  kube::simulators::KarpenterConfig Karpenter() const {
    kube::simulators::KarpenterConfig config;
    config.instance_types = {DemoInstanceType()};
    config.batch_idle = kBatchIdle / options_.speed;
    config.default_launch = Launch(absl::Seconds(2));
    std::vector<kube::simulators::LaunchBehavior>& launches = config.launches[kDemoNodePool];
    for (absl::Duration registration : kFirstNodes) launches.push_back(Launch(registration));
    for (absl::Duration registration : kSecondNodes) launches.push_back(Launch(registration));
    launches.push_back(Launch(absl::Seconds(2)));
    launches.back().never_registers = true;
    launches.push_back(Launch(absl::Seconds(2)));
    return config;
  }

  kube::simulators::LaunchBehavior Launch(absl::Duration registration) const {
    kube::simulators::LaunchBehavior launch;
    launch.launch = kLaunch / options_.speed;
    launch.registration = registration / options_.speed;
    launch.initialization = kInitialization / options_.speed;
    return launch;
  }

  int Interrupted() {
    out_ << "\nInterrupted.\n" << std::flush;
    return kNo;
  }

  void PrintCommands() {
    const std::string kubectl = "kubectl --kubeconfig=" + (folder_ / "kubeconfig").string();
    out_ << fmt::format(
        "Muster runs beside an API server with simulated nodes, all in this process. Meanwhile, "
        "in\n"
        "another terminal:\n"
        "  curl {0}/v1/gangs/default/{1}\n"
        "  curl {0}/v1/nodes\n"
        "  curl -N '{0}/v1/gangs?watch=true'\n"
        "  {2} get pods,podgroups,nodeclaims,nodes\n"
        "  {2} describe podgroup {1}\n"
        "A page that shows the same: {0}/\n"
        "Muster's log, kept if something goes wrong: {3}\n",
        Url(), kFirstJob, kubectl, (folder_ / "muster.log").string());
  }

  bool BindAtOnce() {
    out_ << "\nPart 1: four pods of a PyTorchJob, one GPU each; no node is there yet.\n\n"
         << std::flush;
    DemoFrame frame;
    const absl::Duration expected = kBatchIdle + kLaunch + kFirstNodes[3] + kInitialization;
    const absl::Status followed = Follow(kFirstJob, std::nullopt, expected, &frame, [&] {
      const bool all_usable = std::ranges::all_of(
          frame.nodes, [](const NodeProgress& node) { return node.reached.contains(v1::USABLE); });
      return frame.gang.state() == v1::BOUND && all_usable &&
             std::ranges::none_of(frame.nodes, &NodeProgress::held) &&
             HeldNodes(cluster_->server(), frame.nodes) == 0;
    });
    return Report(followed, BoundAtOnce(cluster_->server(), *observer_, kFirstJob, frame.nodes));
  }

  bool GiveUpAtDeadline() {
    const auto seconds =
        std::max<int64_t>(1, std::llround(absl::ToDoubleSeconds(kSecondDeadline / options_.speed)));
    out_ << fmt::format(
                "\nPart 2: the same job again, with scheduleTimeoutSeconds: {}; one of its nodes "
                "never comes.\n\n",
                seconds)
         << std::flush;
    DemoFrame frame;
    absl::Time deadline = absl::InfiniteFuture();
    absl::Time released = absl::InfiniteFuture();
    const absl::Status followed = Follow(kSecondJob, seconds, kSecondDeadline, &frame, [&] {
      if (frame.gang.state() == v1::PROVISIONING) {
        deadline = absl::FromUnixSeconds(frame.gang.deadline().seconds()) +
                   absl::Nanoseconds(frame.gang.deadline().nanos());
      }
      if (frame.gang.state() != v1::BACKING_OFF || HeldNodes(cluster_->server(), frame.nodes) > 0 ||
          PodsAtRest(cluster_->server(), kSecondJob) < kDemoMembers) {
        return false;
      }
      released = std::min(released, Now());
      return std::ranges::none_of(frame.nodes, &NodeProgress::held);
    });
    return Report(followed, DeadlineReleased(cluster_->server(), *observer_, kSecondJob,
                                             frame.nodes, released - deadline));
  }

  // Submits the job and shows it until `done`, which is asked after each look. `expected` is at
  // speed 1. DeadlineExceeded if it takes too long, Cancelled on a signal.
  template <typename Done>
  absl::Status Follow(const std::string& job, std::optional<int64_t> timeout_seconds,
                      absl::Duration expected, DemoFrame* frame, const Done& done) {
    absl::StatusOr<v1::ListNodesResponse> nodes = rest_->ListNodes();
    if (!nodes.ok()) return nodes.status();
    NodeTracker tracker(*nodes);
    const std::unique_ptr<DemoView> view = MakeView();
    const absl::Time begun = Now();
    const absl::Time limit = begun + expected / options_.speed + kPatience;
    absl::Status status = cluster_->Submit(DemoJobRequests(job, timeout_seconds));
    if (!status.ok()) return status;
    for (;;) {
      absl::StatusOr<v1::Gang> gang = rest_->GetGang("default", job);
      // Not known yet, right after its submission.
      if (!gang.ok() && !absl::IsNotFound(gang.status())) return gang.status();
      nodes = rest_->ListNodes();
      if (!nodes.ok()) return nodes.status();
      frame->elapsed = Now() - begun;
      if (gang.ok()) frame->gang = *std::move(gang);
      tracker.Update(*nodes, frame->elapsed);
      frame->nodes = tracker.nodes();
      view->Show(*frame);
      if (done()) return absl::OkStatus();
      if (Now() > limit) return absl::DeadlineExceededError("it takes too long");
      if (signals_.Wait(kLook)) return absl::CancelledError("interrupted");
    }
  }

  std::unique_ptr<DemoView> MakeView() {
    if (!options_.terminal) return std::make_unique<LineView>(&out_);
    return std::make_unique<TableView>(&out_, options_.columns, options_.rows);
  }

  bool Report(const absl::Status& followed, const std::vector<DemoClaim>& claims) {
    if (absl::IsCancelled(followed)) return false;
    bool all = followed.ok();
    out_ << "\n";
    if (!followed.ok()) out_ << "  WRONG  " << Words(followed) << "\n";
    for (const DemoClaim& claim : claims) {
      all = all && claim.holds;
      out_ << (claim.holds ? "  ok     " : "  WRONG  ") << claim.text << "\n";
    }
    out_ << std::flush;
    return all;
  }

  void Keep() {
    out_ << fmt::format(
                "\nEverything goes on until Ctrl-C. {} is tried again now and then, and waits for\n"
                "the node that doesn't come; delete that one's NodeClaim and the next try binds.\n",
                kSecondJob)
         << std::flush;
    signals_.Wait(absl::InfiniteDuration());
  }

  std::string Url() const { return fmt::format("http://127.0.0.1:{}", service_->rest_port()); }
  absl::Time Now() const { return cluster_->Now(); }

  const DemoOptions& options_;
  std::ostream& out_;
  StopSignals signals_;
  std::shared_ptr<spdlog::logger> before_;
  std::filesystem::path folder_;
  bool keep_log_ = false;
  std::unique_ptr<DemoCluster> cluster_;
  std::unique_ptr<Service> service_;
  std::optional<RestClient> rest_;
  std::unique_ptr<DemoObserver> observer_;
};

}  // namespace

int RunDemo(const DemoOptions& options) { return Demo(options).Run(); }

}  // namespace muster::lab
