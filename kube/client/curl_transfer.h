// One request or watch on a libcurl easy handle. Handles are kept and used again: setting one up
// costs more than a small request.
#pragma once

#include <curl/curl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "kube/api.h"
#include "kube/client/client_config.h"
#include "kube/client/line_splitter.h"
#include "kube/client/open_sockets.h"

namespace muster::kube {

// A watch's callbacks, shared by its Stream and its transfer. Callbacks run on the loop's thread.
class WatchState {
 public:
  WatchState(std::function<void()> on_begun, Transport::OnLine on_line, Transport::OnEnd on_end)
      : on_begun_(std::move(on_begun)), on_line_(std::move(on_line)), on_end_(std::move(on_end)) {}

  // No callback afterwards; waits for one that runs on another thread.
  void Cancel();
  bool cancelled() const { return cancelled_; }

  void DeliverBegun();
  // False once cancelled, maybe by the callback itself.
  bool DeliverLine(std::string_view line);
  void DeliverEnd(absl::StatusOr<Response> end);

 private:
  template <typename Callback>
  void Run(const Callback& callback);

  std::function<void()> on_begun_;
  Transport::OnLine on_line_;
  Transport::OnEnd on_end_;
  std::mutex running_;  // held while a callback runs
  std::atomic<std::thread::id> runner_;
  std::atomic<bool> cancelled_ = false;
};

// What was asked for: a request with `done`, or a watch with `watch`.
struct Exchange {
  Request request;
  Transport::Done done;
  std::shared_ptr<WatchState> watch;
  std::chrono::steady_clock::time_point sent_at;
  std::chrono::steady_clock::time_point deadline;
  bool resent = false;  // after a 401
  // While it is parked after a 401: that answer, the identity refused, the fetch it waits for.
  Response refused;
  uint64_t refused_generation = 0;
  uint64_t refetch = 0;
};

// What every handle of a transport has in common.
struct TransferSettings {
  ClientConfig config;
  std::string base_url;     // what curl connects by: scheme, name to verify, port, path
  std::string host_header;  // empty unless it differs from base_url's
  std::string connect_to;   // "name:port:host:port", empty unless base_url's name isn't the host
  std::string user_agent;
  size_t max_line_bytes = 0;
  size_t max_body_bytes = 0;
  long connect_timeout_ms = 0;

  bool is_https() const { return base_url.starts_with("https://"); }
};
absl::StatusOr<TransferSettings> MakeTransferSettings(ClientConfig config);

class CurlTransfer {
 public:
  // Both must outlive it.
  CurlTransfer(const TransferSettings& settings, OpenSockets& sockets);
  ~CurlTransfer();
  CurlTransfer(const CurlTransfer&) = delete;
  CurlTransfer& operator=(const CurlTransfer&) = delete;

  CURL* handle() const { return easy_; }
  static CurlTransfer* Of(CURL* handle);
  Exchange& exchange() { return exchange_; }
  // Of the identity it was last prepared with.
  uint64_t generation() const { return generation_; }

  // Sets the handle up for the exchange; `generation` tells identities apart.
  void Prepare(Exchange exchange, const Identity& identity, uint64_t generation);

  // After libcurl is done with it: the answer, or why there is none.
  absl::StatusOr<Response> Finish(CURLcode code);
  size_t bytes_received() const { return bytes_received_; }
  size_t connections_opened() const;

 private:
  static size_t OnHeader(char* data, size_t size, size_t count, void* transfer);
  static size_t OnBody(char* data, size_t size, size_t count, void* transfer);
  size_t Receive(std::string_view bytes);
  void SetHeaders(const Identity& identity);
  void SetMethod();
  absl::Status NoAnswer(CURLcode code) const;
  bool WasSent() const;

  const TransferSettings& settings_;
  CURL* easy_;
  curl_slist* headers_ = nullptr;
  curl_slist* connect_to_ = nullptr;
  uint64_t generation_ = 0;
  Exchange exchange_;
  std::string body_;
  LineSplitter lines_;
  bool body_too_large_ = false;
  size_t bytes_received_ = 0;
  char error_[CURL_ERROR_SIZE] = {};
};

// The path and query of a request, escaped.
std::string Target(const Request& request);

}  // namespace muster::kube
