// `kubectl muster gangs|queues|nodes|explain`: what Muster knows, asked through the API server with
// the rights of whoever asks.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::extender {

enum class Query { kGangs, kQueues, kNodes, kExplain };

struct QueryOptions {
  Query query = Query::kGangs;
  std::string kubeconfig = {};   // "": as kubectl finds it
  std::string context = {};      // "": the current one
  std::string name_space = {};   // "": the context's
  bool all_namespaces = false;   // of queues: the cluster's, ClusterQueues
  std::string name = {};         // "": all; of a gang to explain also NAMESPACE/NAME
  std::string output = "table";  // table, wide, json, yaml or name
  bool watch = false;
};

// Where it is shown.
struct Screen {
  std::ostream& out;
  std::ostream& err;
  bool colours = false;
  // It is a terminal: what is watched as a whole is shown in one place. Elsewhere it is shown once
  // more, below.
  bool redraws = false;
  std::function<absl::Time()> clock;
  std::function<void(absl::Duration)> sleep;
  // Asked at least each second while watching; null: never.
  std::function<bool()> ended = nullptr;
};

// The exit code: 0 if it was shown, 1 if there is no such object, 2 if it couldn't be asked for;
// why, and what to do, in one sentence on screen.err. Logs in at once, so that a credential plugin
// is run once, and may ask whoever sits at the terminal.
int RunQuery(QueryOptions options, const Screen& screen);
// On this transport, which must answer on another thread; options.name_space is set.
int RunQuery(const QueryOptions& options, kube::Transport& transport, const Screen& screen);

}  // namespace muster::extender
