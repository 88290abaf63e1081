#include "extender/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>

#include "extender/gpu_time.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

#ifndef MUSTER_VERSION
#error "MUSTER_VERSION comes from CMake"
#endif

namespace muster::extender {
namespace {

using prometheus::ClientMetric;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = Histogram::BucketBoundaries;
using Labels = std::map<std::string, std::string>;

// Filter runs inside kube-scheduler's loop: fractions of a millisecond matter. Beyond the second
// that is too long there are more, as no quantile is told to lie beyond the last.
const Buckets kFilterBuckets = {0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005,
                                0.01,    0.025,  0.1,     1,      2.5,   5};
const Buckets kRequestBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                 0.25,  0.5,    1,     2.5,  5,     10,   30};
// Gangs live from seconds to days.
const Buckets kGangBuckets = {0.1, 0.5, 1,   2,    5,    10,    30,   60,
                              120, 300, 600, 1200, 3600, 14400, 86400};

// Of admissions and what they wait for: as Kueue's, up to three hours.
const Buckets kQueueBuckets = {1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240};
// The longest step is that of the last one to two of these.
constexpr absl::Duration kStepWindow = absl::Minutes(1);

std::string_view NameOf(FilterReply::Outcome outcome) {
  switch (outcome) {
    case FilterReply::Outcome::kPlanned:
      return "planned";
    case FilterReply::Outcome::kUnresolvable:
      return "unresolvable";
    case FilterReply::Outcome::kHeld:
      return "held";
    case FilterReply::Outcome::kUnknownPod:
      return "unknown_pod";
    case FilterReply::Outcome::kRefused:
      return "refused";
  }
  return "";
}

std::string_view NameOf(kube::ReflectorState state) {
  switch (state) {
    case kube::ReflectorState::kSyncing:
      return "syncing";
    case kube::ReflectorState::kSynced:
      return "synced";
    case kube::ReflectorState::kStale:
      return "stale";
    case kube::ReflectorState::kAbsent:
      return "absent";
  }
  return "";
}

// Families made at the moment of a scrape from counts that others keep.
class Snapshot {
 public:
  explicit Snapshot(std::vector<MetricFamily> families) : families_(std::move(families)) {}

  void Gauge(std::string_view name, std::string_view help, double value,
             const Labels& labels = {}) {
    Add(name, help, MetricType::Gauge, labels).gauge.value = value;
  }
  void Counter(std::string_view name, std::string_view help, double value,
               const Labels& labels = {}) {
    Add(name, help, MetricType::Counter, labels).counter.value = value;
  }
  // `counts` has one more entry than `bounds`, in seconds: what is above the last.
  template <typename Counts, typename Bounds>
  void Distribution(std::string_view name, std::string_view help, const Counts& counts,
                    const Bounds& bounds, double sum) {
    ClientMetric::Histogram& histogram = Add(name, help, MetricType::Histogram, {}).histogram;
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      cumulative += counts[i];
      histogram.bucket.push_back(
          {cumulative, i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity()});
    }
    histogram.sample_count = cumulative;
    histogram.sample_sum = sum;
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  ClientMetric& Add(std::string_view name, std::string_view help, MetricType type,
                    const Labels& labels) {
    if (families_.empty() || families_.back().name != name) {
      MetricFamily family;
      family.name = name;
      family.help = help;
      family.type = type;
      families_.push_back(std::move(family));
    }
    ClientMetric metric;
    for (const auto& [key, value] : labels) metric.label.push_back({key, value});
    return families_.back().metric.emplace_back(std::move(metric));
  }

  std::vector<MetricFamily> families_;
};

}  // namespace

