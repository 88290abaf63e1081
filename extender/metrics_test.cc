#include "extender/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "extender/testing/messages.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The text, checked on the way: every sample belongs to a family that has been announced with HELP
// and TYPE, once; no sample comes twice.
std::map<std::string, std::string> Parse(const std::string& text) {
  std::map<std::string, std::string> samples;
  std::set<std::string> families;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
      EXPECT_GT(line.size(), 8 + family.size()) << "no help: " << line;
      continue;
    }
    if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line.substr(7, family.size()), family);
      continue;
    }
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(line.starts_with(family)) << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, space), line.substr(space + 1)).second) << line;
  }
  return samples;
}

TEST(Metrics, GangsAreCountedInEveryState) {
  Metrics metrics;
  Metrics::Sample sample;
  sample.leading = true;
  sample.gangs = {std::make_shared<const PublishedGang>(MakeGang("a", "x", 1)),
                  std::make_shared<const PublishedGang>(MakeGang("a", "y", 1))};
  auto samples = Parse(metrics.Text(sample));
  EXPECT_EQ(samples["muster_gangs{state=\"PROVISIONING\"}"], "2");
  EXPECT_EQ(samples["muster_gangs{state=\"BOUND\"}"], "0");
  EXPECT_EQ(samples.count("muster_gangs{state=\"GANG_STATE_UNSPECIFIED\"}"), 0u);
}

TEST(Metrics, AStandbyTellsOnlyOfItself) {
  auto list = std::make_unique<v1::ListQueuesResponse>();
  list->add_queues()->set_name("gpus");
  Metrics::Sample sample;
  sample.now = absl::FromUnixSeconds(1000);
  sample.gangs = {std::make_shared<const PublishedGang>(MakeGang("a", "x", 1))};
  sample.queues = std::make_shared<const MessageList>(std::move(list));
  ClusterWatch::KindStats pods{.kind = "pods", .reflector = {}, .undecodable = 0};
  pods.reflector.watching_since = absl::FromUnixSeconds(990);
  sample.watches = {pods};
  sample.api.connections = 3;
  const std::string text = Metrics().Text(sample);
  auto samples = Parse(text);
  EXPECT_EQ(samples["muster_leading"], "0");
  EXPECT_EQ(samples["muster_watch_age_seconds{kind=\"pods\"}"], "10");
  EXPECT_EQ(samples["muster_api_connections_total"], "3");
  EXPECT_THAT(text, Not(HasSubstr("muster_gangs{")));
  EXPECT_THAT(text, Not(HasSubstr("muster_queue_")));
}

TEST(Metrics, AnswersAboutCallersAreCountedWhereTheyAreAskedFor) {
  Metrics::Sample sample;
  EXPECT_THAT(Metrics().Text(sample), Not(HasSubstr("muster_access_")));
  AccessControl::Stats& access = sample.access.emplace();
  access.caches[AccessControl::kTokens] = {.hits = 3, .misses = 2, .entries = 1};
  access.refusals[AccessControl::kForbidden] = 4;
  access.reviews = {.in_flight = 5, .waiting = 6};
  auto samples = Parse(Metrics().Text(sample));
  EXPECT_EQ(samples["muster_access_cache_hits_total{review=\"token\"}"], "3");
  EXPECT_EQ(samples["muster_access_cache_misses_total{review=\"token\"}"], "2");
  EXPECT_EQ(samples["muster_access_cache_entries{review=\"token\"}"], "1");
  EXPECT_EQ(samples["muster_access_cache_hits_total{review=\"access\"}"], "0");
  EXPECT_EQ(samples["muster_access_refusals_total{reason=\"forbidden\"}"], "4");
  EXPECT_EQ(samples["muster_access_refusals_total{reason=\"overloaded\"}"], "0");
  EXPECT_EQ(samples["muster_access_reviews_in_flight"], "5");
  EXPECT_EQ(samples["muster_access_reviews_waiting"], "6");
}

