// A few words to speak with an embedded server in tests: JSON in, JSON out, a clock to turn.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kube/embedded/api_server.h"

namespace muster::kube::embedded {

using TestJson = nlohmann::json;

struct TestAnswer {
  int status = 0;
  TestJson body;
  std::string reason() const { return body.value("reason", ""); }
  std::string message() const { return body.value("message", ""); }
};

class TestServer {
 public:
  explicit TestServer(ApiServerOptions options = {}) : server_(WithClock(std::move(options))) {}

  TestAnswer Call(Method method, std::string path, const TestJson& body = nullptr,
                  std::vector<std::pair<std::string, std::string>> query = {},
                  std::string_view type = kJson) {
    Request request;
    request.method = method;
    request.path = std::move(path);
    request.query = std::move(query);
    if (!body.is_null()) {
      request.content_type = type;
      request.body = body.dump();
    }
    Response response = server_.Handle(request);
    return {response.status, TestJson::parse(response.body, nullptr, false)};
  }
  TestAnswer Get(std::string path, std::vector<std::pair<std::string, std::string>> query = {}) {
    return Call(Method::kGet, std::move(path), nullptr, std::move(query));
  }
  TestAnswer Post(std::string path, const TestJson& body) {
    return Call(Method::kPost, std::move(path), body);
  }
  TestAnswer Put(std::string path, const TestJson& body) {
    return Call(Method::kPut, std::move(path), body);
  }
  TestAnswer MergePatch(std::string path, const TestJson& body) {
    return Call(Method::kPatch, std::move(path), body, {}, kMergePatch);
  }
  TestAnswer Delete(std::string path, const TestJson& body = nullptr) {
    return Call(Method::kDelete, std::move(path), body);
  }

  ApiServer& server() { return server_; }
  absl::Time now() const { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  ApiServerOptions WithClock(ApiServerOptions options) {
    options.clock = [this] { return now_; };
    return options;
  }

  absl::Time now_ = absl::FromUnixSeconds(1767225600);  // 2026-01-01T00:00:00Z
  ApiServer server_;
};

inline constexpr const char* kPods = "/api/v1/namespaces/default/pods";
inline const std::string kPodA = "/api/v1/namespaces/default/pods/a";
inline constexpr const char* kNodes = "/api/v1/nodes";
inline constexpr const char* kPodGroups =
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups";

// The least a pod needs.
inline TestJson MakePod(const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}}},
          {"spec", {{"containers", {{{"name", "main"}, {"image", "example/train:1"}}}}}}};
}

inline TestJson MakeGatedPod(const std::string& name) {
  TestJson pod = MakePod(name);
  pod["spec"]["schedulingGates"] = {{{"name", "muster.dev/admission"}}};
  return pod;
}

inline TestJson MakeNode(const std::string& name) {
  return {
      {"apiVersion", "v1"},
      {"kind", "Node"},
      {"metadata", {{"name", name}}},
      {"status",
       {{"capacity", {{"cpu", "96"}, {"memory", "1Ti"}, {"pods", "110"}, {"nvidia.com/gpu", "8"}}},
        {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
}

inline TestJson MakeBinding(const std::string& pod, const std::string& node) {
  return {{"apiVersion", "v1"},
          {"kind", "Binding"},
          {"metadata", {{"name", pod}}},
          {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node}}}};
}

}  // namespace muster::kube::embedded
