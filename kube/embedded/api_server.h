// An API server in the process: the Kubernetes API over an object store, without a network.
//
// It answers as kube-apiserver v1.34 does wherever Muster, kubectl or the simulators rely on it:
// resourceVersions and conflicts, watches with bookmarks and 410, preconditions, graceful deletion,
// finalizers, scheduling gates, bindings, validation, server-side apply, CRDs, admission webhooks.
// Everybody may do everything (accounts are for those who ask about others), and there are no
// controllers.
//
// Time comes from `clock` and names and UIDs from `seed`, so that equal calls give equal answers.
// http_front.h puts it on a socket; direct_transport.h puts a kube::Transport on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kube/api.h"
#include "kube/embedded/watch_session.h"

namespace muster::kube::embedded {

class ServerImpl;
class WebhookCaller;

struct ApiServerOptions {
  std::function<absl::Time()> clock = absl::Now;
  uint64_t seed = 1;
  // Changes kept per kind; a watch that starts or falls further back gets 410.
  size_t history_limit = 32768;
  absl::Duration bookmark_interval = absl::Minutes(1);
  // Events (the kind) are dropped this long after their last change.
  absl::Duration event_lifetime = absl::Hours(1);
  size_t max_body_bytes = 3 << 20;
  std::string version = "v1.34.2";
};

// What a request's headers add; the defaults suit in-process callers.
struct RequestHeaders {
  std::string accept;
  std::string user_agent;
};

struct Answer {
  Response response;
  std::string content_type = "application/json";
  std::vector<std::string> warnings;  // for Warning headers
};

// What somebody may do; "*" is anything, and an empty namespace that of no namespace, which is also
// all of them.
struct Grant {
  std::string verb;
  std::string group;
  std::string resource;
  std::string name_space;
};

struct Account {
  std::string token = {};
  std::string user = {};
  std::vector<std::string> groups = {};
  std::vector<std::string> audiences = {};  // of the token; none: the server's own
  std::vector<Grant> may = {};
};

class ApiServer {
 public:
  explicit ApiServer(ApiServerOptions options = {});
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // Thread-safe. Never blocks on anything but admission webhooks (MayBlock). A watch request is
  // refused here: it goes to Watch.
  Response Handle(const Request& request);
  Answer Handle(const Request& request, const RequestHeaders& headers);

  // A GET with watch=1 or watch=true.
  static bool IsWatch(const Request& request);

  struct WatchResult {
    std::unique_ptr<WatchSession> session;  // null if refused
    Response refusal;
  };
  // Thread-safe. The session must go before the server.
  WatchResult Watch(const Request& request, const RequestHeaders& headers = {});

  // True if answering would call a webhook, and so may take seconds.
  bool MayBlock(const Request& request) const;

  // Who calls webhooks. Null (as at first): every call fails as unreachable, and failurePolicy
  // decides. Thread-safe; calls under way keep the caller they began with.
  void SetWebhookCaller(std::shared_ptr<WebhookCaller> caller);

  // Who is known to TokenReview and SubjectAccessReview; nobody at first. Thread-safe.
  void SetAccounts(std::vector<Account> accounts);

  // Forgets the history: older resourceVersions answer 410 from now on.
  void CompactHistory();

  // Of the latest change.
  uint64_t revision() const;
  absl::Time now() const;
  const ApiServerOptions& options() const;

 private:
  const std::unique_ptr<ServerImpl> impl_;
};

}  // namespace muster::kube::embedded
