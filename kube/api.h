// Requests to a Kubernetes API server, and the transport that carries them.
//
// Everything above speaks to the server through `Transport`, so the same code runs against a real
// cluster (curl_transport.h), the embedded API server over HTTP, and the embedded API server called
// directly in virtual time (embedded/direct_transport.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::kube {

enum class Method { kGet, kPost, kPut, kPatch, kDelete };

inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kMergePatch = "application/merge-patch+json";
inline constexpr std::string_view kStrategicMergePatch = "application/strategic-merge-patch+json";
inline constexpr std::string_view kApplyPatch = "application/apply-patch+yaml";
inline constexpr std::string_view kJsonPatch = "application/json-patch+json";

struct Request {
  Method method = Method::kGet;
  std::string path = {};  // from "/api" or "/apis" on, without a query
  std::vector<std::pair<std::string, std::string>> query = {};  // unescaped
  std::string content_type = {};                                // of body; empty without one
  std::string body = {};
  // From the call until the answer is complete, waiting in a queue included. Of a watch: until the
  // stream has ended.
  absl::Duration timeout = absl::Seconds(30);
  // Doesn't wait behind the others for its place on the wire. For the few that everything else
  // hangs on: a leader's renewals, the pages of a first list.
  bool urgent = false;
  // Of a watch: the server has answered 200 and the stream has begun, be there lines or not. Runs
  // before the first line, as those callbacks do.
  std::function<void()> on_begun = {};
};

struct Response {
  int status = 0;
  std::string body = {};
  std::optional<absl::Duration> retry_after = {};

  bool ok() const { return status >= 200 && status < 300; }
};

// The server's answer as a Status: 404 NotFound, 409 Aborted (AlreadyExists if its reason says so),
// 410 OutOfRange, 429 ResourceExhausted, 401 Unauthenticated, 403 PermissionDenied, 400, 413 and
// 422 InvalidArgument, 5xx Unavailable, others Unknown; with the server's own message. OK for 2xx.
absl::Status ToStatus(const Response& response);

// One open watch. Destroying it ends the stream; no callback runs afterwards, and one that runs on
// another thread is waited for: hold no lock that the callbacks take. A callback may destroy its
// own stream. May outlive its transport.
class Stream {
 public:
  virtual ~Stream() = default;
};

class Transport {
 public:
  // Not OK only if no answer came; an HTTP error is a Response. Unavailable and ResourceExhausted:
  // the request was certainly not carried out (no connection, no room to wait). Any other code
  // (DeadlineExceeded, Cancelled, Unknown, ...): it may have been.
  // Runs exactly once, on the transport's own thread unless it says otherwise, and never inside
  // Send; must not block.
  using Done = std::function<void(absl::StatusOr<Response>)>;
  // One line of a watch's body, without its newline. The view is valid during the call.
  using OnLine = std::function<void(std::string_view line)>;
  // The stream has ended, from whichever side; status of the HTTP answer if there was one.
  using OnEnd = std::function<void(absl::StatusOr<Response> end)>;

  virtual ~Transport() = default;

  // Sends once: retries are the caller's (retry.h). Thread-safe. Requests past the bound on those
  // under way wait in a bounded queue; past that Done gets ResourceExhausted.
  virtual void Send(Request request, Done done) = 0;

  // Thread-safe.
  virtual std::unique_ptr<Stream> Watch(Request request, OnLine on_line, OnEnd on_end) = 0;
};

}  // namespace muster::kube