struct Metrics::State {
  prometheus::Registry registry;
  Family<Histogram>& filter = prometheus::BuildHistogram()
                                  .Name("muster_filter_seconds")
                                  .Help("Time to read and answer kube-scheduler's filter calls.")
                                  .Register(registry);
  Family<Histogram>& bind = prometheus::BuildHistogram()
                                .Name("muster_bind_seconds")
                                .Help("Time bind calls were held until they were answered.")
                                .Register(registry);
  Family<Histogram>& action = prometheus::BuildHistogram()
                                  .Name("muster_action_seconds")
                                  .Help("Time to carry out one of the engine's actions.")
                                  .Register(registry);
  Family<Histogram>& http = prometheus::BuildHistogram()
                                .Name("muster_http_request_seconds")
                                .Help("Time to answer HTTP requests, by route.")
                                .Register(registry);
  Family<Counter>& object_lint = prometheus::BuildCounter()
                                     .Name("muster_admission_lint_total")
                                     .Help("Objects that were applied and looked at for mistakes.")
                                     .Register(registry);
  Family<Counter>& warnings = prometheus::BuildCounter()
                                  .Name("muster_admission_findings_total")
                                  .Help("Mistakes found in objects that were applied, by rule.")
                                  .Register(registry);
  Family<Histogram>& gang_state =
      prometheus::BuildHistogram()
          .Name("muster_gang_state_seconds")
          .Help("Time gangs spent in each state, observed when they leave it.")
          .Register(registry);
  Histogram& gang_bind =
      prometheus::BuildHistogram()
          .Name("muster_gang_bind_seconds")
          .Help("From a gang's last planned node becoming usable to its last binding.")
          .Register(registry)
          .Add({}, kGangBuckets);

  Family<Histogram>& admission_wait =
      prometheus::BuildHistogram()
          .Name("kueue_admission_wait_time_seconds")
          .Help("From a Workload being created, or queued again, to its admission.")
          .Register(registry);
  Family<Counter>& admitted = prometheus::BuildCounter()
                                  .Name("kueue_admitted_workloads_total")
                                  .Help("Workloads that were admitted.")
                                  .Register(registry);
  Family<Counter>& evicted = prometheus::BuildCounter()
                                 .Name("kueue_evicted_workloads_total")
                                 .Help("Workloads that were evicted, by reason.")
                                 .Register(registry);
  // Kueue's own counts by the queue that preempts.
  Family<Counter>& preempted =
      prometheus::BuildCounter()
          .Name("muster_queue_preempted_total")
          .Help("Workloads of each ClusterQueue that were preempted, by reason.")
          .Register(registry);

