#include "extender/service.h"

#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "coscheduling/engine.h"
#include "extender/access/access_control.h"
#include "extender/access/problem.h"
#include "extender/admission/warnings.h"
#include "extender/admission/webhook.h"
#include "extender/admission/webhook_address.h"
#include "extender/admission/webhook_registration.h"
#include "extender/admission/webhook_server.h"
#include "extender/admission_lint.h"
#include "extender/aggregated/api_routes.h"
#include "extender/aggregated/api_service.h"
#include "extender/aggregated/front_proxy_source.h"
#include "extender/cluster_watch.h"
#include "extender/engine_loop.h"
#include "extender/event_recorder.h"
#include "extender/executor.h"
#include "extender/filter_table.h"
#include "extender/grpc_server.h"
#include "extender/health_routes.h"
#include "extender/leader_fence.h"
#include "extender/leader_label.h"
#include "extender/leadership.h"
#include "extender/metrics.h"
#include "extender/other_kueue.h"
#include "extender/planes.h"
#include "extender/publisher.h"
#include "extender/rest_routes.h"
#include "extender/scheduler_routes.h"
#include "extender/state_store.h"
#include "extender/workload_changes.h"
#include "fmt/format.h"
#include "http/listen_address.h"
#include "http/server.h"
#include "kube/client/curl_transport.h"
#include "kube/client/lease.h"
#include "kube/client/timer.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {
namespace {

ClusterWatchOptions::WorkloadUse UseOfWorkloads(const coscheduling::EngineOptions& options) {
  using Use = ClusterWatchOptions::WorkloadUse;
  using coscheduling::QuotaMode;
  if (options.quota == QuotaMode::kInternal) return Use::kQuota;
  const bool given_back = options.quota == QuotaMode::kKueue && options.kueue_fallback;
  return given_back ? Use::kIfAllowed : Use::kNone;
}

// Tells how long ago it happened last; thread-safe.
class Heartbeat {
 public:
  void Beat() { last_ = Now(); }
  absl::Duration silent_for() const {
    return absl::FromChrono(std::chrono::steady_clock::duration(Now() - last_));
  }

 private:
  static int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  std::atomic<int64_t> last_ = Now();
};

// How often certificates, the webhook's registration and metrics are looked after.
constexpr absl::Duration kUpkeep = absl::Milliseconds(100);
// The engine's counts are taken every so many upkeeps.
constexpr int kUpkeepsPerStats = 10;
// Once everything has been read, until what came with it has been acted on.
constexpr int kUpkeepsUntilTrim = 100;
// What doesn't come from the engine's actions (events, the webhook's registration, leases) has room
// on the wire beside them.
constexpr size_t kOtherRequests = 8;
// So do questions about callers.
constexpr size_t kReviews = ReviewQueue::Options().in_flight;

std::string HostName() {
  char host[256] = "muster";
  gethostname(host, sizeof(host) - 1);
  return host;
}

// Unique among all processes that ever lead, so that a record tells who wrote it.
std::string NewIdentity() {
  std::random_device random;
  return fmt::format("{}_{:08x}{:08x}", HostName(), random(), random());
}

// A bind call that is held is an open connection, and the usual limit of 1,024 files would bound
// the size of a gang: what the system allows is taken. How many files that is.
size_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
}

// If this process is a pod of the very cluster that it serves.
std::optional<std::string> OwnPodNamespace(const kube::ClientConfig& cluster) {
  const absl::StatusOr<kube::ClientConfig> in_pod = kube::LoadInClusterConfig();
  if (!in_pod.ok() || in_pod->server != cluster.server) return std::nullopt;
  return in_pod->name_space;
}

// Those who share a Lease are replicas of one install.
std::string InstallOf(const ServeOptions& options, const kube::ClientConfig& cluster) {
  if (!options.follow.name.empty()) {
    return fmt::format("{}/{}", options.follow.name_space, options.follow.name);
  }
  return fmt::format("{}/{}",
                     options.lease_namespace.empty() ? cluster.name_space : options.lease_namespace,
                     options.lease_name);
}

std::string Words(const absl::Status& status) { return std::string(status.message()); }

// Those that say something, as one sentence.
std::string Joined(std::initializer_list<std::string> reasons) {
  std::string all;
  for (const std::string& reason : reasons) {
    if (!reason.empty()) all += (all.empty() ? "" : "; ") + reason;
  }
  return all;
}

