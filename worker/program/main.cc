// muster-worker: what the pods of a training gang run.
#include <algorithm>
#include <csignal>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "worker/diagnose/diagnose_command.h"
#include "worker/preflight/fabric.h"
#include "worker/preflight/pod_all_reduce.h"
#include "worker/program/convert_command.h"
#include "worker/program/eval_command.h"
#include "worker/program/launch_command.h"
#include "worker/program/preflight_job.h"
#include "worker/program/train.h"

#ifndef MUSTER_VERSION
#error "MUSTER_VERSION comes from CMake"
#endif

namespace muster::worker {
namespace {

constexpr std::string_view kUsage =
    "usage: muster-worker COMMAND [ARGUMENT...]\n\n"
    "  launch     any program as the ranks of a pod, and why it ended\n"
    "  train      one pod of a training job, or one of its ranks\n"
    "  preflight  what is wrong with this machine, before anything is trained\n"
    "  fabric     how NCCL would move GPU memory between nodes\n"
    "  all-reduce between this pod's GPUs, by the image's NCCL; launch tries it\n"
    "  diagnose   why a job failed, from its logs\n"
    "  convert    text or token ids to token files, a checkpoint to Hugging Face's weights\n"
    "  eval       loss and perplexity of weights or of a checkpoint\n"
    "  version\n\n"
    "muster-worker COMMAND --help says more. Exit codes: 0 done; 143 stopped by SIGTERM; other "
    "codes "
    "from\n128 on are worth another start; below 128 something must be changed first (78), or the "
    "arguments\nmake no sense (2).\n";

int Run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1),
                                      arguments.end());
  if (command == "launch") return RunLaunch(rest, std::cout, std::cerr);
  if (command == "train") return RunTrain(arguments, MUSTER_VERSION, std::cout, std::cerr);
  if (command == "preflight") {
    return RunPreflightJob(arguments, MUSTER_VERSION, std::cout, std::cerr);
  }
  if (command == "fabric") return RunFabric(rest, std::cout, std::cerr);
  if (command == "all-reduce") return RunPodAllReduce(rest, std::cerr);
  if (command == "diagnose") return RunDiagnose(rest, std::cout, std::cerr);
  if (command == "convert") return RunConvert(rest, std::cout, std::cerr);
  if (command == "eval") return RunEval(arguments, MUSTER_VERSION, std::cout);
  if (command == "version" || command == "--version") {
    std::cout << "muster-worker " MUSTER_VERSION "\n";
    return 0;
  }
  if (command == "help" || command == "--help" || command == "-h") {
    std::cout << kUsage;
    return 0;
  }
  std::cerr << (command.empty() ? "which command?" : "unknown command " + command) << "\n\n"
            << kUsage;
  return 2;
}

}  // namespace
}  // namespace muster::worker

int main(int argc, char** argv) {
  // A file that grew too large and a reader that went away are errors, and no end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  return muster::worker::Run({argv + 1, argv + std::max(1, argc)});
}
