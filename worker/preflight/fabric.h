// What would move GPU memory between nodes here: asked of libfabric and of NCCL's network plugin
// themselves, in the way in which NCCL asks.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::worker {

struct Fabric {
  // libfabric's version, "2.1"; empty where there is none.
  std::string libfabric = {};
  // Its EFA devices that take GPU memory, of which it knows by itself.
  int gpu_devices = 0;
  // What stands in the way of either.
  std::string libfabric_error = {};

  // The plugin's file, as NCCL_NET_PLUGIN says or as NCCL looks for it.
  std::string plugin = {};
  // "RDMA" or "SENDRECV", which it chose as it started; empty where it didn't.
  std::string protocol = {};
  // Of which libfabric's provider it then has so many devices, and whether they take GPU memory.
  std::string provider = {};
  int devices = 0;
  bool gpu_memory = false;
  // Its warnings, or the linker's, where it didn't start.
  std::string plugin_error = {};

  bool operator==(const Fabric&) const = default;
};

// Loads both libraries into this process and starts them; they may end it. With NCCL_DEBUG=INFO the
// plugin's words go to standard error.
Fabric AskFabric();

// The same in a process of its own, which is this program's `muster-worker fabric --output=json`.
// DeadlineExceeded if that has not answered in time (it is killed), Unavailable with how it ended.
absl::StatusOr<Fabric> AskFabricApart(absl::Duration timeout);

// `muster-worker fabric [--output=text|json]`: AskFabric's answer. 0 if NCCL would move GPU memory
// over EFA, 78 if not, 2 for wrong arguments.
int RunFabric(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

std::string FabricText(const Fabric& fabric);
std::string FabricJson(const Fabric& fabric);
// InvalidArgument for what FabricJson wouldn't write.
absl::StatusOr<Fabric> ParseFabric(const std::string& text);

}  // namespace muster::worker
