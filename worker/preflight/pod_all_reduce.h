// All-reduces between the GPUs of one pod, before any program starts there: by the NCCL that the
// image has for that program. Without a rendezvous, so never between pods.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/preflight/all_reduce_checks.h"
#include "worker/preflight/image_nccl.h"

namespace muster::worker {

struct GpuAllReduce {
  std::string name = {};  // as ImageNccl::gpus
  AllReduceFound found = {};
};

// What was found; of `not_tried` and `error` at most one is set.
struct PodAllReduce {
  std::string library = {};    // NCCL's file
  std::string version = {};    // and its version
  std::string not_tried = {};  // why not
  std::optional<ImageNcclError> error = {};
  std::vector<GpuAllReduce> gpus = {};  // empty unless all was tried
};

struct PodAllReduceOptions {
  std::string nccl = "libnccl.so.2";
  std::string cuda = "libcuda.so.1";
  absl::Duration time = absl::Seconds(1);  // to measure for
};

// In this process, which it may crash, hang, or leave with threads and contexts: a rank in a thread
// for each GPU.
PodAllReduce TryPodAllReduce(const PodAllReduceOptions& options, const ImageNccl::Begins& begins);

// The same in a process of its own, this program's `muster-worker all-reduce`; one that doesn't end
// in time is killed. `stopped` as in RunApart.
PodAllReduce TryPodAllReduceApart(const PodAllReduceOptions& options, absl::Duration timeout,
                                  std::function<bool()> stopped);

// `muster-worker all-reduce [--library=FILE] [--time=DURATION]`: tries, and writes what was found
// as JSON. 0 if that is good or nothing was tried, else the cause's exit code; 2 for wrong
// arguments. Ends the process.
int RunPodAllReduce(const std::vector<std::string>& arguments, std::ostream& err);

std::string PodAllReduceJson(const PodAllReduce& found);
// The last one in `text`, which may begin with other words. InvalidArgument for what
// PodAllReduceJson wouldn't write.
absl::StatusOr<PodAllReduce> ParsePodAllReduce(const std::string& text);

// The pod that it was tried in.
struct PodOfAllReduce {
  int first_rank = 0;  // the others follow, in the order of GPUs
  int node = 0;
  std::string host = {};
  LinkFacts links = {};
};

// Rows as CheckAllReduces gives them, "all-reduce result" with the reason if there was no result.
AllReduceVerdict CheckPodAllReduce(const PodAllReduce& found, const PodOfAllReduce& pod,
                                   const AllReduceExpectations& expected);

}  // namespace muster::worker
