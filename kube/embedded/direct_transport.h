// kube::Transport straight onto an embedded server, for virtual time.
//
// Nothing happens inside Send and Watch: requests wait until Pump runs them, one step after the
// other, on the caller's thread. So a test decides when the cluster moves, and equal steps give
// equal results. One thread only, and Pump must not be called from a callback.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "kube/api.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/faults.h"

namespace muster::kube::embedded {

struct DirectTransportOptions {
  // Requests that wait or are delayed; one more gets ResourceExhausted at once.
  size_t max_queued = 65536;
  // Given: the next step is drawn from those that are possible, so that requests overtake each
  // other, and answers and watch lines come in any order; lines of one stream stay in order.
  // Absent: first come, first served, and an answer comes before the lines its request caused.
  std::optional<uint64_t> shuffle_seed;
};

class DirectTransport : public Transport {
 public:
  // `server` and `faults` (may be null) must outlive this.
  DirectTransport(ApiServer* server, Faults* faults, DirectTransportOptions options = {});
  // Drops whatever waits without a callback: how a client's process ends. Requests that have run
  // keep their effect. Streams that are still held elsewhere stay silent.
  ~DirectTransport() override;

  void Send(Request request, Done done) override;
  std::unique_ptr<Stream> Watch(Request request, OnLine on_line, OnEnd on_end) override;

  // One step: a request runs, an answer or one line is delivered, a stream ends. False if nothing
  // is due at the server's present time.
  bool PumpOne();
  // Steps until nothing is due. Returns their number.
  size_t Pump();
  // When something will be due though nobody does anything: a delayed request, a bookmark, a
  // timeout. InfiniteFuture if nothing will.
  absl::Time NextDue() const;

 private:
  class DirectStream;
  struct Session;
  struct Step;
  struct Hub;

  void Enqueue(Step step);
  void RunRequest(Step step);
  void OpenSession(Step step);
  void DeliverLine(const std::shared_ptr<Session>& session);
  void EndSession(const std::shared_ptr<Session>& session, absl::StatusOr<Response> end);
  void WakeDueSessions();
  Step TakeStep();

  ApiServer* const server_;
  Faults* const faults_;
  const DirectTransportOptions options_;
  std::mt19937_64 random_;
  // Shared with streams and wake-ups, which may outlive this.
  std::shared_ptr<Hub> hub_;
};

}  // namespace muster::kube::embedded
