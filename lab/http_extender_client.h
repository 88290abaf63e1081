// kube-scheduler's side of the extender protocol over HTTP, for the scheduler simulator.
//
// Wire types: k8s.io/kube-scheduler v0.34 extender/v1/types.go; the client's behaviour: k8s.io/
// kubernetes v1.34 pkg/scheduler/extender.go (POST, JSON, one timeout for all verbs, only 200 is an
// answer, keep-alive). Nodes are sent as names, as with nodeCacheCapable.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "kube/simulators/scheduler_simulator.h"

namespace muster::lab {

struct HttpExtenderOptions {
  std::string url;  // "http://127.0.0.1:8888"
  absl::Duration timeout = absl::Seconds(30);
  // Bind calls under way at once; one more fails.
  size_t max_binds = 1024;
};

// Filter: one thread at a time, blocks for at most the timeout. Bind: any thread, never blocks;
// answers come on a thread of the client's. The destructor fails the bind calls under way.
class HttpExtenderClient : public kube::simulators::ExtenderClient {
 public:
  explicit HttpExtenderClient(HttpExtenderOptions options);
  ~HttpExtenderClient() override;
  HttpExtenderClient(const HttpExtenderClient&) = delete;
  HttpExtenderClient& operator=(const HttpExtenderClient&) = delete;

  kube::simulators::FilterResult Filter(const kube::simulators::FilterCall& call) override;
  void Bind(const kube::simulators::BindCall& call, BindDone done) override;

 private:
  class Binder;
  const HttpExtenderOptions options_;
  void* const filter_curl_;  // a CURL*; its connection is kept between calls
  std::unique_ptr<Binder> binder_;
};

}  // namespace muster::lab
