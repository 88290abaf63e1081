// Sends reviews to the API server: a few at a time, the others wait, and past a bound none is
// taken.
//
// Strangers decide how many there are: who sends token after token has a part of the places to wait
// in, never all, so that others are still asked about.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "kube/api.h"

namespace muster::extender {

// Thread-safe.
class ReviewQueue {
 public:
  struct Options {
    size_t in_flight = 8;
    size_t waiting = 256;
    size_t waiting_of_one = 32;  // source
  };
  // `transport` must outlive this, and call nobody back any more once this goes.
  ReviewQueue(kube::Transport& transport, Options options)
      : transport_(transport), options_(options) {}

  // `done` as of Transport::Send. `source` is whoever makes it necessary, by address. False, and
  // `done` is dropped, if there is no room.
  bool Ask(const std::string& source, kube::Request request, kube::Transport::Done done);

  // What waits isn't asked any more.
  void Drop();

  struct Stats {
    size_t in_flight = 0;
    size_t waiting = 0;
  };
  Stats stats() const;

 private:
  struct Waiting {
    std::string source;
    kube::Request request;
    kube::Transport::Done done;
  };

  void Send(kube::Request request, kube::Transport::Done done);
  void OnAnswer();

  kube::Transport& transport_;
  const Options options_;
  mutable std::mutex mutex_;  // guards what follows
  size_t in_flight_ = 0;
  std::deque<Waiting> waiting_;
  std::map<std::string, size_t> waiting_of_;
};

}  // namespace muster::extender
