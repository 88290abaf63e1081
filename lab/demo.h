// `muster demo`: a gang waits for its nodes and binds, on a cluster inside this process.
//
// Everything but the cluster is the real thing: the service with its ports, its webhook called over
// HTTPS, the extender's verbs called over HTTP, the table read from REST.
#pragma once

#include <iosfwd>

namespace muster::lab {

struct DemoOptions {
  // Leaves everything running until a signal comes.
  bool keep = false;
  // Divides the delays of the nodes and the deadline. Above 6 the deadline, in whole seconds, comes
  // too close to the third node.
  double speed = 1;
  std::ostream* out = nullptr;
  // Redraws a table of this size; otherwise a line per change.
  bool terminal = false;
  int columns = 80;
  int rows = 24;
};

// Both parts. 0: all went as told; 1: it didn't, or a signal ended it before; 2: it could not be
// started. Blocks SIGINT and SIGTERM meanwhile, so call it before threads exist; sets spdlog's
// default logger to a file meanwhile.
int RunDemo(const DemoOptions& options);

}  // namespace muster::lab
