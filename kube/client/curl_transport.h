// The API server over the network: libcurl's multi interface, on one thread for requests and one
// for watches.
//
// https speaks HTTP/2: requests share few connections (max_streams) and watches another (more are
// opened when the server's stream limit is reached), so that neither a flood of events nor a watch
// connection that hangs holds writes up. http speaks HTTP/1.1 on kept-alive connections. TLS is
// verified unless the config says insecure; proxies of the environment are used only if it says so.
//
// A dead peer is noticed by TCP keep-alive within about half a minute. One that hangs is not: its
// kernel still acknowledges. So every request has a timeout, and what times out or is given up on a
// connection that has been silent takes the connection with it (longest_silence); and a watch
// connection that falls silent is asked whether anybody is there (probe_after), as client-go does
// by HTTP/2's ping.
//
// A request answered 401 is sent once more if its credentials change when fetched anew. libcurl may
// also send a request again by itself when a kept-alive connection turns out to be closed before
// any byte of an answer: a POST must bear being seen twice (a Binding's UID does, as does a name).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kube/api.h"
#include "kube/client/client_config.h"
#include "kube/client/transport_stats.h"

namespace muster::kube {

class IdentityKeeper;
struct TransferSettings;

struct CurlTransportOptions {
  size_t max_in_flight = 64;  // requests on the wire, a handful of urgent ones more
  // Of requests over HTTP/2, before another connection is opened: what comes on one the server
  // reads and answers on one thread at a time. kube-apiserver allows 100.
  size_t max_streams = 32;
  size_t max_queued = 20'000;        // requests that wait for a place there
  size_t max_watches = 256;          // past that a watch ends with ResourceExhausted
  size_t max_line_bytes = 16 << 20;  // of a watch, past that it ends with DataLoss
  size_t max_body_bytes = 64 << 20;  // of an answer, past that DataLoss
  absl::Duration connect_timeout = absl::Seconds(10);
  // A request that times out, or a watch that is given up, takes the connections of its kind with
  // it that have been silent for this long, so that what follows is sent on another. Less than the
  // requests' timeouts; for watches more than the minute between kube-apiserver's bookmarks, so
  // that the end of one doesn't disturb the others, and less than a reflector waits.
  absl::Duration longest_silence = absl::Seconds(3);
  absl::Duration longest_watch_silence = absl::Seconds(90);
  // Watches' connections that have brought nothing for probe_after are asked for GET /version. With
  // no answer within probe_timeout they are closed, and their watches end. client-go pings after
  // 30 s and waits for 15 s (k8s.io/apimachinery v0.34 pkg/util/net/http.go); with these a picture
  // is known to be stale within 45 s (ReflectorOptions::stale_after comes on top). Over HTTP/1.1
  // the probe has a connection of its own, and so finds a server that hangs, not a connection.
  absl::Duration probe_after = absl::Seconds(15);
  absl::Duration probe_timeout = absl::Seconds(10);
  absl::Duration refetch_interval = absl::Seconds(5);  // least time between two credential fetches
  std::string user_agent = "muster";
};

class CurlTransport : public Transport {
 public:
  // InvalidArgument if the config's server isn't a URL that can be spoken to. Connects on the first
  // request; credentials are fetched in the background, and requests wait for the first ones.
  static absl::StatusOr<std::unique_ptr<CurlTransport>> Create(
      ClientConfig config, const CurlTransportOptions& options = {});
  ~CurlTransport() override;

  // Requests and watches under way end with Cancelled before it returns, on the transport's
  // threads; what their callbacks ask for meanwhile ends so too, maybe on the caller's. No callback
  // runs afterwards: what is still asked for ends in the destructor. Not to be called from a
  // callback; the destructor does it too.
  void Stop();

  // Done runs on the thread for requests, a watch's callbacks on the thread for watches: the two
  // may run at once.
  void Send(Request request, Done done) override;
  std::unique_ptr<Stream> Watch(Request request, OnLine on_line, OnEnd on_end) override;

  // Thread-safe.
  TransportStats Stats() const;

 private:
  class Loop;
  CurlTransport(const TransferSettings& settings, const CurlTransportOptions& options);

  const std::shared_ptr<Loop> requests_;
  const std::shared_ptr<Loop> watches_;
  const std::unique_ptr<IdentityKeeper> keeper_;
};

}  // namespace muster::kube
