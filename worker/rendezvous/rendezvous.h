// How a rank meets the others, and learns that one of them is lost.
//
//   auto rendezvous = Rendezvous::Start({.store = {"job-master-0", 29500}, .serve = rank == 0,
//   ...}); absl::StatusOr<Round> round = (*rendezvous)->Join(member, absl::Minutes(10), on_loss);
//   ... work with round->members; when on_loss was called, or a communicator failed, Join() again:
//   the next round begins when everyone has, the replacement of the lost one included ...
//   (*rendezvous)->Leave();
//
// While a round lasts, a thread exchanges heartbeats with the store and watches for its word that a
// rank is lost. A broken connection tells within milliseconds that a process died; silence, within
// silence_limit, that it hangs, was stopped, or is cut off.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/rendezvous/job_secret.h"
#include "worker/rendezvous/round.h"
#include "worker/rendezvous/round_book.h"

namespace muster::worker {

struct RendezvousOptions {
  Endpoint store;      // where all ranks find it
  bool serve = false;  // rank 0: runs the store, on every address of this machine
  int world_size = 1;
  HeartbeatOptions heartbeat;
  JobSecret secret = {};  // the same on all ranks
  // What this rank does now, for the others' messages should it be lost. Called on the heartbeat
  // thread.
  std::function<std::string()> position = nullptr;
  // Asked about once a beat while Join() waits; true ends it.
  std::function<bool()> stop_requested = nullptr;
};

class Rendezvous {
 public:
  // AlreadyExists if the store's port is taken.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Start(RendezvousOptions options);
  // Without Leave() before, the others see this rank as lost.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Blocks until all ranks have joined. Until then names that aren't known yet, refused connections
  // and a store that dies are tried again, with growing, jittered pauses. A running round is left.
  //   DeadlineExceeded    names the ranks that are missing, or why the store wasn't reached;
  //   FailedPrecondition  the members can't work together (world size, one rank twice, one GPU
  //                       twice, versions, secrets): no retry helps;
  //   Cancelled           stop_requested.
  // `on_loss` is called once at most, on the heartbeat thread, with Unavailable and the rank that
  // is lost; never after the next Join(), Leave() or the destructor has begun to return. It must
  // not call this object. `cause` is what ended the last round for this rank, if it was an error of
  // its communicator: others may hear of it here first.
  absl::StatusOr<Round> Join(const Member& member, absl::Duration timeout,
                             std::function<void(absl::Status)> on_loss,
                             const absl::Status& cause = absl::OkStatus());

  // This rank has finished; the others' rounds go on. Rank 0 waits here for the others to leave
  // too, or be lost, at most `patience`: the store goes with it.
  void Leave(absl::Duration patience);

  // Of the store that runs here; 0 if none does.
  uint16_t served_port() const;

 private:
  struct State;
  explicit Rendezvous(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace muster::worker
