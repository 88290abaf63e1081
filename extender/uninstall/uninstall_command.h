// `muster uninstall`, with an administrator's rights.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "extender/uninstall/uninstall_plan.h"
#include "kube/api.h"

namespace muster::extender {

struct UninstallOptions {
  std::string kubeconfig;
  bool apply = false;  // do what can be done
  UninstallSettings settings;
  std::function<absl::Time()> clock = absl::Now;
  std::function<void(absl::Duration)> sleep = absl::SleepFor;
};

// Exit code: 0 nothing is left to do, 1 something is, 2 it couldn't be found out or done.
int RunUninstall(const UninstallOptions& options, std::ostream& out, std::ostream& err);
// The same with a transport, which must outlive it and answer on another thread.
int RunUninstall(const UninstallOptions& options, kube::Transport& transport, std::ostream& out,
                 std::ostream& err);

}  // namespace muster::extender
