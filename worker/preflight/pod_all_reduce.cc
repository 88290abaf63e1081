#include "worker/preflight/pod_all_reduce.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "nlohmann/json.hpp"
#include "worker/communicator/local_communicator.h"
#include "worker/diagnose/text.h"
#include "worker/preflight/apart.h"

namespace muster::worker {
namespace {

constexpr char kResultRow[] = "all-reduce result";
constexpr std::string_view kStep = "step: ";

// What the ranks' threads share. It lives as long as the last of them: where one GPU fails, the
// others wait for it for ever.
struct PodTrial {
  std::shared_ptr<ImageNccl> nccl;
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::vector<int> nodes;  // all the same
  absl::Duration time;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<GpuAllReduce> gpus;       // guarded by mutex
  size_t done = 0;                      // guarded by mutex
  std::optional<ImageNcclError> error;  // guarded by mutex; the first
};

void TryRank(PodTrial& trial, int rank) {
  std::optional<ImageNcclError> error;
  const std::unique_ptr<AllReducer> reducer = trial.nccl->MakeReducer(rank, &error);
  // Whoever is waited for too long is seen by who started this process.
  const absl::StatusOr<AllReduceFound> found = TryAllReduces(
      *trial.ranks[rank], trial.nodes, *reducer, trial.time, absl::InfiniteDuration());
  const std::lock_guard lock(trial.mutex);
  ++trial.done;
  if (found.ok()) {
    trial.gpus[rank].found = *found;
  } else if (!trial.error.has_value()) {
    trial.error = error.value_or(ImageNcclError{.cause = CauseId::kNcclInternalError,
                                                .text = std::string(found.status().message())});
  }
  trial.changed.notify_all();
}

std::string ByNccl(const PodAllReduce& found) {
  if (found.library.empty()) return "";
  return Concat("; NCCL ", found.version, found.version.empty() ? "of " : " of ", found.library);
}

// What came of a process that didn't answer.
ImageNcclError WithoutAnswer(const ApartEnd& end, absl::Duration timeout) {
  const size_t step = end.answer.rfind(kStep);
  const std::string at =
      step == std::string::npos
          ? ""
          : Concat(" in ", TextAfter(std::string_view(end.answer).substr(step), kStep, "\n"));
  switch (end.how) {
    case ApartEnd::How::kLate:
    case ApartEnd::How::kStopped:
      return {.cause = CauseId::kProcessHung,
              .text = Concat("no end within ", absl::FormatDuration(timeout), at)};
    case ApartEnd::How::kSignalled:
      return {.cause = end.number == SIGKILL ? CauseId::kKilled : CauseId::kProgramCrash,
              .text = Concat("the process that tried it ended by signal ", end.number, at)};
    case ApartEnd::How::kExited:
      break;
  }
  return {.cause = CauseId::kProgramCrash,
          .text = Concat("the process that tried it ended with ", end.number, at)};
}

// Before anything is loaded.
void Isolate() {
  // Nobody waits for it if its parent is gone, and its core helps nobody.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none = {};
  setrlimit(RLIMIT_CORE, &none);
}

void WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

PodAllReduce TryPodAllReduce(const PodAllReduceOptions& options, const ImageNccl::Begins& begins) {
  PodAllReduce result;
  begins("loading NCCL and CUDA");
  absl::StatusOr<std::shared_ptr<ImageNccl>> nccl = ImageNccl::Load(options.nccl, options.cuda);
  if (!nccl.ok()) {
    result.not_tried = std::string(nccl.status().message());
    return result;
  }
  result.library = (*nccl)->library();
  result.version = (*nccl)->version();
  result.error = (*nccl)->Start(begins);
  if (result.error.has_value()) return result;
  begins("ncclAllReduce");
  const auto trial = std::make_shared<PodTrial>();
  trial->nccl = *std::move(nccl);
  const std::vector<std::string>& names = trial->nccl->gpus();
  trial->ranks = MakeLocalCommunicators(static_cast<int>(names.size()));
  trial->nodes.resize(names.size());
  trial->time = options.time;
  for (const std::string& name : names) trial->gpus.push_back({.name = name});
  for (size_t rank = 0; rank < names.size(); ++rank) {
    std::thread([trial, rank] { TryRank(*trial, static_cast<int>(rank)); }).detach();
  }
  std::unique_lock lock(trial->mutex);
  trial->changed.wait(
      lock, [&] { return trial->done == trial->gpus.size() || trial->error.has_value(); });
  result.error = trial->error;
  if (!result.error.has_value()) {
    result.gpus = trial->gpus;
  } else if (result.error->gpu.has_value()) {
    result.error->text = Concat(names[*result.error->gpu], ": ", result.error->text);
  }
  return result;
}

PodAllReduce TryPodAllReduceApart(const PodAllReduceOptions& options, absl::Duration timeout,
                                  std::function<bool()> stopped) {
  const absl::StatusOr<ApartEnd> end =
      RunApart({"muster-worker", "all-reduce", "--library=" + options.nccl,
                "--time=" + absl::FormatDuration(options.time)},
               {.timeout = timeout, .stopped = std::move(stopped)});
  if (!end.ok()) return {.not_tried = std::string(end.status().message())};
  if (end->how == ApartEnd::How::kStopped) return {.not_tried = "the pod is being stopped"};
  if (end->how == ApartEnd::How::kExited) {
    absl::StatusOr<PodAllReduce> found = ParsePodAllReduce(end->answer);
    if (found.ok()) return *std::move(found);
  }
  return {.library = options.nccl, .error = WithoutAnswer(*end, timeout)};
}

int RunPodAllReduce(const std::vector<std::string>& arguments, std::ostream& err) {
  PodAllReduceOptions options;
  for (std::string_view argument : arguments) {
    bool known = true;
    if (ConsumePrefix(&argument, "--library=")) {
      options.nccl = argument;
    } else {
      known = ConsumePrefix(&argument, "--time=") &&
              absl::ParseDuration(std::string(argument), &options.time);
    }
    if (known) continue;
    err << "usage: muster-worker all-reduce [--library=FILE] [--time=DURATION]\n";
    return 2;
  }
  Isolate();
  // NCCL writes to standard output what NCCL_DEBUG asks for.
  const int answer = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const PodAllReduce found = TryPodAllReduce(
      options, [answer](std::string_view step) { WriteAll(answer, Concat(kStep, step, "\n")); });
  WriteAll(answer, PodAllReduceJson(found));
  const std::vector<Row> rows = CheckPodAllReduce(found, {}, {.table = {}}).rows;
  // Libraries that have failed needn't survive their own end, and neither do threads that wait.
  _exit(ExitCodeOf(rows));
}

std::string PodAllReduceJson(const PodAllReduce& found) {
  nlohmann::json json = {
      {"library", found.library}, {"version", found.version}, {"notTried", found.not_tried}};
  if (found.error.has_value()) {
    json["cause"] = CauseOf(found.error->cause).name;
    json["error"] = found.error->text;
    if (found.error->gpu.has_value()) json["gpuAtFault"] = *found.error->gpu;
  }
  json["gpus"] = nlohmann::json::array();
  for (const GpuAllReduce& gpu : found.gpus) {
    nlohmann::json& one =
        json["gpus"].emplace_back(nlohmann::json{{"name", gpu.name}, {"rate", gpu.found.node}});
    if (!gpu.found.wrong.has_value()) continue;
    const WrongSum& wrong = *gpu.found.wrong;
    one["wrong"] = {{"element", wrong.element},
                    {"found", Concat(wrong.found)},
                    {"expected", wrong.expected},
                    {"elements", wrong.wrong_elements}};
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<PodAllReduce> ParsePodAllReduce(const std::string& text) {
  const size_t begin = text.starts_with("{\n") ? 0 : text.find("\n{\n");
  const nlohmann::json json = nlohmann::json::parse(
      begin == std::string::npos ? "" : text.substr(begin), nullptr, /*allow_exceptions=*/false);
  try {
    PodAllReduce found = {.library = json.at("library"),
                          .version = json.at("version"),
                          .not_tried = json.at("notTried")};
    if (json.contains("error")) {
      const std::string name = json.at("cause");
      const Cause* cause = FindCause(name);
      found.error =
          ImageNcclError{.cause = cause == nullptr ? CauseId::kNcclInternalError : cause->id,
                         .text = json.at("error")};
      if (json.contains("gpuAtFault")) found.error->gpu = json.at("gpuAtFault").get<int>();
    }
    for (const nlohmann::json& one : json.at("gpus")) {
      GpuAllReduce& gpu = found.gpus.emplace_back(GpuAllReduce{.name = one.at("name")});
      gpu.found.node = one.at("rate");
      if (!one.contains("wrong")) continue;
      const nlohmann::json& wrong = one.at("wrong");
      gpu.found.wrong = WrongSum{.element = wrong.at("element"),
                                 .found = std::stof(wrong.at("found").get<std::string>()),
                                 .expected = wrong.at("expected"),
                                 .wrong_elements = wrong.at("elements")};
    }
    return found;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        Concat("what the all-reduce gave can't be read: ", error.what()));
  }
}

AllReduceVerdict CheckPodAllReduce(const PodAllReduce& found, const PodOfAllReduce& pod,
                                   const AllReduceExpectations& expected) {
  if (!found.not_tried.empty()) {
    return {.rows = {{.check = kResultRow, .numbers = Concat("not tried: ", found.not_tried)}}};
  }
  if (found.error.has_value()) {
    AllReduceVerdict verdict = {.rows = {FailedRow(kResultRow, found.error->cause,
                                                   Concat(found.error->text, ByNccl(found)))},
                                .host_at_fault = pod.host};
    if (found.error->gpu.has_value()) verdict.rank_at_fault = pod.first_rank + *found.error->gpu;
    return verdict;
  }
  std::vector<RankAllReduce> ranks;
  for (const GpuAllReduce& gpu : found.gpus) {
    ranks.push_back({.rank = pod.first_rank + static_cast<int>(ranks.size()),
                     .node = pod.node,
                     .host = pod.host,
                     .gpu = gpu.name,
                     .links = pod.links,
                     .found = gpu.found});
  }
  AllReduceVerdict verdict = CheckAllReduces(ranks, expected);
  Append(&verdict.rows[0].numbers, ByNccl(found));
  return verdict;
}

}  // namespace muster::worker
