// A Prometheus endpoint: GET /metrics, one scrape at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace muster::worker {

class MetricsServer {
 public:
  // `text` is called on the server's thread, for each scrape. Port 0 takes a free one.
  // AlreadyExists if it is taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(uint16_t port,
                                                              std::function<std::string()> text);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  uint16_t port() const;

 private:
  struct State;
  explicit MetricsServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace muster::worker