// Both see what comes.
class Observers : public ObjectObserver {
 public:
  Observers(ObjectObserver& one, ObjectObserver& other) : one_(one), other_(other) {}
  void Upsert(std::string_view kind, const kube::ObjectHeader& header,
              std::string_view json) override {
    one_.Upsert(kind, header, json);
    other_.Upsert(kind, header, json);
  }
  void Remove(std::string_view kind, const kube::ObjectHeader& header) override {
    one_.Remove(kind, header);
    other_.Remove(kind, header);
  }

 private:
  ObjectObserver& one_;
  ObjectObserver& other_;
};

}  // namespace

struct Service::Impl {
  Impl(ServeOptions o, kube::ClientConfig c)
      : options(std::move(o)), cluster(std::move(c)), identity(NewIdentity()) {}

  // One that didn't start to the end hasn't been stopped.
  ~Impl() {
    if (loop != nullptr) loop->Stop();
    timer.Stop();
    if (access != nullptr) access->Stop();
    if (transport != nullptr) transport->Stop();
  }

  absl::Status Start() {
    files = RaiseFileLimit();
    store.SetClosed("muster is starting");
    if (!options.follow.name.empty() && !options.leader_elect) {
      return absl::InvalidArgumentError(
          "lease.follow is given, but --leader-elect=false makes this process lead in any case");
    }
    if (!options.follow.name.empty() && options.engine.standalone) {
      return absl::InvalidArgumentError(
          "lease.follow is given, but with --mode=standalone there is no kube-scheduler to follow");
    }
    if (!options.webhook.gates && !options.engine.standalone) {
      return absl::InvalidArgumentError(
          "webhook.gates is false, but without --mode=standalone kube-scheduler would place pods "
          "that aren't gated one by one");
    }
    absl::StatusOr<CrashAfter> crash = CrashAfter::Parse(CrashSetting());
    if (!crash.ok()) return crash.status();
    absl::StatusOr<std::unique_ptr<kube::CurlTransport>> made = kube::CurlTransport::Create(
        cluster, {.max_in_flight = options.max_in_flight + kOtherRequests + kReviews});
    if (!made.ok()) return made.status();
    transport = *std::move(made);
    fence = std::make_unique<LeaderFence>(*transport, timer,
                                          [this] { return started && leadership->Leads(); });
    MakeEngine(*crash);
    if (absl::Status status = StartWebhook(); !status.ok()) return status;
    if (absl::Status status = StartServers(); !status.ok()) return status;
    loop->Start();
    watch->Start();
    if (absl::Status status = StartElection(); !status.ok()) return status;
    // A pod's host name is its own name.
    if (const std::optional<std::string> name_space = OwnPodNamespace(cluster)) {
      label = std::make_unique<LeaderLabel>(*transport, *name_space, HostName());
    }
    started = true;
    ScheduleUpkeep();
    return absl::OkStatus();
  }

  static std::string CrashSetting() {
    const char* text = std::getenv("MUSTER_TEST_CRASH_AFTER");
    return text == nullptr ? "" : text;
  }

