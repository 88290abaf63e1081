// What stands before a line's message: who wrote it, through whom it came, and how bad it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::worker {

// How bad a line says that it is. Most lines say nothing.
enum class Severity : uint8_t { kUnsaid, kInfo, kWarning, kError };

struct LineHead {
  // The line without what launchers and log collectors put before it. Blanks before a message stay:
  // they tell a traceback's frames from its exception.
  std::string_view body;
  // By a launcher's or PyTorch's prefix, or the message's own "[Rank 3]".
  std::optional<int> rank = {};
  // What a launcher counts by, torchrun a node's processes, srun its tasks. Where nothing else says
  // the rank it is taken for it, which is wrong where they count another thing.
  std::optional<int> index = {};
  bool rank_is_index = false;
  // The prefixes that were taken off, without times: lines of one process begin alike.
  std::string source;
  std::string_view pod;  // of kubectl's and docker compose's prefix; empty otherwise
  Severity severity = Severity::kUnsaid;
};

// Knows PyTorch's "[rank3]:" and torchrun's "[default3]:" or "[3]:", srun's "3: ", mpirun's
// "[1,3]<stderr>:", pdsh's "10.0.5.89: " or "train-3: ", docker compose's "train-3  | ", stern's
// "train-3 pytorch ", Ray's "(Worker pid=7, ip=10.0.5.89) ", kubectl's "[pod/train-0/pytorch] ",
// the times of kubectl and of containers' logs, a supervisor's time and level before "[train-3]",
// and syslog's with host and program; several after each other. Severity by glog's letter, NCCL's
// and libfabric's words, the levels of Python's logging, and "level" and the like of JSON.
LineHead HeadOf(std::string_view line);

// Whether a line stands between parts of a text that come from several places: "$ kubectl logs
// a-0",
// "==> a-0.log <==", "--- a-0 ---".
bool BeginsPart(std::string_view line);

// The rank in "[rank3]:", "[Rank 3]", "[PG ID 0 PG GUID 0 Rank 3]" or "[rank 3]", and in a JSON
// object's "rank".
std::optional<int> RankOf(std::string_view line);

// "HOST:PID" of a line that NCCL wrote ("HOST:PID:TID [DEVICE] NCCL INFO ..."), or empty. The view
// is into `line`.
std::string_view NcclProcessOf(std::string_view line);

// A line without what it only quotes: what stands between backticks, or in a line that tells of
// progress between quotation marks, and all of one that shows a prompt or what a model made of it,
// or that names a test that was run. `body` is the end of `line`; `plain` keeps what is returned.
std::string_view WithoutQuotes(std::string_view line, std::string_view body, std::string* plain);

}  // namespace muster::worker
