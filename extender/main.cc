// muster: the service and its command line, and by the name kubectl-muster kubectl's plugin; what
// needs no service is muster-lab's. Exit codes: 0 done, 1 the answer is no (not found, a finding),
// 2 it could not be done (bad arguments, unreachable, forbidden).

#include <curl/curl.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "extender/config.h"
#include "extender/kubectl/completion.h"
#include "extender/kubectl/query_command.h"
#include "extender/lab_program.h"
#include "extender/move/move_command.h"
#include "extender/service.h"
#include "extender/stop_signals.h"
#include "extender/uninstall/uninstall_command.h"
#include "kube/client/client_config.h"
#include "lint/lint.h"

#ifndef MUSTER_VERSION
#error "MUSTER_VERSION comes from CMake"
#endif

namespace muster::extender {
namespace {

constexpr int kFailed = 2;

int Fail(const absl::Status& status) {
  std::cerr << "muster: " << std::string(status.message()) << "\n";
  return kFailed;
}

// kubectl runs it by this name as `kubectl muster`.
bool IsPlugin(const char* program) {
  return std::filesystem::path(program).filename() == "kubectl-muster";
}

// And by this one for what its words can go on with.
bool IsCompletion(const char* program) {
  return std::filesystem::path(program).filename() == "kubectl_complete-muster";
}

int RunCompletion(const CLI::App& app, std::vector<std::string> words) {
  std::cout << Complete(app, std::move(words), [](const QueryOptions& query) {
    std::ostringstream names;
    std::ostringstream complaint;
    // Whoever presses a key doesn't wait for a new leader.
    const int code = RunQuery(
        query,
        {.out = names, .err = complaint, .clock = absl::Now, .sleep = [](absl::Duration) {}});
    return code == 0 ? names.str() : "";
  });
  return 0;
}

int RunQuery(QueryOptions query) {
  // A connection that is cut, or a pipe that is closed, is an error of a write.
  signal(SIGPIPE, SIG_IGN);
  const auto says = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string_view(value == nullptr ? "" : value);
  };
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  return RunQuery(std::move(query),
                  {.out = std::cout,
                   .err = std::cerr,
                   .colours = terminal && says("NO_COLOR").empty() && says("TERM") != "dumb",
                   .redraws = terminal && says("TERM") != "dumb",
                   .clock = absl::Now,
                   .sleep = absl::SleepFor});
}

// One line per decision, on standard error; standard output stays for what was asked.
void SetUpLog(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("muster"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_level(spdlog::level::from_str(level));
}

struct ServeFlags {
  std::string mode = "extender";
  std::string config;
  std::string log_level = "info";
  ServeOptions options;
};

int Serve(ServeFlags flags) {
  flags.options.engine.standalone = flags.mode == "standalone";
  SetUpLog(flags.log_level);
  StopSignals signals;

  absl::StatusOr<kube::ClientConfig> cluster = kube::LoadClientConfig(flags.options.kubeconfig);
  if (!cluster.ok()) return Fail(cluster.status());
  absl::StatusOr<std::unique_ptr<Service>> service =
      Service::Start(std::move(flags.options), *std::move(cluster));
  if (!service.ok()) return Fail(service.status());
  signals.Wait(absl::InfiniteDuration());
  spdlog::info("stopping on signal {}", signals.received());
  (*service)->Stop();
  return 0;
}

// A command that asks for what Muster knows, and the flags of it that kubectl has.
CLI::App* AddQuery(CLI::App* app, const char* name, const char* what, Query query,
                   QueryOptions* options) {
  CLI::App* command = app->add_subcommand(name, what);
  command->callback([query, options] { options->query = query; });
  if (query == Query::kExplain) {
    command->add_option("gang", options->name, "NAME or NAMESPACE/NAME")->required();
  } else {
    command->add_option("name", options->name, "this one alone");
  }
  if (query != Query::kNodes) {
    command->add_option("-n,--namespace", options->name_space, "by default that of the context");
  }
  if (query == Query::kGangs || query == Query::kQueues) {
    command->add_flag(
        "-A,--all-namespaces", options->all_namespaces,
        query == Query::kGangs ? "of all namespaces" : "the cluster's, not those of a namespace");
  }
  command->add_option("-o,--output", options->output, "table, wide, json, yaml or name")
      ->check(CLI::IsMember({"table", "wide", "json", "yaml", "name"}))
      ->capture_default_str();
  command->add_flag("-w,--watch", options->watch, "go on with what changes");
  command->add_option("--kubeconfig", options->kubeconfig,
                      "kubeconfig file; by default as kubectl finds it");
  command->add_option("--context", options->context, "context of the kubeconfig");
  return command;
}

void AddServeFlags(CLI::App* serve, ServeFlags* flags) {
  ServeOptions& options = flags->options;
  serve
      ->add_option("--mode", flags->mode,
                   "extender: beside a kube-scheduler, which asks; standalone: alone")
      ->check(CLI::IsMember({"extender", "standalone"}))
      ->capture_default_str();
  serve->add_option("--kubeconfig", options.kubeconfig,
                    "kubeconfig file; by default $KUBECONFIG, the pod's account, ~/.kube/config");
  serve
      ->add_option("--scheduler-name", options.engine.scheduler_name,
                   "pods with this name are ours")
      ->capture_default_str();
  serve->add_option("--extender-listen", options.extender_listen, "for kube-scheduler")
      ->capture_default_str();
  serve->add_option("--listen", options.listen, "REST, metrics, web page")->capture_default_str();
  serve->add_option("--grpc-listen", options.grpc_listen, "gRPC")->capture_default_str();
  serve->add_option("--webhook-listen", options.webhook_listen, "the gate, over TLS")
      ->capture_default_str();
  serve->add_option("--health-listen", options.health_listen, "the kubelet's probes")
      ->capture_default_str();
  serve->add_option("--aggregated-listen", options.aggregated_listen,
                    "for the API server, which hands queries on, over TLS; by default not served");
  serve->add_option("--leader-elect", options.leader_elect, "only the holder of the Lease acts")
      ->capture_default_str();
  serve->add_option("--config", flags->config, "YAML file with further settings");
  serve->add_option("--log-level", flags->log_level, "trace, debug, info, warn, err")
      ->capture_default_str();
}

struct MoveFlags {
  CLI::App* in = nullptr;
  CLI::App* out = nullptr;
  MoveOptions options;
};

void AddMoveFlags(CLI::App* move, MoveFlags* flags) {
  move->require_subcommand(1);
  flags->in = move->add_subcommand("in", "from Kueue to quota: internal: what is left to do");
  flags->out = move->add_subcommand("out", "from quota: internal to Kueue: what is left to do");
  for (CLI::App* each : {flags->in, flags->out}) {
    MoveSettings& settings = flags->options.settings;
    each->add_flag("--apply", flags->options.apply,
                   "do what needs no hands, if nothing else is left");
    each->add_option("--kubeconfig", flags->options.kubeconfig,
                     "kubeconfig file of an administrator; by default as with serve");
    each->add_option("--scheduler-name", settings.scheduler_name, "pods with this name are ours")
        ->capture_default_str();
    each->add_option("--kueue-namespace", settings.kueue_namespace, "where Kueue is installed")
        ->capture_default_str();
    each->add_option("--muster-namespace", settings.muster_namespace, "where Muster is installed")
        ->capture_default_str();
  }
}

void AddUninstallFlags(CLI::App* uninstall, UninstallOptions* options) {
  using Waiting = UninstallSettings::Waiting;
  UninstallSettings& settings = options->settings;
  uninstall->add_flag("--yes", options->apply, "do it; without, say what would be done");
  uninstall
      ->add_option_function<std::string>(
          "--gates",
          [&settings](const std::string& said) {
            settings.waiting = said == "lift" ? Waiting::kLift : Waiting::kKeep;
          },
          "what waits behind the gate, or suspended by Muster: lift it, for whoever schedules "
          "under this name, or keep it for another Muster")
      ->check(CLI::IsMember({"lift", "keep"}));
  uninstall->add_option("--kubeconfig", options->kubeconfig,
                        "kubeconfig file of an administrator; by default as with serve");
  uninstall->add_option("--scheduler-name", settings.scheduler_name, "pods with this name are ours")
      ->capture_default_str();
  uninstall
      ->add_option("--muster-namespace", settings.muster_namespace, "where Muster is installed")
      ->capture_default_str();
  uninstall->add_option("--kueue-namespace", settings.kueue_namespace, "where Kueue is, if it is")
      ->capture_default_str();
}

int Main(int argc, char** argv) {
  const bool completes = IsCompletion(argv[0]);
  const bool plugin = completes || IsPlugin(argv[0]);
  CLI::App app("Gang scheduler for Kubernetes: a job starts only when all of it can start.",
               plugin ? "kubectl muster" : "muster");
  app.set_version_flag("--version", std::string("muster ") + MUSTER_VERSION);
  app.require_subcommand(1);

  ServeFlags flags;
  CLI::App* serve = app.add_subcommand("serve", "run the service");
  AddServeFlags(serve, &flags);
  if (plugin) serve->group("");  // isn't in the help

  QueryOptions query;
  const CLI::App* queries[] = {
      AddQuery(&app, "gangs", "list gangs", Query::kGangs, &query),
      AddQuery(&app, "queues", "list queues, their usage, and who waits in order", Query::kQueues,
               &query),
      AddQuery(&app, "nodes", "list nodes that come and are there, and for whom", Query::kNodes,
               &query),
      AddQuery(&app, "explain", "say what a gang waits for, and what to do", Query::kExplain,
               &query)};

  lint::LintOptions lint_options;
  CLI::App* lint = app.add_subcommand("lint", "find mistakes in manifests, without a cluster");
  lint->add_option("files", lint_options.files, "FILE..., - for standard input")->required();
  lint->add_option("-o,--output", lint_options.output, "text, json or sarif")
      ->check(CLI::IsMember({"text", "json", "sarif"}))
      ->capture_default_str();
  lint->add_option("--instance-types", lint_options.instance_types,
                   "file of EC2 types beside those that are known, as cluster/instance_types.txt");
  lint->add_option("--config", lint_options.config,
                   "Muster's configuration: what requests count as in quota");

  MoveFlags move_flags;
  CLI::App* move = app.add_subcommand("move", "change a cluster from Kueue to Muster, or back");
  AddMoveFlags(move, &move_flags);

  UninstallOptions uninstall_options;
  CLI::App* uninstall =
      app.add_subcommand("uninstall", "take Muster out of a cluster: what is left to do");
  AddUninstallFlags(uninstall, &uninstall_options);

  // Handed over before anything is parsed; here for --help.
  app.add_subcommand("simulate", "what happens if, in virtual time (needs muster-lab)");
  CLI::App* demo =
      app.add_subcommand("demo", "watch a gang wait for its nodes and bind (needs muster-lab)");
  if (plugin) demo->group("");
  if (completes) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    return RunCompletion(app, {argv + 1, argv + argc});
  }
  if (argc > 1 && IsLabCommand(argv[1])) return Fail(BecomeLab(argv));

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kFailed;
  }
  if (*lint) return lint::RunLint(lint_options, std::cin, std::cout, std::cerr);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  if (*move) {
    move_flags.options.out = move_flags.out->parsed();
    return RunMove(move_flags.options, std::cout, std::cerr);
  }
  if (*uninstall) return RunUninstall(uninstall_options, std::cout, std::cerr);
  for (const CLI::App* each : queries) {
    if (*each) return RunQuery(std::move(query));
  }
  if (!flags.config.empty()) {
    if (absl::Status status = ReadConfig(flags.config, &flags.options); !status.ok()) {
      return Fail(status);
    }
  }
  return Serve(std::move(flags));
}

}  // namespace
}  // namespace muster::extender

int main(int argc, char** argv) { return muster::extender::Main(argc, argv); }