  void MakeEngine(const CrashAfter& crash) {
    EngineLoop::Options loop_options;
    loop_options.engine = options.engine;
    loop_options.engine.identity = identity;
    loop_options.engine.seed = std::random_device()();
    loop_options.clock = [this] { return timer.Now(); };
    loop = std::make_unique<EngineLoop>(
        std::move(loop_options),
        [this](coscheduling::StepOutput output, const coscheduling::Engine& engine) {
          Deliver(std::move(output), engine);
        });
    auto post = [this](EngineTask task) { loop->Post(std::move(task)); };
    executor = std::make_unique<Executor>(
        *fence, timer, kube::ConcurrencyOptions{.most = options.max_in_flight}, post,
        [this](std::string_view kind, const absl::Status& status, absl::Duration took) {
          metrics.OnAction(kind, status, took);
          if (status.ok()) return;
          spdlog::warn("action={} took={} failed: {}", kind, absl::FormatDuration(took),
                       Words(status));
        },
        crash, [this] { return VersionsOfQueues(); });
    events =
        std::make_unique<EventRecorder>(*fence, timer, EventRecorderOptions{.instance = identity});
    admission_lint = std::make_unique<AdmissionLint>(options.engine, [this] {
      const std::lock_guard lock(watch_mutex);
      return watch != nullptr && watch->NotReadyReason().empty();
    });
    workload_changes = std::make_unique<WorkloadChanges>(
        WorkloadChanges::Tell{
            .admitted = [this](const std::string& queue,
                               absl::Duration wait) { metrics.OnAdmitted(queue, wait); },
            .evicted = [this](const std::string& queue,
                              const std::string& reason) { metrics.OnEvicted(queue, reason); },
            .preempted = [this](const std::string& queue,
                                const std::string& reason) { metrics.OnPreempted(queue, reason); }},
        // Elsewhere Kueue tells.
        [this] {
          return options.engine.quota == coscheduling::QuotaMode::kInternal && started &&
                 leadership->Leads();
        });
    observers = std::make_unique<Observers>(*admission_lint, *workload_changes);
    watch = std::make_unique<ClusterWatch>(
        *transport, timer,
        ClusterWatchOptions{.scheduler_name = options.engine.scheduler_name,
                            .workloads = UseOfWorkloads(options.engine)},
        EngineIntake{
            .post = post,
            .post_latest = [this](std::string_view key,
                                  EngineTask task) { loop->PostLatest(key, std::move(task)); },
            .await_room = [this] { loop->AwaitRoom(); }},
        observers.get());
    scheduler_routes = std::make_unique<SchedulerRoutes>(
        filter_table,
        SchedulerRoutesOptions{
            .post_urgent = [this](EngineTask task) { loop->PostUrgent(std::move(task)); },
            .on_filter = [this](FilterReply::Outcome outcome,
                                absl::Duration took) { metrics.OnFilter(outcome, took); },
            .on_bind = [this](bool bound, absl::Duration took) { metrics.OnBind(bound, took); },
            .clock = [this] { return timer.Now(); },
            .not_leading = [this] { return NotLeading(); }});
    const ServeOptions::KueueLease& lease = options.kueue_lease;
    if (options.engine.quota == coscheduling::QuotaMode::kInternal && !lease.name.empty()) {
      other_kueue = std::make_unique<OtherKueue>(*transport, lease.name_space, lease.name);
      LookForKueue(timer.Now());
    }
  }

  writes::QueueVersions VersionsOfQueues() {
    const std::lock_guard lock(watch_mutex);
    return watch == nullptr ? writes::QueueVersions() : watch->VersionsOfQueues();
  }

  // On the engine's thread, after each step. Answers first: a gate that is lifted makes
  // kube-scheduler ask at once.
  void Deliver(coscheduling::StepOutput output, const coscheduling::Engine& engine) {
    filter_table.Apply(output.filter_answers);
    for (const coscheduling::DecisionNote& note : output.notes) {
      spdlog::info("gang={} state={} reason={} {}", note.gang.ToString(),
                   v1::GangState_Name(note.state), v1::ReasonCode_Name(note.reason), note.message);
    }
    std::vector<coscheduling::NumberedAction> writes;
    for (coscheduling::NumberedAction& action : output.actions) {
      if (const auto* answer = std::get_if<coscheduling::AnswerBind>(&action.action)) {
        scheduler_routes->AnswerBind(answer->request, answer->error);
      } else if (const auto* event = std::get_if<coscheduling::EmitEvent>(&action.action)) {
        events->Record(*event);
      } else {
        writes.push_back(std::move(action));
      }
    }
    executor->CarryOut(std::move(writes));
    needs_gate = engine.NeedsGate();
    publisher.OnStep(output, engine, timer.Now());
    nodes_put_off = publisher.NextFlush() != absl::InfiniteFuture();
  }

  std::function<void(std::string_view, int, absl::Duration)> Observe(const char* server) {
    return [this, server](std::string_view pattern, int status, absl::Duration took) {
      metrics.OnHttp(server, pattern, status, took);
    };
  }

  absl::Status StartExtender() {
    if (options.engine.standalone) return absl::OkStatus();
    http::ServerOptions control = ControlPlane(options.extender_listen);
    control.observe = Observe("extender");
    auto scheduler = http::Server::Start(std::move(control), scheduler_routes->Routes());
    if (!scheduler.ok()) return scheduler.status();
    extender_server = *std::move(scheduler);
    return absl::OkStatus();
  }