  mutable std::mutex mutex;
  coscheduling::EngineStats engine;  // guarded by mutex, as the next
  absl::Time window_ends = absl::InfinitePast();
  struct Longest {
    absl::Duration wall, cpu;
    Longest Or(const Longest& other) const {
      return {std::max(wall, other.wall), std::max(cpu, other.cpu)};
    }
  };
  Longest longest_step, longest_before;
  GpuTime gpu_time;
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

void Metrics::OnFilter(FilterReply::Outcome outcome, absl::Duration took) {
  state_->filter.Add({{"outcome", std::string(NameOf(outcome))}}, kFilterBuckets)
      .Observe(absl::ToDoubleSeconds(took));
}

void Metrics::OnBind(bool bound, absl::Duration took) {
  state_->bind.Add({{"outcome", bound ? "bound" : "failed"}}, kRequestBuckets)
      .Observe(absl::ToDoubleSeconds(took));
}

void Metrics::OnAction(std::string_view kind, const absl::Status& status, absl::Duration took) {
  state_->action
      .Add({{"kind", std::string(kind)}, {"code", absl::StatusCodeToString(status.code())}},
           kRequestBuckets)
      .Observe(absl::ToDoubleSeconds(took));
}

void Metrics::OnHttp(std::string_view server, std::string_view pattern, int status,
                     absl::Duration took) {
  state_->http
      .Add({{"server", std::string(server)},
            {"route", std::string(pattern)},
            {"status", std::to_string(status)}},
           kRequestBuckets)
      .Observe(absl::ToDoubleSeconds(took));
}

void Metrics::OnObjectLint(const lint::ObjectLint& lint) {
  const char* outcome = lint.skipped ? "skipped" : lint.findings.empty() ? "clean" : "warned";
  state_->object_lint.Add({{"outcome", outcome}}).Increment();
  // As many as there are rules.
  for (const lint::Finding& finding : lint.findings) {
    state_->warnings.Add({{"rule", std::string(finding.rule)}}).Increment();
  }
}

void Metrics::OnLongestStep(absl::Time now, const EngineLoopStats& stats) {
  const std::lock_guard lock(state_->mutex);
  if (now >= state_->window_ends) {
    const bool adjoins = now < state_->window_ends + kStepWindow;
    state_->longest_before = adjoins ? state_->longest_step : State::Longest();
    state_->longest_step = {};
    state_->window_ends = now + kStepWindow;
  }
  state_->longest_step = state_->longest_step.Or({stats.longest_step, stats.longest_step_cpu});
}

void Metrics::OnNodes(absl::Time now, const MessageList* nodes) {
  const std::lock_guard lock(state_->mutex);
  state_->gpu_time.Tell(now, nodes == nullptr
                                 ? nullptr
                                 : &dynamic_cast<const v1::ListNodesResponse&>(nodes->message()));
}

void Metrics::OnAdmitted(const std::string& queue, absl::Duration wait) {
  state_->admitted.Add({{"cluster_queue", queue}}).Increment();
  state_->admission_wait.Add({{"cluster_queue", queue}}, kQueueBuckets)
      .Observe(absl::ToDoubleSeconds(wait));
}

void Metrics::OnEvicted(const std::string& queue, const std::string& reason) {
  state_->evicted.Add({{"cluster_queue", queue}, {"reason", reason}}).Increment();
}

void Metrics::OnPreempted(const std::string& queue, const std::string& reason) {
  state_->preempted.Add({{"queue", queue}, {"reason", reason}}).Increment();
}

void Metrics::OnEngine(const coscheduling::EngineStats& stats) {
  for (const auto& [state, time] : stats.state_times) {
    state_->gang_state.Add({{"state", v1::GangState_Name(state)}}, kGangBuckets)
        .Observe(absl::ToDoubleSeconds(time));
  }
  for (absl::Duration latency : stats.bind_latencies) {
    state_->gang_bind.Observe(absl::ToDoubleSeconds(latency));
  }
  std::lock_guard lock(state_->mutex);
  state_->engine = stats;
  state_->engine.state_times.clear();
  state_->engine.bind_latencies.clear();
}

namespace {

void AddGangs(const Metrics::Sample& sample, Snapshot* out) {
  std::map<int, int> counts;
  for (const SharedGang& gang : sample.gangs) ++counts[gang->gang().state()];
  for (int state = v1::GangState_MIN + 1; state <= v1::GangState_MAX; ++state) {
    if (!v1::GangState_IsValid(state)) continue;
    out->Gauge("muster_gangs", "Gangs in each state.", counts[state],
               {{"state", v1::GangState_Name(static_cast<v1::GangState>(state))}});
  }
}

// Families one after the other, as the format wants it.
void AddQueues(const Metrics::Sample& sample, Snapshot* out) {
  if (sample.queues == nullptr) return;
  const auto& all = dynamic_cast<const v1::ListQueuesResponse&>(sample.queues->message());
  const auto each = [&](auto add) {
    for (const v1::Queue& queue : all.queues()) {
      if (queue.namespace_().empty()) add(queue, Labels{{"queue", queue.name()}});
    }
  };
  each([&](const v1::Queue& queue, const Labels& labels) {
    out->Gauge("muster_queue_pending", "Gangs that wait in each ClusterQueue.",
               static_cast<double>(queue.pending()), labels);
  });
  each([&](const v1::Queue& queue, const Labels& labels) {
    out->Gauge("muster_queue_admitted", "Gangs that hold quota of each ClusterQueue.",
               static_cast<double>(queue.admitted()), labels);
  });
  each([&](const v1::Queue& queue, const Labels& labels) {
    out->Gauge("muster_queue_active", "1 if the ClusterQueue can admit.",
               queue.error().empty() ? 1 : 0, labels);
  });
  const auto amounts = [&](const char* name, const char* help, auto amount) {
    each([&](const v1::Queue& queue, Labels labels) {
      for (const v1::FlavorUsage& usage : queue.usage()) {
        labels["flavor"] = usage.flavor();
        labels["resource"] = usage.resource();
        out->Gauge(name, help, static_cast<double>(amount(usage)), labels);
      }
    });
  };
  amounts("muster_queue_nominal", "Nominal quota in base units (cpu in thousandths).",
          [](const v1::FlavorUsage& usage) { return usage.nominal(); });
  amounts("muster_queue_reserved", "Quota held by gangs, in base units.",
          [](const v1::FlavorUsage& usage) { return usage.reserved(); });
  amounts("muster_queue_borrowed", "The part of the quota held that is beyond nominal.",
          [](const v1::FlavorUsage& usage) { return usage.borrowed(); });
}

void AddEngine(const coscheduling::EngineStats& engine, const Metrics::Sample& sample,
               Snapshot* out) {
  out->Counter("muster_gangs_bound_total", "Gangs that were bound whole.",
               static_cast<double>(engine.gangs_bound));
  out->Counter("muster_gangs_backed_off_total", "Attempts that gave up their nodes.",
               static_cast<double>(engine.gangs_backed_off));
  out->Counter("muster_gangs_restarted_total", "Gangs that were restarted whole.",
               static_cast<double>(engine.gangs_restarted));
  out->Counter("muster_gangs_preempted_total", "Gangs that were evicted for the room of others.",
               static_cast<double>(engine.gangs_preempted));
  out->Counter("muster_surplus_preempted_total",
               "Members beyond minMember that were evicted for the room of others.",
               static_cast<double>(engine.surplus_preempted));
  out->Counter("muster_placement_passes_total", "Placement passes over all waiting gangs.",
               static_cast<double>(engine.passes));
  out->Counter("muster_plans_total", "Plans made.", static_cast<double>(engine.plans));
  out->Gauge("muster_reservations", "Gangs for which nodes are being kept.",
             static_cast<double>(engine.reservations));
  out->Counter("muster_reserved_idle_gpu_seconds_total",
               "GPU-seconds that nodes idled while they were kept for a gang.",
               engine.reserved_idle_gpu_seconds);
  out->Gauge("muster_actions_in_flight", "Actions whose outcome is awaited.",
             static_cast<double>(engine.in_flight));
  out->Gauge("muster_actions_waiting", "Actions that wait for a place on the wire.",
             static_cast<double>(sample.actions.waiting));
  out->Gauge("muster_actions_places",
             "Actions that may be on the wire at once, by what the API server makes of them.",
             static_cast<double>(sample.actions.places));
  out->Gauge("muster_actions_pausing", "Actions that pause before they are tried again.",
             static_cast<double>(sample.actions.pausing));
  out->Gauge("muster_pod_refusals", "Jobs and the like whose pods the API server refuses.",
             static_cast<double>(engine.pod_refusals));
  out->Counter("muster_pod_refusals_dropped_total",
               "Refusals that were forgotten because too many were known.",
               static_cast<double>(engine.pod_refusals_dropped));
  out->Gauge("muster_held_binds", "Bind calls of kube-scheduler that are being held.",
             static_cast<double>(sample.held_binds));
  out->Gauge("muster_filter_answers", "Pods that have a filter answer.",
             static_cast<double>(sample.filter_answers));
  out->Counter("muster_engine_steps_total", "Steps of the engine.",
               static_cast<double>(sample.loop.steps));
  out->Counter("muster_engine_tasks_total", "Observations and results given to the engine.",
               static_cast<double>(sample.loop.tasks));
  out->Counter("muster_engine_superseded_total",
               "Observations dropped because a newer one of the same object came.",
               static_cast<double>(sample.loop.superseded));
  out->Gauge("muster_engine_queue", "Tasks that wait for the engine's thread.",
             static_cast<double>(sample.loop.queued));
  out->Counter("muster_engine_busy_seconds_total",
               "Time in which the engine was in a step, or was to begin one and had no processor.",
               absl::ToDoubleSeconds(sample.loop.busy_time));
}

void AddWatches(const Metrics::Sample& sample, Snapshot* out) {
  const auto each = [&](auto add) {
    for (const ClusterWatch::KindStats& watch : sample.watches)
      add(watch, Labels{{"kind", watch.kind}});
  };
  each([&](const auto& watch, const Labels& labels) {
    out->Gauge("muster_watch_objects", "Objects of each kind in the picture.",
               static_cast<double>(watch.reflector.objects), labels);
  });
  each([&](const auto& watch, const Labels& labels) {
    if (watch.reflector.last_contact == absl::InfinitePast()) return;
    const absl::Duration lag =
        std::max(absl::ZeroDuration(), sample.now - watch.reflector.last_contact);
    out->Gauge("muster_watch_lag_seconds",
               "Time since the API server was last heard on this watch (it sends a bookmark about "
               "every minute).",
               absl::ToDoubleSeconds(lag), labels);
  });
  each([&](const auto& watch, const Labels& labels) {
    if (watch.reflector.watching_since == absl::InfiniteFuture()) return;
    const absl::Duration age =
        std::max(absl::ZeroDuration(), sample.now - watch.reflector.watching_since);
    out->Gauge("muster_watch_age_seconds",
               "Time since the open watch was answered; absent while none is open.",
               absl::ToDoubleSeconds(age), labels);
  });
  each([&](const auto& watch, const Labels& labels) {
    out->Counter("muster_watch_events_total", "Changes received.",
                 static_cast<double>(watch.reflector.events), labels);
  });
  each([&](const auto& watch, const Labels& labels) {
    out->Counter("muster_watch_failures_total", "Lists and watches that failed.",
                 static_cast<double>(watch.reflector.failures), labels);
  });
  each([&](const auto& watch, const Labels& labels) {
    out->Counter("muster_watch_syncs_total", "Times the whole kind was read.",
                 static_cast<double>(watch.reflector.syncs), labels);
  });
  each([&](const auto& watch, const Labels& labels) {
    out->Counter("muster_watch_undecodable_total", "Objects left out because they can't be read.",
                 static_cast<double>(watch.undecodable), labels);
  });
  each([&](const auto& watch, Labels labels) {
    labels["state"] = NameOf(watch.reflector.state);
    out->Gauge("muster_watch_state", "1 for the state each watch is in.", 1, labels);
  });
}

void AddApi(const kube::TransportStats& api, Snapshot* out) {
  out->Counter("muster_api_requests_total", "Requests sent to the API server.",
               static_cast<double>(api.sent));
  for (size_t hundred = 0; hundred < api.answered.size(); ++hundred) {
    out->Counter("muster_api_answers_total", "Answers of the API server by class of status.",
                 static_cast<double>(api.answered[hundred]),
                 {{"class", hundred == 0 ? "other" : fmt::format("{}xx", hundred)}});
  }
  out->Counter("muster_api_unanswered_total", "Requests that got no answer.",
               static_cast<double>(api.unanswered));
  out->Counter("muster_api_rejected_total", "Requests for which the transport had no room.",
               static_cast<double>(api.rejected));
  out->Counter("muster_api_received_bytes_total", "Bytes of bodies received.",
               static_cast<double>(api.bytes_received));
  out->Counter("muster_api_connections_total", "Connections opened.",
               static_cast<double>(api.connections));
  out->Counter("muster_api_probes_total", "Times a silent watch connection was asked for a sign.",
               static_cast<double>(api.probes));
  out->Counter("muster_api_probes_unanswered_total", "Those that got no answer in time.",
               static_cast<double>(api.probes_unanswered));
  out->Counter("muster_api_connections_cut_total", "Connections closed because they were silent.",
               static_cast<double>(api.connections_cut));
  out->Gauge("muster_api_in_flight", "Requests on the wire.", static_cast<double>(api.in_flight));
  out->Gauge("muster_api_queued", "Requests waiting for a place on the wire.",
             static_cast<double>(api.queued));
  std::vector<double> bounds;
  for (int64_t bound : kube::kLatencyBoundsMs) bounds.push_back(static_cast<double>(bound) / 1000);
  out->Distribution("muster_api_request_seconds", "Time from sending a request to its answer.",
                    api.latency_counts, bounds, absl::ToDoubleSeconds(api.latency_sum));
}

void AddConnections(const Metrics::Sample& sample, Snapshot* out) {
  for (const auto& [server, counts] : sample.connections) {
    out->Gauge("muster_http_connections", "Open connections of each server.",
               static_cast<double>(counts.open), {{"server", server}});
  }
  for (const auto& [server, counts] : sample.connections) {
    out->Counter("muster_http_connections_refused_total",
                 "Connections turned away because there were too many.",
                 static_cast<double>(counts.turned_away), {{"server", server}});
  }
  for (const auto& [server, counts] : sample.connections) {
    out->Counter("muster_http_connections_displaced_total",
                 "Idle connections ended to make room for others.",
                 static_cast<double>(counts.ended_idle), {{"server", server}});
  }
  for (const auto& [server, counts] : sample.connections) {
    out->Counter("muster_http_connections_slow_total",
                 "Connections ended because slow ones took too much memory together.",
                 static_cast<double>(counts.ended_slow), {{"server", server}});
  }
}

void AddAccess(const AccessControl::Stats& access, Snapshot* out) {
  constexpr const char* kKinds[] = {"token", "access"};
  constexpr const char* kRefusals[] = {"unauthenticated", "forbidden", "unavailable", "overloaded"};
  static_assert(std::size(kKinds) == AccessControl::kKinds);
  static_assert(std::size(kRefusals) == AccessControl::kRefusals);
  const auto each = [&](auto add) {
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      add(access.caches[kind], Labels{{"review", kKinds[kind]}});
    }
  };
  each([&](const auto& cache, const Labels& labels) {
    out->Counter("muster_access_cache_hits_total",
                 "Times that a caller, or what he may, was known.", static_cast<double>(cache.hits),
                 labels);
  });
  each([&](const auto& cache, const Labels& labels) {
    out->Counter("muster_access_cache_misses_total", "Times that the API server had to be asked.",
                 static_cast<double>(cache.misses), labels);
  });
  each([&](const auto& cache, const Labels& labels) {
    out->Gauge("muster_access_cache_entries", "Answers of the API server that are kept.",
               static_cast<double>(cache.entries), labels);
  });
  for (size_t refusal = 0; refusal < std::size(kRefusals); ++refusal) {
    out->Counter("muster_access_refusals_total", "Queries that were refused, by reason.",
                 static_cast<double>(access.refusals[refusal]), {{"reason", kRefusals[refusal]}});
  }
  out->Gauge("muster_access_reviews_in_flight", "Questions that the API server is being asked.",
             static_cast<double>(access.reviews.in_flight));
  out->Gauge("muster_access_reviews_waiting", "Questions that wait to be asked.",
             static_cast<double>(access.reviews.waiting));
}

void AddProcess(const Metrics::Sample& sample, Snapshot* out) {
  const ProcessStats& process = sample.process;
  out->Gauge("muster_build_info", "1, with the version in a label.", 1,
             {{"version", MUSTER_VERSION}});
  out->Counter("process_cpu_seconds_total", "Processor time spent, user and system.",
               process.cpu_seconds);
  out->Gauge("process_start_time_seconds", "When the process was started, since the epoch.",
             process.start_time_seconds);
  out->Gauge("process_resident_memory_bytes", "Memory in use.",
             static_cast<double>(process.resident_bytes));
  out->Gauge("process_virtual_memory_bytes", "Address space in use.",
             static_cast<double>(process.virtual_bytes));
  out->Gauge("process_threads", "Threads.", static_cast<double>(process.threads));
  out->Gauge("process_open_fds", "Open files and connections.",
             static_cast<double>(process.open_files));
  out->Gauge("process_max_fds", "As many may be open.", static_cast<double>(process.max_files));
  if (sample.certificate_expires != absl::InfiniteFuture()) {
    out->Gauge("muster_webhook_certificate_expiration_timestamp_seconds",
               "Until when the certificate that the webhook is served with is valid.",
               absl::ToDoubleSeconds(sample.certificate_expires - absl::UnixEpoch()));
  }
}

void AddService(const Metrics::Sample& sample, Snapshot* out) {
  out->Counter("muster_events_sent_total", "Events written.",
               static_cast<double>(sample.events.sent));
  out->Counter("muster_events_dropped_total", "Events dropped because too many came.",
               static_cast<double>(sample.events.dropped));
  out->Counter("muster_events_failed_total", "Events the API server refused.",
               static_cast<double>(sample.events.failed));
  out->Gauge("muster_events_waiting", "Events that wait to be written.",
             static_cast<double>(sample.events.waiting));
  out->Gauge("muster_events_remembered", "Events that are counted on when they happen again.",
             static_cast<double>(sample.events.remembered));
  out->Gauge("muster_query_watches", "Open watches of gangs and nodes.",
             static_cast<double>(sample.subscriptions));
  out->Gauge("muster_ready", "1 when /readyz says ok.", sample.ready ? 1 : 0);
  out->Gauge("muster_leading", "1 while this process decides.", sample.leading ? 1 : 0);
  out->Gauge("muster_leader_known", "1 while this process leads or knows a live leader.",
             sample.leader_known ? 1 : 0);
  if (sample.transitions) {
    out->Counter("muster_leader_transitions_total",
                 "How often the lead has passed to another, as the Lease says itself.",
                 static_cast<double>(*sample.transitions));
  }
  out->Gauge("muster_webhook_in_place", "1 while new pods are gated.",
             sample.webhook_in_place ? 1 : 0);
  out->Gauge("muster_warnings_in_place", "1 while those who apply objects are warned of mistakes.",
             sample.warnings_in_place ? 1 : 0);
  out->Gauge("muster_another_kueue", "1 while nobody is given quota because a Kueue runs, too.",
             sample.another_kueue ? 1 : 0);
}

}  // namespace

