#include "worker/program/run_rank.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/communicator/local_communicator.h"
#include "worker/communicator/tcp_communicator.h"
#include "worker/rendezvous/rendezvous.h"

namespace muster::worker {
namespace {

// The generation that is being worked in, for the heartbeat thread, which may know its end before
// it has begun.
class CurrentGeneration {
 public:
  // Forgets the last one. Lose() needs the number that this returns: a word about an earlier
  // generation may come late.
  int64_t Next() {
    const std::lock_guard lock(mutex_);
    loss_ = absl::OkStatus();
    return ++number_;
  }

  void Enter(Communicator* communicator) {
    const std::lock_guard lock(mutex_);
    communicator_ = communicator;
    if (!loss_.ok()) communicator_->Abort(loss_);
  }

  void Leave() {
    const std::lock_guard lock(mutex_);
    communicator_ = nullptr;
  }

  // Returns whether that generation is still worked in.
  bool Lose(int64_t number, absl::Status loss) {
    const std::lock_guard lock(mutex_);
    if (number != number_) return false;
    loss_ = std::move(loss);
    if (communicator_ != nullptr) communicator_->Abort(loss_);
    return communicator_ != nullptr;
  }

  std::string Position() const {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return "";
    const std::optional<Operation> last = communicator_->operations().Last();
    if (!last.has_value()) return "";
    return absl::StrCat(last->took.has_value() ? "its own work after " : "", Describe(*last));
  }

 private:
  mutable std::mutex mutex_;
  int64_t number_ = 0;                    // guarded by mutex_
  Communicator* communicator_ = nullptr;  // guarded by mutex_
  absl::Status loss_;                     // guarded by mutex_
};

// Errors of a communicator or of the rendezvous name the ranks; a volume that is Unavailable, here
// or on the rank that passed its reason on, is no lost peer.
bool IsLostPeer(const absl::Status& status) {
  return (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) &&
         !RanksAtFault(status).empty();
}

class RankRun {
 public:
  RankRun(const RankOptions& options, const RankBody& body) : options_(options), body_(body) {}

  absl::Status Run() {
    if (options_.world_size == 1) return body_(*MakeLocalCommunicators(1)[0]);
    if (absl::Status status = Start(); !status.ok()) return status;
    absl::Duration timeout = options_.meet_timeout;
    absl::Status cause;
    while (true) {
      const int64_t number = generation_.Next();
      absl::StatusOr<Round> round = rendezvous_->Join(
          Self(), timeout,
          [this, number](absl::Status loss) {
            const std::string text(loss.message());
            // At once: the end of a generation takes a while where memory is to be given back.
            if (generation_.Lose(number, std::move(loss))) Say(text);
          },
          cause);
      if (!round.ok()) return round.status();
      bool lost_peer = false;
      absl::Status status = Work(*round, lost_peer);
      if (!lost_peer || options_.replace_timeout <= absl::ZeroDuration()) {
        rendezvous_->Leave(options_.heartbeat.silence_limit);
        return status;
      }
      timeout = options_.replace_timeout;
      cause = status;
      Say(absl::StrCat("generation ", round->generation, " is over: ", status.message(),
                       "; waiting up to ", absl::FormatDuration(timeout), " for all ",
                       options_.world_size, " ranks"));
    }
  }

 private:
  absl::Status Start() {
    absl::StatusOr<Socket> listener = Listen(0);
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    absl::StatusOr<std::unique_ptr<Rendezvous>> rendezvous =
        Rendezvous::Start({.store = options_.store,
                           .serve = options_.rank == 0,
                           .world_size = options_.world_size,
                           .heartbeat = options_.heartbeat,
                           .secret = options_.secret,
                           .position = [this] { return generation_.Position(); },
                           .stop_requested = options_.stop_requested});
    if (!rendezvous.ok()) return rendezvous.status();
    rendezvous_ = *std::move(rendezvous);
    return absl::OkStatus();
  }

  Member Self() const {
    return {.rank = options_.rank,
            .world_size = options_.world_size,
            .host = options_.host_name,
            .pid = getpid(),
            .endpoint = {.host = "", .port = LocalEnd(listener_).port},
            .gpu_uuids = options_.gpu_uuids,
            .versions = options_.versions,
            .blob = ""};
  }

  absl::Status Work(const Round& round, bool& lost_peer) {
    std::vector<Endpoint> endpoints;
    for (const Member& member : round.members) endpoints.push_back(member.endpoint);
    absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcpCommunicator(
        {.rank = options_.rank, .world_size = options_.world_size, .generation = round.generation},
        {.generation = round.generation, .token = round.token}, listener_, endpoints,
        options_.connect_timeout);
    if (!communicator.ok()) {
      lost_peer = IsLostPeer(communicator.status());
      return communicator.status();
    }
    Say(absl::StrCat("generation ", round.generation, ": all ", options_.world_size,
                     " ranks are here"));
    generation_.Enter(communicator->get());
    absl::Status status = body_(**communicator);
    generation_.Leave();
    if (status.ok() || absl::IsCancelled(status)) return status;
    // The others needn't wait for what won't come.
    const absl::Status ended = (*communicator)->status();
    lost_peer = IsLostPeer(ended);
    (*communicator)->Abort(status);
    return lost_peer ? ended : status;
  }

  void Say(absl::string_view text) const {
    if (options_.say) options_.say(text);
  }

  const RankOptions& options_;
  const RankBody& body_;
  CurrentGeneration generation_;
  Socket listener_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace

absl::Status RunRank(const RankOptions& options, const RankBody& body) {
  return RankRun(options, body).Run();
}

}  // namespace muster::worker