  absl::Status StartServers() {
    if (absl::Status status = StartExtender(); !status.ok()) return status;
    if (absl::Status status = StartHealth(); !status.ok()) return status;
    using Authentication = ServeOptions::Query::Authentication;
    const bool by_token = options.query.authentication == Authentication::kToken;
    const bool aggregated = !options.aggregated_listen.empty();
    if (by_token || aggregated) {
      access = std::make_unique<AccessControl>(
          *transport, [this] { return timer.Now(); },
          AccessOptions{.audiences = options.query.audiences});
    }
    if (aggregated) {
      if (absl::Status status = StartAggregated(); !status.ok()) return status;
    }
    RestSources sources;
    sources.access = by_token ? access.get() : nullptr;
    sources.store = &store;
    sources.metrics = [this] { return MetricsText(); };
    sources.not_ready_reason = [this] { return NotReadyReason(); };
    sources.no_leader_reason = [this] { return WhyNoLeader(); };
    http::ServerOptions query = QueryPlane(options.listen, files);
    query.observe = Observe("rest");
    query.refusal = Problem;
    std::optional<http::Certificate> certificate;
    if (by_token) certificate = webhook_server->certificate();
    query.certificate = certificate;
    query.also_in_clear = true;
    auto rest = http::Server::Start(std::move(query), RestRoutes(std::move(sources)));
    if (!rest.ok()) return rest.status();
    rest_server = *std::move(rest);
    auto grpc = GrpcServer::Start({.listen = options.grpc_listen,
                                   .max_connections = GrpcConnections(files),
                                   .niceness = kQueryNiceness,
                                   .certificate = std::move(certificate),
                                   .access = sources.access},
                                  &store);
    if (!grpc.ok()) return grpc.status();
    grpc_server = *std::move(grpc);
    grpc_server->SetServing(false);  // until it is known who leads
    return absl::OkStatus();
  }

  absl::Status StartAggregated() {
    http::ServerOptions server = AggregatedPlane(options.aggregated_listen);
    server.certificate = webhook_server->certificate();
    server.refusal = ApiRefusal;
    server.observe = Observe("aggregated");
    auto started = http::Server::Start(
        std::move(server),
        ApiRoutes({.store = &store, .access = access.get(), .proxy = &front_proxy, .clock = [this] {
                     return timer.Now();
                   }}));
    if (!started.ok()) return started.status();
    aggregated_server = *std::move(started);
    front_proxy_source = std::make_unique<FrontProxySource>(*transport, front_proxy);
    api_service = std::make_unique<ApiService>(*transport);
    return absl::OkStatus();
  }

  absl::Status StartHealth() {
    HealthSources sources;
    sources.not_ready_reason = [this] { return NotReadyReason(); };
    sources.no_leader_reason = [this] { return WhyNoLeader(); };
    const auto plane = [this, &sources](const char* name, std::function<std::string()> fault) {
      sources.planes.push_back(
          {name, [this, fault = std::move(fault)] { return started ? fault() : std::string(); }});
    };
    plane("control", [this] {
      return Joined({SilenceOf("the engine", engine_beat.silent_for()),
                     SilenceOf("the timer", timer_beat.silent_for()),
                     extender_server == nullptr
                         ? ""
                         : SilenceOf("the extender's server", extender_server->silent_for())});
    });
    plane("query", [this] {
      return Joined({SilenceOf("the query server", rest_server->silent_for()),
                     aggregated_server == nullptr ? ""
                                                  : SilenceOf("the aggregated API's server",
                                                              aggregated_server->silent_for())});
    });
    plane("webhook", [this] {
      const std::string silence = SilenceOf("the webhook's server", webhook_server->silent_for());
      const std::lock_guard lock(mutex);
      return Joined({webhook_fault, silence});
    });
    http::ServerOptions health = HealthPlane(options.health_listen);
    health.observe = Observe("health");
    auto server = http::Server::Start(std::move(health), HealthRoutes(std::move(sources)));
    if (!server.ok()) return server.status();
    health_server = *std::move(server);
    return absl::OkStatus();
  }