std::string Metrics::Text(const Sample& sample) const {
  Snapshot out(state_->registry.Collect());
  coscheduling::EngineStats engine;
  State::Longest longest_step;
  GpuTime gpu_time;
  {
    std::lock_guard lock(state_->mutex);
    engine = state_->engine;
    longest_step = state_->longest_step.Or(state_->longest_before);
    gpu_time = state_->gpu_time;
  }
  if (sample.leading) {
    AddGangs(sample, &out);
    AddQueues(sample, &out);
  }
  AddEngine(engine, sample, &out);
  out.Gauge("muster_engine_longest_step_seconds",
            "The longest step of the last minute, at most of the last two.",
            absl::ToDoubleSeconds(longest_step.wall));
  out.Gauge("muster_engine_longest_step_cpu_seconds",
            "Of the processor, the most that a step of the last minute took, or of the last two.",
            absl::ToDoubleSeconds(longest_step.cpu));
  out.Counter("muster_bought_gpu_seconds_total",
              "GPU-seconds of nodes that Karpenter has launched, used or not.", gpu_time.bought());
  out.Counter("muster_held_idle_gpu_seconds_total",
              "GPU-seconds that stood idle on nodes that gangs held while they waited for others.",
              gpu_time.held_idle());
  AddWatches(sample, &out);
  AddApi(sample.api, &out);
  AddConnections(sample, &out);
  if (sample.access) AddAccess(*sample.access, &out);
  AddService(sample, &out);
  AddProcess(sample, &out);
  return out.Text();
}

}  // namespace muster::extender
