// What `muster serve` is told: flags, and the file given with --config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coscheduling/engine.h"

namespace muster::extender {

struct ServeOptions {
  std::string kubeconfig;
  std::string extender_listen = "127.0.0.1:8888";
  std::string listen = "127.0.0.1:8080";
  std::string grpc_listen = "127.0.0.1:8081";
  std::string webhook_listen = "127.0.0.1:9443";
  std::string health_listen = "127.0.0.1:8082";
  std::string aggregated_listen;  // empty: the aggregated API isn't served
  bool leader_elect = true;
  coscheduling::EngineOptions engine;  // scheduler_name too

  // --- only in the configuration file ---
  std::string lease_namespace;  // empty: the pod's, or the kubeconfig context's
  std::string lease_name = "muster";
  // Instead of a Lease of its own, that of the kube-scheduler beside it: this process leads while
  // the holder's identity begins with holder_prefix. An empty name: none is followed.
  struct Follow {
    std::string name_space;
    std::string name;
    std::string holder_prefix;  // empty: this host's name and "_", as kube-scheduler's
  } follow;
  // With quota: internal: the Lease by which Kueue's managers elect their leader, which says
  // whether one runs; where nobody but administrators can write it. An empty name: none is looked
  // at.
  struct KueueLease {
    std::string name_space = "kueue-system";
    std::string name = "c1f6bfd2.kueue.x-k8s.io";
  } kueue_lease;
  // Requests to the API server on the wire at once. More don't make it faster, and what is less
  // urgent would already be on its way when something more urgent comes.
  size_t max_in_flight = 64;
  // httpTimeout of the extender in kube-scheduler's configuration. A bind call that is held is
  // answered within half of it (engine.bind_wait), so that kube-scheduler hears the reason.
  absl::Duration http_timeout = absl::Seconds(30);
  // On SIGTERM a commit under way gets this long to be completed.
  absl::Duration stop_grace = absl::Seconds(10);
  struct Webhook {
    // In a cluster: the Service by which the API server reaches this process. Empty: the process
    // registers https://WEBHOOK-LISTEN, with loopback in place of "every address".
    std::string service_name;
    std::string service_namespace;  // empty: the pod's
    int service_port = 443;
    // Given certificate instead of an own CA: PEM files, all three or none.
    std::string cert_file;
    std::string key_file;
    std::string ca_file;
    // Who applies a job, a queue or the like is told by warnings what lint finds in it.
    bool warnings = true;
    // Pods are gated while they must be (Engine::NeedsGate). False, standalone alone: never, and
    // the API server asks only about those that it must.
    bool gates = true;
    // Validity of an own serving certificate.
    absl::Duration cert_validity = absl::Hours(24 * 90);
  } webhook;
  // Who may ask, by REST and gRPC.
  struct Query {
    // kToken: whoever brings a bearer token that the API server accepts may see the gangs whose
    // PodGroups it lets him read; then REST is served over TLS too, and gRPC over TLS only. kNone:
    // everybody may see everything, in the clear.
    enum class Authentication { kToken, kNone } authentication = Authentication::kToken;
    // For which tokens must be, one of them; none: for the API server.
    std::vector<std::string> audiences = {"muster.dev"};
    // Of the pods' Service for queries, by which callers in the cluster know the certificate.
    std::string service_name;
    std::string service_namespace;  // empty: the pod's
  } query;
};

// Lays the file's settings over `options`. InvalidArgument as "FILE:LINE: FIELD: what is wrong": an
// unknown field, what yaml/tree.h refuses. NotFound if the file can't be read.
absl::Status ApplyConfig(std::string_view yaml, const std::string& file, ServeOptions* options);
absl::Status ReadConfig(const std::string& path, ServeOptions* options);

}  // namespace muster::extender
