// `muster-lab apiserver`: the embedded API server on a loopback port, for kubectl and for tests
// that compare it with a real one.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace muster::lab {

struct ServeApiOptions {
  std::string address = "127.0.0.1";  // a loopback address: everybody may do everything
  uint16_t port = 0;                  // 0: any free one
  bool tls = false;
  std::string kubeconfig{};  // file to write one for this server to; empty: none
};

// Prints the server's URL as one line to `out` once it listens, and serves until SIGINT or SIGTERM.
// 0: a signal came; 2: it can't listen there or write the file, said on `err`. Call it before
// threads exist: it blocks both signals in them.
int ServeApi(const ServeApiOptions& options, std::ostream& out, std::ostream& err);

}  // namespace muster::lab