  absl::Status StartWebhook() {
    WebhookServerOptions server;
    server.listen = options.webhook_listen;
    server.gate = {.scheduler_name = options.engine.scheduler_name,
                   .guards_queues = options.engine.quota == coscheduling::QuotaMode::kInternal,
                   .gates = [this] { return options.webhook.gates && needs_gate; }};
    const bool guards_queues = server.gate.guards_queues;
    server.observe = Observe("webhook");
    server.certificates.certificate_validity = options.webhook.cert_validity;
    if (!options.webhook.cert_file.empty()) {
      server.certificates.files = CertificateFiles{.certificate = options.webhook.cert_file,
                                                   .key = options.webhook.key_file,
                                                   .authority = options.webhook.ca_file};
    }
    if (options.webhook.warnings) {
      server.linter = [this](std::string_view name_space, std::string_view json) {
        lint::ObjectLint found = admission_lint->Check(name_space, json);
        metrics.OnObjectLint(found);
        return found;
      };
    }
    absl::StatusOr<http::ListenAddress> address = http::ParseListenAddress(options.webhook_listen);
    if (!address.ok()) return address.status();
    auto called_as = ServiceToRegister({.name_space = options.webhook.service_namespace,
                                        .name = options.webhook.service_name,
                                        .port = options.webhook.service_port},
                                       address->host, OwnPodNamespace(cluster));
    if (!called_as.ok()) return called_as.status();
    server.certificates.names =
        *called_as ? NamesForService(**called_as) : NamesForUrl(address->host);
    // A given certificate need not have them.
    if (!server.certificates.files) AddQueryNames(&server.certificates.names);
    auto started = WebhookServer::Start(std::move(server), timer.Now());
    if (!started.ok()) return started.status();
    webhook_server = *std::move(started);
    WantedWebhook wanted;
    wanted.scheduler_name = options.engine.scheduler_name;
    wanted.install = InstallOf(options, cluster);
    wanted.guards_queues = guards_queues;
    wanted.gates = options.webhook.gates;
    wanted.ca_bundle = webhook_server->CaBundlePem();
    wanted.service = *std::move(called_as);
    const auto keep = [&](WebhookPurpose purpose, std::string_view path) {
      wanted.purpose = purpose;
      if (!wanted.service) wanted.url = WebhookUrl(address->host, webhook_server->port(), path);
      // Upkeep comes by often enough: nothing is to be woken.
      return std::make_unique<WebhookRegistration>(
          WebhookRegistrationOptions{.webhook = wanted, .leading = !options.leader_elect},
          *transport, [] {});
    };
    registration = keep(WebhookPurpose::kGate, kMutatePodsPath);
    wanted.enabled = options.webhook.warnings;
    warnings = keep(WebhookPurpose::kWarnings, kWarningsPath);
    return absl::OkStatus();
  }

  // By which those who query may call this process.
  void AddQueryNames(CertificateNames* names) {
    const ServeOptions::Query& query = options.query;
    if (query.authentication == ServeOptions::Query::Authentication::kNone &&
        options.aggregated_listen.empty()) {
      return;
    }
    const std::string name_space = query.service_namespace.empty()
                                       ? OwnPodNamespace(cluster).value_or("")
                                       : query.service_namespace;
    if (!query.service_name.empty() && !name_space.empty()) {
      names->dns.push_back(fmt::format("{}.{}.svc", query.service_name, name_space));
      names->dns.push_back(fmt::format("{}.{}", query.service_name, name_space));
    }
    names->dns.push_back("localhost");
    for (const std::string& listen :
         {options.listen, options.grpc_listen, options.aggregated_listen}) {
      const absl::StatusOr<http::ListenAddress> address = http::ParseListenAddress(listen);
      if (!address.ok()) continue;
      for (const std::string& ip : NamesForUrl(address->host).ips) {
        if (std::find(names->ips.begin(), names->ips.end(), ip) == names->ips.end()) {
          names->ips.push_back(ip);
        }
      }
    }
  }

  absl::Status StartElection() {
    auto changed = [this](bool leading) {
      spdlog::info("leading={}", leading);
      if (!leading) events->Forget();
      loop->PostUrgent(
          [leading](coscheduling::Engine& engine, absl::Time) { engine.SetLeading(leading); });
    };
    loop->Post([](coscheduling::Engine& engine, absl::Time) { engine.SetLeading(false); });
    absl::Status valid;
    const auto make = [&](Leadership::Changed told) -> std::unique_ptr<Leadership> {
      if (!options.leader_elect) return Leadership::Always(told);
      if (!options.follow.name.empty()) return FollowScheduler(std::move(told));
      const kube::LeaseOptions lease = OwnLease();
      valid = kube::Validate(lease);
      if (!valid.ok()) return nullptr;
      return Leadership::Elect(*transport, timer, lease, std::move(told));
    };
    leadership = Leadership::Restrict(make, changed, "of which install the webhook is isn't known");
    if (!valid.ok()) leadership.reset();
    return valid;
  }

  std::unique_ptr<Leadership> FollowScheduler(Leadership::Changed changed) {
    const std::string& prefix = options.follow.holder_prefix;
    return Leadership::Follow(*transport, timer,
                              {.name_space = options.follow.name_space,
                               .name = options.follow.name,
                               .holder_prefix = prefix.empty() ? HostName() + "_" : prefix},
                              std::move(changed));
  }