TEST(Metrics, FindingsInAppliedObjectsAreCountedByRule) {
  Metrics metrics;
  lint::ObjectLint found;
  metrics.OnObjectLint(found);
  found.findings.resize(2);
  found.findings[0].rule = found.findings[1].rule = "efa-without-shm";
  metrics.OnObjectLint(found);
  lint::ObjectLint skipped;
  skipped.skipped = true;
  metrics.OnObjectLint(skipped);
  auto samples = Parse(metrics.Text({}));
  EXPECT_EQ(samples["muster_admission_findings_total{rule=\"efa-without-shm\"}"], "2");
  for (const char* outcome : {"clean", "warned", "skipped"}) {
    EXPECT_EQ(samples[fmt::format("muster_admission_lint_total{{outcome=\"{}\"}}", outcome)], "1");
  }
}

TEST(Metrics, ClusterQueuesTellTheirUsagePerFlavor) {
  auto list = std::make_unique<v1::ListQueuesResponse>();
  v1::Queue* queue = list->add_queues();
  queue->set_name("gpus");
  queue->set_pending(3);
  queue->set_admitted(2);
  v1::FlavorUsage* usage = queue->add_usage();
  usage->set_flavor("spot");
  usage->set_resource("nvidia.com/gpu");
  usage->set_nominal(8);
  usage->set_reserved(10);
  usage->set_borrowed(2);
  v1::Queue* local = list->add_queues();
  local->set_name("default");
  local->set_namespace_("team");
  Metrics::Sample sample;
  sample.leading = true;
  sample.queues = std::make_shared<const MessageList>(std::move(list));
  auto samples = Parse(Metrics().Text(sample));
  EXPECT_EQ(samples["muster_queue_pending{queue=\"gpus\"}"], "3");
  EXPECT_EQ(samples["muster_queue_admitted{queue=\"gpus\"}"], "2");
  EXPECT_EQ(samples["muster_queue_active{queue=\"gpus\"}"], "1");
  EXPECT_EQ(samples.count("muster_queue_pending{queue=\"default\"}"), 0U);
  const std::string labels = "{flavor=\"spot\",queue=\"gpus\",resource=\"nvidia.com/gpu\"}";
  EXPECT_EQ(samples["muster_queue_nominal" + labels], "8");
  EXPECT_EQ(samples["muster_queue_reserved" + labels], "10");
  EXPECT_EQ(samples["muster_queue_borrowed" + labels], "2");
}

TEST(Metrics, HistogramsHoldWhatWasObserved) {
  Metrics metrics;
  metrics.OnFilter(FilterReply::Outcome::kPlanned, absl::Microseconds(80));
  metrics.OnFilter(FilterReply::Outcome::kPlanned, absl::Milliseconds(3));
  metrics.OnFilter(FilterReply::Outcome::kUnresolvable, absl::Microseconds(10));
  metrics.OnBind(true, absl::Seconds(2));
  metrics.OnAction("binding", absl::AbortedError("conflict"), absl::Milliseconds(7));
  metrics.OnHttp("rest", "/v1/gangs", 200, absl::Milliseconds(1));
  coscheduling::EngineStats stats;
  stats.gangs_bound = 5;
  stats.reserved_idle_gpu_seconds = 1.5;
  stats.reservations = 2;
  stats.bind_latencies = {absl::Milliseconds(400)};
  stats.state_times = {{v1::PROVISIONING, absl::Seconds(20)}};
  metrics.OnEngine(stats);
  auto samples = Parse(metrics.Text({}));
  EXPECT_EQ(samples["muster_filter_seconds_count{outcome=\"planned\"}"], "2");
  EXPECT_EQ(samples["muster_filter_seconds_bucket{outcome=\"planned\",le=\"0.002\"}"], "1");
  EXPECT_EQ(samples["muster_filter_seconds_count{outcome=\"unresolvable\"}"], "1");
  EXPECT_EQ(samples["muster_bind_seconds_sum{outcome=\"bound\"}"], "2");
  EXPECT_EQ(samples["muster_action_seconds_count{code=\"ABORTED\",kind=\"binding\"}"], "1");
  EXPECT_EQ(samples["muster_http_request_seconds_count{route=\"/v1/gangs\",server=\"rest\","
                    "status=\"200\"}"],
            "1");
  EXPECT_EQ(samples["muster_gang_bind_seconds_bucket{le=\"0.5\"}"], "1");
  EXPECT_EQ(samples["muster_gang_state_seconds_count{state=\"PROVISIONING\"}"], "1");
  EXPECT_EQ(samples["muster_gangs_bound_total"], "5");
  EXPECT_EQ(samples["muster_reserved_idle_gpu_seconds_total"], "1.5");
  EXPECT_EQ(samples["muster_reservations"], "2");
  // Moments are observed once, totals stand.
  stats.bind_latencies.clear();
  stats.state_times.clear();
  metrics.OnEngine(stats);
  samples = Parse(metrics.Text({}));
  EXPECT_EQ(samples["muster_gang_bind_seconds_count"], "1");
  EXPECT_EQ(samples["muster_gangs_bound_total"], "5");
}

