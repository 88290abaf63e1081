// muster: the service and its command line; what needs no service is muster-lab's. Exit codes: 0
// done, 1 the answer is no (not found, a finding), 2 it could not be done (bad arguments,
// unreachable).

#include <curl/curl.h>
#include <google/protobuf/util/json_util.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "extender/config.h"
#include "extender/lab_program.h"
#include "extender/move/move_command.h"
#include "extender/rest_client.h"
#include "extender/service.h"
#include "extender/stop_signals.h"
#include "extender/uninstall/uninstall_command.h"
#include "kube/client/client_config.h"
#include "lint/lint.h"
#include "printers/tables.h"

#ifndef MUSTER_VERSION
#error "MUSTER_VERSION comes from CMake"
#endif

namespace muster::extender {
namespace {

constexpr int kNo = 1;
constexpr int kFailed = 2;

int Fail(const absl::Status& status) {
  std::cerr << "muster: " << std::string(status.message()) << "\n";
  return absl::IsNotFound(status) ? kNo : kFailed;
}

// Of what is needed before anything can be answered: its absence is no answer.
int CannotStart(const absl::Status& status) {
  Fail(status);
  return kFailed;
}

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const auto written = google::protobuf::util::MessageToJsonString(message, &text, options);
  return written.ok() ? text : written.ToString();
}

struct QueryOptions {
  std::string server = "http://127.0.0.1:8080";
  std::string name_space;
  std::string gang;
  std::string output = "table";
  std::string token_file;

  // Exits where the token can't be read.
  RestClient Client() const {
    if (token_file.empty()) return RestClient(server);
    std::ifstream file(token_file);
    std::string token;
    if (!(file >> token)) {
      std::exit(CannotStart(absl::NotFoundError("--token-file: " + token_file + " has no token")));
    }
    return RestClient(server, token);
  }
};

int Gangs(const QueryOptions& query) {
  absl::StatusOr<v1::ListGangsResponse> gangs = query.Client().ListGangs(query.name_space);
  if (!gangs.ok()) return Fail(gangs.status());
  std::cout << (query.output == "json" ? Json(*gangs) : printers::GangTable(*gangs));
  return 0;
}

int Queues(const QueryOptions& query) {
  absl::StatusOr<v1::ListQueuesResponse> queues = query.Client().ListQueues();
  if (!queues.ok()) return Fail(queues.status());
  std::cout << (query.output == "json" ? Json(*queues) : printers::QueueTable(*queues));
  return 0;
}

int Explain(const QueryOptions& query) {
  const size_t slash = query.gang.find('/');
  const std::string name_space =
      slash == std::string::npos ? "default" : query.gang.substr(0, slash);
  const std::string name = slash == std::string::npos ? query.gang : query.gang.substr(slash + 1);
  absl::StatusOr<v1::Gang> gang = query.Client().GetGang(name_space, name);
  if (!gang.ok()) return Fail(gang.status());
  std::cout << (query.output == "json" ? Json(*gang) : printers::ExplainGang(*gang));
  return 0;
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
  if (flags.mode != "extender") {
    return Fail(absl::InvalidArgumentError(
        "--mode=" + flags.mode + ": this build serves --mode=extender, beside a kube-scheduler"));
  }
  SetUpLog(flags.log_level);
  StopSignals signals;

  absl::StatusOr<kube::ClientConfig> cluster = kube::LoadClientConfig(flags.options.kubeconfig);
  if (!cluster.ok()) return CannotStart(cluster.status());
  absl::StatusOr<std::unique_ptr<Service>> service =
      Service::Start(std::move(flags.options), *std::move(cluster));
  if (!service.ok()) return Fail(service.status());
  signals.Wait(absl::InfiniteDuration());
  spdlog::info("stopping on signal {}", signals.received());
  (*service)->Stop();
  return 0;
}

void AddQueryFlags(CLI::App* command, QueryOptions* query) {
  command->add_option("--server", query->server, "REST address of a running muster")
      ->capture_default_str();
  command->add_option("--token-file", query->token_file,
                      "file with a bearer token, as of kubectl create token --audience=muster.dev");
  command->add_option("-o,--output", query->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
}

void AddServeFlags(CLI::App* serve, ServeFlags* flags) {
  ServeOptions& options = flags->options;
  serve->add_option("--mode", flags->mode, "extender")
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
  CLI::App app("Gang scheduler for Kubernetes: a job starts only when all of it can start.",
               "muster");
  app.set_version_flag("--version", std::string("muster ") + MUSTER_VERSION);
  app.require_subcommand(1);

  ServeFlags flags;
  CLI::App* serve = app.add_subcommand("serve", "run the service");
  AddServeFlags(serve, &flags);

  QueryOptions query;
  CLI::App* gangs = app.add_subcommand("gangs", "list gangs");
  gangs->add_option("-n,--namespace", query.name_space, "of this namespace only");
  AddQueryFlags(gangs, &query);
  CLI::App* queues = app.add_subcommand("queues", "list queues, their usage, and who waits");
  AddQueryFlags(queues, &query);
  CLI::App* explain = app.add_subcommand("explain", "say why a gang is where it is");
  explain->add_option("gang", query.gang, "NAMESPACE/NAME")->required();
  AddQueryFlags(explain, &query);

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
  app.add_subcommand("demo", "watch a gang wait for its nodes and bind (needs muster-lab)");
  if (argc > 1 && IsLabCommand(argv[1])) return CannotStart(BecomeLab(argv));

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
  if (*gangs) return Gangs(query);
  if (*queues) return Queues(query);
  if (*explain) return Explain(query);
  if (!flags.config.empty()) {
    if (absl::Status status = ReadConfig(flags.config, &flags.options); !status.ok()) {
      return CannotStart(status);
    }
  }
  return Serve(std::move(flags));
}

}  // namespace
}  // namespace muster::extender

int main(int argc, char** argv) { return muster::extender::Main(argc, argv); }