  kube::LeaseOptions OwnLease() const {
    kube::LeaseOptions lease;
    lease.name_space =
        options.lease_namespace.empty() ? cluster.name_space : options.lease_namespace;
    lease.name = options.lease_name;
    lease.identity = identity;
    // A pod's host name is its own, and its containers live one after the other.
    if (OwnPodNamespace(cluster)) lease.former = HostName() + "_";
    return lease;
  }

  // "" if this process leads.
  std::string NotLeading() const {
    if (!started) return "muster is starting";
    if (leadership->Leads()) return "";
    if (const std::string why = leadership->Reason(); !why.empty() && leadership->HoldsLead()) {
      return "not leading: " + why;
    }
    const std::string leader = leadership->Holder();
    return leader.empty() ? "not leading; no leader is known" : "not leading; leader is " + leader;
  }

  void ScheduleUpkeep() {
    const std::lock_guard lock(mutex);
    if (!stopping) upkeep_alarm = timer.After(kUpkeep, [this] { Upkeep(); });
  }

  // "" while the API server calls the webhook and trusts what it is served with.
  void PublishWebhookFault(std::string fault) {
    const bool active = fault.empty();
    {
      const std::lock_guard lock(mutex);
      if (webhook_fault == fault) return;
      webhook_fault = fault;
    }
    if (active) {
      spdlog::info("webhook in place=true");
    } else {
      spdlog::warn("webhook in place=false: {}", fault);
    }
    if (gating_active.exchange(active) == active) return;
    loop->PostLatest("gating", [active](coscheduling::Engine& engine, absl::Time) {
      engine.SetGatingActive(active);
    });
  }

  void LookForKueue(absl::Time now) {
    if (other_kueue == nullptr) return;
    std::optional<quota::Wait> why = other_kueue->Tick(now);
    another_kueue = other_kueue->IsRunning();
    if (!why) return;
    loop->PostLatest("other Kueue",
                     [why = *std::move(why)](coscheduling::Engine& engine, absl::Time) {
                       engine.CloseQuota(why);
                     });
  }

  void ServeQueriesBy(const http::Certificate& certificate) {
    // The webhook's server has taken it before.
    if (options.query.authentication == ServeOptions::Query::Authentication::kToken) {
      if (!rest_server->SetCertificate(certificate).ok()) std::abort();
      grpc_server->SetCertificate(certificate);
    }
    if (aggregated_server != nullptr && !aggregated_server->SetCertificate(certificate).ok()) {
      std::abort();
    }
  }

  void KeepAggregated(absl::Time now) {
    if (aggregated_server == nullptr) return;
    front_proxy_source->Tick(now);
    api_service->SetCaBundle(webhook_server->CaBundlePem());
    api_service->Tick(now);
  }

  // On the timer's thread.
  void Upkeep() {
    const absl::Time now = timer.Now();
    timer_beat.Beat();
    LookForKueue(now);
    if (label != nullptr) label->Tick(now, leadership->Leads());
    if (webhook_server->Tick(now)) ServeQueriesBy(webhook_server->certificate());
    KeepAggregated(now);
    certificate_expires = absl::ToUnixSeconds(webhook_server->certificate_expires());
    for (WebhookRegistration* each : {registration.get(), warnings.get()}) {
      each->SetCaBundle(webhook_server->CaBundlePem());
      each->SetLeading(leadership->HoldsLead());
      each->Tick(now);
    }
    if (const std::optional<std::string> other = registration->OtherInstall()) {
      leadership->SetReason(*other);
    }
    const std::string not_leading = NotLeading();
    store.SetClosed(not_leading);
    grpc_server->SetServing(not_leading.empty());
    webhook_server->SetTrusted(registration->registered_bundle());
    PublishWebhookFault(
        Joined({Words(registration->InPlace()), Words(webhook_server->Health(now))}));
    TrimOnce();
    if (++upkeeps % kUpkeepsPerStats == 0) {
      metrics.OnLongestStep(now, loop->TakeStats());
      metrics.OnNodes(now, leadership->Leads() ? store.List(Listed::kNodes).get() : nullptr);
      loop->PostLatest("stats", [this](coscheduling::Engine& engine, absl::Time) {
        engine_beat.Beat();
        metrics.OnEngine(engine.TakeStats());
      });
    }
    if (nodes_put_off.exchange(false)) {
      loop->PostLatest("flush", [this](coscheduling::Engine& engine, absl::Time at) {
        publisher.Flush(engine, at);
      });
    }
    ScheduleUpkeep();
  }

