// How long kube-scheduler waits for a filter answer: 5,000 node names per call, 4 callers at once,
// over HTTP on loopback, while the table of answers keeps changing.
//
// The callers are as lean as a client can be (one kept-alive connection each, the request built
// beforehand), so what is measured is the server and the kernel's sockets.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "extender/filter_table.h"
#include "extender/http_server.h"
#include "extender/scheduler_routes.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using coscheduling::FilterAnswer;
using Clock = std::chrono::steady_clock;

constexpr int kNodes = 5'000;
constexpr int kCallers = 4;
constexpr int kWarmUp = 50;
constexpr int kCalls = 2'500;  // per caller
constexpr double kLimitMs = 2;

std::string NodeName(int i) {
  return fmt::format("ip-10-{}-{}-{}.us-west-2.compute.internal", i / 65536, i / 256 % 256,
                     i % 256);
}

// As much of a pod as a training operator writes.
nlohmann::json Pod(const std::string& uid) {
  nlohmann::json container = {
      {"name", "pytorch"},
      {"image", "public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0-gpu-py312"},
      {"command", {"/bin/bash", "-c"}},
      {"args", {"torchrun --nnodes 4 --nproc_per_node=8 train.py"}},
      {"resources",
       {{"limits", {{"nvidia.com/gpu", "8"}}}, {"requests", {{"nvidia.com/gpu", "8"}}}}}};
  for (int i = 0; i < 30; ++i) {
    container["env"].push_back(
        {{"name", fmt::format("NCCL_SETTING_{}", i)}, {"value", std::string(40, 'v')}});
  }
  return {{"metadata",
           {{"name", "worker-0"},
            {"namespace", "team"},
            {"uid", uid},
            {"labels", {{"scheduling.x-k8s.io/pod-group", "train"}}}}},
          {"spec", {{"schedulerName", "coscheduling"}, {"containers", {container}}}},
          {"status", {{"phase", "Pending"}}}};
}

std::string Request(const std::string& uid) {
  nlohmann::json names = nlohmann::json::array();
  for (int i = 0; i < kNodes; ++i) names.push_back(NodeName(i));
  const std::string body =
      nlohmann::json{{"Pod", Pod(uid)}, {"Nodes", nullptr}, {"NodeNames", names}}.dump();
  return fmt::format(
      "POST /filter HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

[[noreturn]] void Die(const std::string& what) {
  std::cerr << "filter_bench: " << what << ": " << std::strerror(errno) << "\n";
  std::exit(2);
}

class Caller {
 public:
  explicit Caller(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Die("connect");
  }
  ~Caller() { close(fd_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Sends one request and reads its answer.
  double CallMs(const std::string& request, std::string_view expected) {
    const Clock::time_point start = Clock::now();
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t n = send(fd_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) Die("send");
      sent += static_cast<size_t>(n);
    }
    answer_.clear();
    while (!answer_.ends_with("\"Error\":\"\"}")) {
      char chunk[8192];
      const ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) Die("recv after " + answer_);
      answer_.append(chunk, static_cast<size_t>(n));
    }
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    if (answer_.find(expected) == std::string::npos) Die("unexpected answer " + answer_);
    return took.count();
  }

 private:
  const int fd_;
  std::string answer_;
};

struct Figures {
  double p50, p99, max;
};
Figures Summarize(std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100], times.back()};
}

Figures Measure(uint16_t port, const std::string& uid, const std::string& expected) {
  const std::string request = Request(uid);
  std::vector<std::vector<double>> times(kCallers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCallers; ++i) {
    threads.emplace_back([&, i] {
      Caller caller(port);
      for (int n = 0; n < kWarmUp; ++n) caller.CallMs(request, expected);
      for (int n = 0; n < kCalls; ++n) times[i].push_back(caller.CallMs(request, expected));
    });
  }
  std::vector<double> all;
  for (int i = 0; i < kCallers; ++i) {
    threads[i].join();
    all.insert(all.end(), times[i].begin(), times[i].end());
  }
  return Summarize(all);
}

int Main() {
  FilterTable table;
  table.Apply({{"planned", FilterAnswer{FilterAnswer::Kind::kPlanned, NodeName(kNodes - 1), ""}},
               {"short", FilterAnswer{FilterAnswer::Kind::kUnresolvable, "",
                                      "gang team/train: 3 of 4 nodes are usable"}}});
  SchedulerRoutes routes(table, {.post_urgent = [](EngineTask) {},
                                 .on_filter = [](FilterReply::Outcome, absl::Duration) {},
                                 .on_bind = [](bool, absl::Duration) {},
                                 .clock = absl::Now});
  auto server = HttpServer::Start({.listen = "127.0.0.1:0", .threads = 4, .body_limit = 64 << 20},
                                  routes.Routes());
  if (!server.ok()) Die(std::string(server.status().message()));

  // An engine that publishes 1,000 changed answers a hundred times a second.
  std::atomic<bool> done = false;
  std::thread engine([&] {
    for (int round = 0; !done; ++round) {
      std::vector<FilterTable::Change> changes;
      for (int i = 0; i < 1'000; ++i) {
        changes.emplace_back(fmt::format("pod-{}", (round * 1'000 + i) % 20'000),
                             FilterAnswer{FilterAnswer::Kind::kHold, "", "gang team/other waits"});
      }
      table.Apply(changes);
      absl::SleepFor(absl::Milliseconds(10));
    }
  });

  bool good = true;
  const auto report = [&](const char* what, const std::string& uid, const std::string& expected) {
    const Figures figures = Measure((*server)->port(), uid, expected);
    std::cout << fmt::format(
        "filter, {} pod, {} names, {} callers: p50 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms "
        "(limit: p99 {} ms)\n",
        what, kNodes, kCallers, figures.p50, figures.p99, figures.max, kLimitMs);
    good &= figures.p99 <= kLimitMs;
  };
  report("planned", "planned", fmt::format("[\"{}\"]", NodeName(kNodes - 1)));
  report("waiting", "short", "3 of 4 nodes are usable");
  done = true;
  engine.join();
  return good ? 0 : 1;
}

}  // namespace
}  // namespace muster::extender

int main() { return muster::extender::Main(); }
