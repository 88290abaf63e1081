// The service's configuration file.
#include "extender/config.h"

#include "tests/fuzz/fuzz.h"

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  // Would read whatever file the input names.
  if (input.find("instanceTypes") != std::string_view::npos) return;
  muster::extender::ServeOptions options;
  const absl::Status status = muster::extender::ApplyConfig(input, "f.yaml", &options);
  if (!status.ok()) {
    RequireSayable(MessageOf(status));
    RequirePlace(MessageOf(status), "f.yaml", input);
    return;
  }
  Require(options.webhook.service_port >= 1 && options.webhook.service_port <= 65535,
          "a port is a port");
  Require(options.max_in_flight >= 1, "requests can be sent");
  Require(options.engine.reservations.idle > 0, "something may be kept");
}