  std::string NotReadyReason() const {
    if (stopping) return "stopping";
    if (!started) return "starting";
    const std::string caches = watch->NotReadyReason();
    // The gate and the queries don't need a leader: once one has been known, this process stays in
    // its Services, however long the schedulers take to have another.
    std::string leader = WhyNoLeader();
    if (leader.empty()) leader_was_known = true;
    if (leader_was_known) leader.clear();
    const std::lock_guard lock(mutex);
    return Joined({caches, webhook_fault, leadership->WhyOutOfTouch(), leader});
  }

  std::string WhyNoLeader() const { return started ? leadership->WhyNoLeader() : ""; }

  // Reading a large cluster takes more memory than knowing it: the difference goes back.
  void TrimOnce() {
    if (upkeeps_read >= kUpkeepsUntilTrim || !watch->NotReadyReason().empty()) return;
    if (++upkeeps_read == kUpkeepsUntilTrim) malloc_trim(0);
  }

  std::string MetricsText() {
    Metrics::Sample sample;
    sample.now = timer.Now();
    sample.gangs = store.Gangs({});
    sample.queues = store.List(Listed::kQueues);
    sample.loop = loop->TakeStats();
    metrics.OnLongestStep(sample.now, sample.loop);
    sample.process = ReadProcessStats();
    if (certificate_expires != 0) {
      sample.certificate_expires = absl::FromUnixSeconds(certificate_expires);
    }
    sample.api = transport->Stats();
    sample.watches = watch->Stats();
    sample.events = events->stats();
    sample.actions = executor->stats();
    sample.held_binds = scheduler_routes->held_binds();
    sample.filter_answers = filter_table.size();
    sample.subscriptions = store.subscriptions();
    if (access != nullptr) sample.access = access->stats();
    sample.ready = NotReadyReason().empty();
    if (started) {
      sample.connections = {{"rest", rest_server->connection_counts()},
                            {"grpc", grpc_server->connection_counts()},
                            {"webhook", webhook_server->connection_counts()},
                            {"health", health_server->connection_counts()}};
      if (extender_server != nullptr) {
        sample.connections.emplace_back("extender", extender_server->connection_counts());
      }
      if (aggregated_server != nullptr) {
        sample.connections.emplace_back("aggregated", aggregated_server->connection_counts());
      }
      sample.leading = leadership->Leads();
      sample.leader_known = leadership->WhyNoLeader().empty();
      sample.transitions = leadership->transitions();
    }
    sample.webhook_in_place = gating_active;
    sample.warnings_in_place = options.webhook.warnings && warnings->InPlace().ok();
    sample.another_kueue = another_kueue;
    return metrics.Text(sample);
  }

  void Stop() {
    {
      const std::lock_guard lock(mutex);
      if (stopping.exchange(true)) return;
    }
    timer.Cancel(upkeep_alarm);
    scheduler_routes->RefuseNew("muster is stopping");
    AwaitCommits();
    if (leadership != nullptr) leadership->Stop(absl::Seconds(2));
    scheduler_routes->Refuse("muster is stopping");
    // Who waits to be known isn't waited for.
    if (access != nullptr) access->Stop();
    // The servers first: their handlers read everything below.
    if (extender_server != nullptr) extender_server->Stop(absl::Seconds(1));
    rest_server->Stop(absl::Seconds(1));
    grpc_server->Stop(absl::Seconds(1));
    if (aggregated_server != nullptr) aggregated_server->Stop(absl::Seconds(1));
    webhook_server->Stop(absl::Seconds(1));
    health_server->Stop(absl::Seconds(1));
    StopWatching();
    loop->Stop();
    // No answer and no alarm is looked at from here on: what they'd use goes.
    timer.Stop();
    transport->Stop();
    // Their writes ask who leads.
    executor.reset();
    events.reset();
    fence.reset();
    leadership.reset();
    label.reset();
    transport.reset();
  }

  void StopWatching() {
    // Ends after the lock does: it waits for callbacks, and the engine's thread may be waiting for
    // the lock.
    std::unique_ptr<ClusterWatch> ending;
    const std::lock_guard lock(watch_mutex);
    ending = std::move(watch);
  }

