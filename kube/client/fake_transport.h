// A transport for tests: keeps what was asked and lets the test answer, on the test's own thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kube/api.h"

namespace muster::kube {

class FakeTransport : public Transport {
 public:
  struct Sent {
    Request request;
    Done done;
    void Answer(absl::StatusOr<Response> answer) {
      std::exchange(done, nullptr)(std::move(answer));
    }
    void Answer(int status, std::string body = "") {
      Answer(Response{status, std::move(body), std::nullopt});
    }
  };
  struct OpenWatch {
    Request request;
    OnLine on_line;
    OnEnd on_end;
    bool destroyed = false;
    // The server's 200, which a first line implies.
    void Begin() const {
      if (!destroyed && request.on_begun) request.on_begun();
    }
    void Line(std::string_view line) const {
      if (!destroyed) on_line(line);
    }
    void End(absl::StatusOr<Response> end) const {
      if (!destroyed) on_end(std::move(end));
    }
    void End(int status, std::string body = "") const {
      End(Response{status, std::move(body), std::nullopt});
    }
  };

  void Send(Request request, Done done) override {
    sent.push_back(std::make_shared<Sent>(Sent{std::move(request), std::move(done)}));
  }
  std::unique_ptr<Stream> Watch(Request request, OnLine on_line, OnEnd on_end) override {
    auto watch = std::make_shared<OpenWatch>();
    watch->request = std::move(request);
    watch->on_line = std::move(on_line);
    watch->on_end = std::move(on_end);
    watches.push_back(watch);
    return std::make_unique<FakeStream>(watch);
  }

  // Everything asked so far, oldest first.
  std::vector<std::shared_ptr<Sent>> sent;
  std::vector<std::shared_ptr<OpenWatch>> watches;

 private:
  struct FakeStream : Stream {
    explicit FakeStream(std::shared_ptr<OpenWatch> watch) : watch(std::move(watch)) {}
    ~FakeStream() override { watch->destroyed = true; }
    std::shared_ptr<OpenWatch> watch;
  };
};

// The value of a query parameter; empty if absent.
inline std::string QueryOf(const Request& request, const std::string& name) {
  const auto at = std::find_if(request.query.begin(), request.query.end(),
                               [&name](const auto& item) { return item.first == name; });
  return at == request.query.end() ? "" : at->second;
}

}  // namespace muster::kube
