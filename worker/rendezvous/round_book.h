// Who is there, and which round they are in: the store's decisions, without its sockets.
//
// Rules:
//  - A round begins when every rank has joined anew. Its generation is above every one that a
//  member
//    has been in, so also above those made by a store that died with its process.
//  - It is over when a member's connection ends, when a member has been silent for silence_limit,
//  or
//    when a member joins again; every other member is told which one, and what it did last. One
//    that joins again may know better who is at fault: then it is its word that is passed on.
//  - A newcomer for a rank whose holder is still connected waits: it gets the rank if the holder is
//    lost, and is refused once the holder is heard from again. So a replacement gets in although
//    its predecessor's machine just vanished, and two processes that were given one rank are found
//    out.
//  - A member that leaves has finished; that ends nobody else's round.
//
// Owned by one thread, which hands in the time; never goes back in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/communicator/deadline.h"
#include "worker/rendezvous/messages.h"

namespace muster::worker {

struct HeartbeatOptions {
  absl::Duration interval = absl::Seconds(1);       // of beats, both ways
  absl::Duration silence_limit = absl::Seconds(5);  // after which the other one counts as lost
};

class RoundBook {
 public:
  using Connection = int64_t;

  struct Answer {
    Connection connection = 0;
    StoreMessage message;
    bool hang_up = false;  // after the message
  };
  using Answers = std::vector<Answer>;

  RoundBook(int world_size, HeartbeatOptions options, uint64_t seed);

  Answers OnMessage(Connection connection, const MemberMessage& message, Deadline now);
  Answers OnClosed(Connection connection, Deadline now);
  // Call once per interval: finds the silent, and answers everyone.
  Answers OnTick(Deadline now);

  // Nobody is joining or in a round.
  bool empty() const { return holders_.empty(); }
  int64_t generation() const { return generation_; }

 private:
  struct Holder {
    Connection connection = 0;
    Member member;
    uint64_t incarnation = 0;
    bool joining = true;  // or else in the last round
    Deadline heard;
    std::string position;
  };
  struct Newcomer {
    Connection connection = 0;
    MemberMessage join;
    Deadline since;
  };

  void Join(Connection connection, const MemberMessage& message, Deadline now, Answers& answers);
  void Heard(Connection connection, const std::string& position, Deadline now, Answers& answers);
  void Lose(int rank, const std::string& how, Deadline now, Answers& answers);
  // Tells everyone who is in the round, `but` that rank.
  void EndRound(int but, const absl::Status& why, Answers& answers);
  void BeginRoundIfAllAreThere(Deadline now, Answers& answers);
  // Why these members can't work together; OK if they can.
  absl::Status CheckMembers() const;
  std::optional<int> RankOf(Connection connection) const;
  std::vector<int> Missing() const;

  const int world_size_;
  const HeartbeatOptions options_;
  uint64_t token_;
  int64_t generation_ = 0;
  bool running_ = false;           // the last round, nobody of it lost yet
  std::map<int, Holder> holders_;  // by rank
  std::vector<Newcomer> newcomers_;
};

}  // namespace muster::worker