  // Until no write is under way and no bind call waits, so that no gang is left in part.
  void AwaitCommits() {
    const absl::Time until = timer.Now() + options.stop_grace;
    while (timer.Now() < until) {
      size_t busy = 0;
      loop->Run([&busy](coscheduling::Engine& engine, absl::Time) {
        busy = engine.TakeStats().in_flight;
      });
      if (busy == 0 && scheduler_routes->held_binds() == 0) return;
      absl::SleepFor(absl::Milliseconds(20));
    }
    spdlog::warn("stopping with writes under way after {}",
                 absl::FormatDuration(options.stop_grace));
  }

  const ServeOptions options;
  const kube::ClientConfig cluster;
  const std::string identity;
  kube::ThreadTimer timer;
  std::unique_ptr<kube::CurlTransport> transport;
  std::unique_ptr<LeaderFence> fence;  // around `transport`, for what only a leader writes
  FilterTable filter_table;
  std::unique_ptr<EventRecorder> events;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<SchedulerRoutes> scheduler_routes;
  std::unique_ptr<EngineLoop> loop;
  std::mutex watch_mutex;  // for the engine's thread, which may look at `watch` while it goes
  std::unique_ptr<AdmissionLint> admission_lint;
  std::unique_ptr<WorkloadChanges> workload_changes;
  std::unique_ptr<Observers> observers;  // of both
  std::unique_ptr<ClusterWatch> watch;
  std::unique_ptr<Leadership::Restricted> leadership;  // set before `started` is
  std::unique_ptr<LeaderLabel> label;  // in a pod; the timer's thread only, once started
  StateStore store{{.subscriptions = kWatches}};
  Metrics metrics;
  Distributor distributor{&store, kQueryNiceness};
  Publisher publisher{&distributor};  // the engine's thread only
  std::atomic<bool> nodes_put_off = false;
  std::unique_ptr<WebhookServer> webhook_server;      // the timer's thread only, once started
  std::unique_ptr<WebhookRegistration> registration;  // likewise: the gate's
  std::unique_ptr<WebhookRegistration> warnings;      // likewise; readiness doesn't ask for it
  int upkeeps = 0;                                    // likewise
  int upkeeps_read = 0;                     // likewise; those since everything has been read
  std::unique_ptr<OtherKueue> other_kueue;  // likewise; null: it isn't asked for
  std::atomic<bool> another_kueue = false;
  std::atomic<bool> gating_active = false;
  std::atomic<bool> needs_gate = true;
  std::atomic<int64_t> certificate_expires = 0;   // Unix seconds; 0: not known yet
  std::unique_ptr<AccessControl> access;          // null: everyone may ask
  std::unique_ptr<http::Server> extender_server;  // null: standalone
  std::unique_ptr<http::Server> rest_server;
  std::unique_ptr<GrpcServer> grpc_server;
  FrontProxy front_proxy;
  std::unique_ptr<http::Server> aggregated_server;       // null: not served, as the next
  std::unique_ptr<FrontProxySource> front_proxy_source;  // the timer's thread only, once started
  std::unique_ptr<ApiService> api_service;               // likewise
  std::unique_ptr<http::Server> health_server;
  size_t files = 0;  // that may be open
  Heartbeat engine_beat;
  Heartbeat timer_beat;
  mutable std::mutex mutex;  // guards the next two
  kube::Timer::Id upkeep_alarm = 0;
  std::string webhook_fault = "the webhook's registration has not been looked at yet";
  std::atomic<bool> started = false;
  mutable std::atomic<bool> leader_was_known = false;
  std::atomic<bool> stopping = false;
};

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Service::~Service() { Stop(); }

absl::StatusOr<std::unique_ptr<Service>> Service::Start(ServeOptions options,
                                                        kube::ClientConfig cluster) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(cluster));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

std::string Service::NotReadyReason() const { return impl_->NotReadyReason(); }
uint16_t Service::extender_port() const {
  return impl_->extender_server == nullptr ? 0 : impl_->extender_server->port();
}
uint16_t Service::rest_port() const { return impl_->rest_server->port(); }
uint16_t Service::grpc_port() const { return impl_->grpc_server->port(); }
uint16_t Service::webhook_port() const { return impl_->webhook_server->port(); }
uint16_t Service::health_port() const { return impl_->health_server->port(); }
uint16_t Service::aggregated_port() const {
  return impl_->aggregated_server == nullptr ? 0 : impl_->aggregated_server->port();
}
void Service::Stop() { impl_->Stop(); }

}  // namespace muster::extender
