#include "lab/serve_api.h"

#include <fstream>
#include <memory>
#include <ostream>
#include <utility>

#include "absl/status/statusor.h"
#include "extender/stop_signals.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/http_front.h"

namespace muster::lab {

int ServeApi(const ServeApiOptions& options, std::ostream& out, std::ostream& err) {
  constexpr int kCannot = 2;
  extender::StopSignals signals;
  kube::embedded::ApiServer server;
  kube::embedded::HttpFrontOptions front_options;
  front_options.address = options.address;
  front_options.port = options.port;
  front_options.tls = options.tls;
  absl::StatusOr<std::unique_ptr<kube::embedded::HttpFront>> front =
      kube::embedded::HttpFront::Start(&server, std::move(front_options));
  if (!front.ok()) {
    err << "muster-lab: " << std::string(front.status().message()) << "\n";
    return kCannot;
  }
  if (!options.kubeconfig.empty()) {
    std::ofstream file(options.kubeconfig);
    file << (*front)->Kubeconfig();
    if (!file.flush()) {
      err << "muster-lab: can't write " << options.kubeconfig << "\n";
      return kCannot;
    }
  }
  out << (*front)->url() << std::endl;
  signals.Wait(absl::InfiniteDuration());
  return 0;
}

}  // namespace muster::lab
