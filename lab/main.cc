// muster-lab: what is tried without a cluster. It holds the embedded API server and the simulators,
// which the service's own binary doesn't. Exit codes: 0 done, 1 the answer is no, 2 it could not be
// done.

#include <curl/curl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "lab/demo.h"
#include "lab/serve_api.h"
#include "simulation/simulate.h"

#ifndef MUSTER_VERSION
#error "MUSTER_VERSION comes from CMake"
#endif

namespace muster::lab {
namespace {

constexpr int kFailed = 2;

void AddSimulateFlags(CLI::App* simulate, simulation::SimulateOptions* options) {
  simulate->add_option("files", options->files, "SCENARIO..., - for standard input")->required();
  simulate->add_option("-o,--output", options->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  simulate->add_flag("--brief", options->brief, "of the text, only the sums");
  simulate->add_option("--seed", options->seed, "of everything that is drawn")
      ->capture_default_str();
  simulate
      ->add_option("--policy", options->policy,
                   "who sees to it that gangs start whole: muster; coscheduling, which is "
                   "Kueue with kube-scheduler's coscheduling plugin; or both, compared; "
                   "no-reservation or guard: muster, keeping nothing for who is first in line, or "
                   "freed room for a minute in five")
      ->capture_default_str();
  simulate->add_option("--until", options->until,
                       "virtual time to run for; by default until nothing waits or idles, at most "
                       "an hour after the last step");
}

void AddDemoFlags(CLI::App* demo, DemoOptions* options) {
  demo->add_flag("--keep", options->keep, "leave everything running until Ctrl-C");
  demo->add_option("--speed", options->speed, "divides the delays of the nodes")
      ->check(CLI::Range(0.1, 6.0))
      ->capture_default_str();
}

void AddApiServerFlags(CLI::App* api_server, ServeApiOptions* options) {
  api_server->add_option("--address", options->address, "a loopback address")
      ->capture_default_str();
  api_server->add_option("--port", options->port, "0 is any free one")->capture_default_str();
  api_server->add_flag("--tls", options->tls, "with a certificate of its own making");
  api_server->add_option("--kubeconfig", options->kubeconfig, "file to write one to");
}

int Demo(DemoOptions options) {
  options.out = &std::cout;
  winsize size{};
  options.terminal = isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  options.terminal = options.terminal && size.ws_col > 0 && size.ws_row > 0;
  if (options.terminal) {
    options.columns = size.ws_col;
    options.rows = size.ws_row;
  }
  return RunDemo(options);
}

int Main(int argc, char** argv) {
  CLI::App app("Muster without a cluster: its demo, what-if, and an API server to try it on.",
               "muster-lab");
  app.set_version_flag("--version", std::string("muster-lab ") + MUSTER_VERSION);
  app.require_subcommand(1);

  simulation::SimulateOptions simulate_options;
  CLI::App* simulate = app.add_subcommand("simulate", "what happens if, in virtual time");
  AddSimulateFlags(simulate, &simulate_options);
  DemoOptions demo_options;
  CLI::App* demo = app.add_subcommand("demo", "watch a gang wait for its nodes and bind");
  AddDemoFlags(demo, &demo_options);
  ServeApiOptions api_options;
  CLI::App* api_server =
      app.add_subcommand("apiserver", "serve the embedded API server until Ctrl-C");
  AddApiServerFlags(api_server, &api_options);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kFailed;
  }
  if (*simulate) return simulation::RunSimulate(simulate_options, std::cin, std::cout, std::cerr);
  if (*api_server) return ServeApi(api_options, std::cout, std::cerr);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  return Demo(demo_options);
}

}  // namespace
}  // namespace muster::lab

int main(int argc, char** argv) { return muster::lab::Main(argc, argv); }