TEST(Metrics, TheProcessTellsOfItselfUnderTheUsualNames) {
  Metrics::Sample sample;
  sample.process = {.cpu_seconds = 1.5,
                    .start_time_seconds = 1000,
                    .resident_bytes = 4096,
                    .virtual_bytes = 8192,
                    .threads = 9,
                    .open_files = 12,
                    .max_files = 1024};
  auto samples = Parse(Metrics().Text(sample));
  EXPECT_EQ(samples["process_cpu_seconds_total"], "1.5");
  EXPECT_EQ(samples["process_start_time_seconds"], "1000");
  EXPECT_EQ(samples["process_resident_memory_bytes"], "4096");
  EXPECT_EQ(samples["process_virtual_memory_bytes"], "8192");
  EXPECT_EQ(samples["process_threads"], "9");
  EXPECT_EQ(samples["process_open_fds"], "12");
  EXPECT_EQ(samples["process_max_fds"], "1024");
  EXPECT_EQ(samples.count("muster_webhook_certificate_expiration_timestamp_seconds"), 0U);
  sample.certificate_expires = absl::FromUnixSeconds(1'800'000'000);
  const std::string text = Metrics().Text(sample);
  EXPECT_EQ(Parse(text)["muster_webhook_certificate_expiration_timestamp_seconds"], "1800000000");
  EXPECT_THAT(text, HasSubstr("muster_build_info{version=\""));
}

TEST(Metrics, NodesAreCountedInGpuSeconds) {
  auto nodes = std::make_unique<v1::ListNodesResponse>();
  v1::Node* node = nodes->add_nodes();
  node->set_node_claim("claim");
  node->set_stage(v1::USABLE);
  (*node->mutable_holds())["uid"];
  (*node->mutable_allocatable())["nvidia.com/gpu"] = 8;
  (*node->mutable_free())["nvidia.com/gpu"] = 3;
  const MessageList list(std::move(nodes));
  Metrics metrics;
  metrics.OnNodes(absl::FromUnixSeconds(1000), &list);
  metrics.OnNodes(absl::FromUnixSeconds(1002), nullptr);
  auto samples = Parse(metrics.Text({}));
  EXPECT_EQ(samples["muster_bought_gpu_seconds_total"], "16");
  EXPECT_EQ(samples["muster_held_idle_gpu_seconds_total"], "6");
}

// A step that had the processor for half of its time.
EngineLoopStats Step(absl::Duration took) {
  EngineLoopStats stats;
  stats.longest_step = took;
  stats.longest_step_cpu = took / 2;
  return stats;
}

TEST(Metrics, TheLongestStepIsThatOfTheLastMinuteOrTwo) {
  Metrics metrics;
  const auto longest = [&] {
    return Parse(metrics.Text({}))["muster_engine_longest_step_seconds"];
  };
  const absl::Time begin = absl::FromUnixSeconds(1000);
  metrics.OnLongestStep(begin, Step(absl::Milliseconds(250)));
  metrics.OnLongestStep(begin + absl::Seconds(59), Step(absl::Milliseconds(2)));
  EXPECT_EQ(longest(), "0.25");
  EXPECT_EQ(longest(), "0.25") << "whoever else asks";
  EXPECT_EQ(Parse(metrics.Text({}))["muster_engine_longest_step_cpu_seconds"], "0.125");
  metrics.OnLongestStep(begin + absl::Seconds(60), Step(absl::Milliseconds(4)));
  EXPECT_EQ(longest(), "0.25");
  metrics.OnLongestStep(begin + absl::Seconds(120), Step(absl::Milliseconds(1)));
  EXPECT_EQ(longest(), "0.004");
  metrics.OnLongestStep(begin + absl::Hours(1), Step(absl::ZeroDuration()));
  EXPECT_EQ(longest(), "0");
}

TEST(Metrics, AdmissionsAndEvictionsAreCountedByQueueUnderKueuesNames) {
  Metrics metrics;
  metrics.OnAdmitted("gpus", absl::Seconds(3));
  metrics.OnAdmitted("gpus", absl::Seconds(30));
  metrics.OnEvicted("gpus", "Preempted");
  metrics.OnPreempted("gpus", "InClusterQueue");
  auto samples = Parse(metrics.Text({}));
  EXPECT_EQ(samples["kueue_admitted_workloads_total{cluster_queue=\"gpus\"}"], "2");
  EXPECT_EQ(samples["kueue_admission_wait_time_seconds_sum{cluster_queue=\"gpus\"}"], "33");
  EXPECT_EQ(samples["kueue_admission_wait_time_seconds_bucket{cluster_queue=\"gpus\",le=\"5\"}"],
            "1");
  EXPECT_EQ(samples["kueue_evicted_workloads_total{cluster_queue=\"gpus\",reason=\"Preempted\"}"],
            "1");
  EXPECT_EQ(samples["muster_queue_preempted_total{queue=\"gpus\",reason=\"InClusterQueue\"}"], "1");
}

TEST(Metrics, WatchesShowTheirLagAndState) {
  Metrics metrics;
  Metrics::Sample sample;
  sample.now = absl::FromUnixSeconds(1000);
  ClusterWatch::KindStats pods{.kind = "pods", .reflector = {}, .undecodable = 2};
  pods.reflector.state = kube::ReflectorState::kStale;
  pods.reflector.last_contact = absl::FromUnixSeconds(988);
  ClusterWatch::KindStats pools{.kind = "nodepools", .reflector = {}, .undecodable = 0};
  pools.reflector.state = kube::ReflectorState::kAbsent;
  sample.watches = {pods, pools};
  const std::string text = metrics.Text(sample);
  auto samples = Parse(text);
  EXPECT_EQ(samples["muster_watch_lag_seconds{kind=\"pods\"}"], "12");
  EXPECT_EQ(samples["muster_watch_state{kind=\"pods\",state=\"stale\"}"], "1");
  EXPECT_EQ(samples["muster_watch_state{kind=\"nodepools\",state=\"absent\"}"], "1");
  EXPECT_EQ(samples["muster_watch_undecodable_total{kind=\"pods\"}"], "2");
  // Never heard: no lag rather than a huge one.
  EXPECT_THAT(text, Not(HasSubstr("muster_watch_lag_seconds{kind=\"nodepools\"}")));
}

TEST(Metrics, TransportLatenciesAreCumulative) {
  Metrics metrics;
  Metrics::Sample sample;
  sample.api.sent = 6;
  sample.api.answered[2] = 5;
  sample.api.latency_counts[0] = 3;
  sample.api.latency_counts[4] = 1;
  sample.api.latency_counts.back() = 1;
  sample.api.latency_sum = absl::Seconds(40);
  auto samples = Parse(metrics.Text(sample));
  EXPECT_EQ(samples["muster_api_answers_total{class=\"2xx\"}"], "5");
  EXPECT_EQ(samples["muster_api_request_seconds_bucket{le=\"0.001\"}"], "3");
  EXPECT_EQ(samples["muster_api_request_seconds_bucket{le=\"30\"}"], "4");
  EXPECT_EQ(samples["muster_api_request_seconds_bucket{le=\"+Inf\"}"], "5");
  EXPECT_EQ(samples["muster_api_request_seconds_count"], "5");
}

TEST(Metrics, ObservedFromManyThreads) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        metrics.OnFilter(FilterReply::Outcome::kPlanned, absl::Microseconds(50));
        if (n % 100 == 0) metrics.Text({});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Parse(metrics.Text({}))["muster_filter_seconds_count{outcome=\"planned\"}"], "4000");
}

}  // namespace
}  // namespace muster::extender
