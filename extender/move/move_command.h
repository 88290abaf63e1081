// `muster move in` and `muster move out`, with an administrator's rights.
#pragma once

#include <iosfwd>
#include <string>

#include "absl/status/statusor.h"
#include "extender/move/move_plan.h"
#include "kube/api.h"

namespace muster::extender {

struct MoveOptions {
  std::string kubeconfig;
  bool out = false;    // of Muster; else into it
  bool apply = false;  // do what can be done
  MoveSettings settings;
};

// Exit code: 0 nothing is left to do, 1 something is, 2 it couldn't be found out or done.
int RunMove(const MoveOptions& options, std::ostream& out, std::ostream& err);
// The same with a transport, which must outlive it and answer on another thread.
int RunMove(const MoveOptions& options, kube::Transport& transport, std::ostream& out,
            std::ostream& err);

}  // namespace muster::extender
