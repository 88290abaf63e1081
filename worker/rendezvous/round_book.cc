#include "worker/rendezvous/round_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/communicator/communicator.h"

namespace muster::worker {
namespace {

std::string Who(const Member& member) {
  return absl::StrCat("rank ", member.rank, " (", member.host, ", process ", member.pid, ")");
}

RoundBook::Answer Refuse(RoundBook::Connection connection, absl::Status status) {
  return {.connection = connection,
          .message = {.type = StoreMessage::Type::kRefused,
                      .ranks = {},
                      .round = {},
                      .status = std::move(status)},
          .hang_up = true};
}

RoundBook::Answer Say(RoundBook::Connection connection, StoreMessage::Type type) {
  RoundBook::Answer answer;
  answer.connection = connection;
  answer.message.type = type;
  return answer;
}

absl::Status BadRank(const Member& member, int world_size) {
  if (member.world_size != world_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        Who(member), " was started for ", member.world_size, " ranks, rank 0 for ", world_size,
        ": give all pods of the job the same replicas and processes per node"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(Who(member), " doesn't exist among ", world_size, " ranks"));
}

// Its first one is random; whoever has seen none can't guess the next.
uint64_t NextToken(uint64_t token) { return token * 6364136223846793005U + 1442695040888963407U; }

}  // namespace

RoundBook::RoundBook(int world_size, HeartbeatOptions options, uint64_t seed)
    : world_size_(world_size), options_(options), token_(seed) {}

RoundBook::Answers RoundBook::OnMessage(Connection connection, const MemberMessage& message,
                                        Deadline now) {
  Answers answers;
  switch (message.type) {
    case MemberMessage::Type::kJoin:
      Join(connection, message, now, answers);
      break;
    case MemberMessage::Type::kBeat:
      Heard(connection, message.position, now, answers);
      break;
    case MemberMessage::Type::kLeave:
      if (const std::optional<int> rank = RankOf(connection)) holders_.erase(*rank);
      answers.push_back(Say(connection, StoreMessage::Type::kLeft));
      break;
    case MemberMessage::Type::kProve:
      break;  // nobody asked
  }
  return answers;
}

RoundBook::Answers RoundBook::OnClosed(Connection connection, Deadline now) {
  Answers answers;
  std::erase_if(newcomers_, [&](const Newcomer& each) { return each.connection == connection; });
  if (const std::optional<int> rank = RankOf(connection)) {
    Lose(*rank, "its connection ended", now, answers);
  }
  return answers;
}

RoundBook::Answers RoundBook::OnTick(Deadline now) {
  Answers answers;
  std::vector<int> silent;
  for (const auto& [rank, holder] : holders_) {
    if (absl::FromChrono(now - holder.heard) > options_.silence_limit) silent.push_back(rank);
  }
  for (const int rank : silent) {
    Answer bye = Say(holders_.at(rank).connection, StoreMessage::Type::kBeat);
    bye.hang_up = true;
    answers.push_back(bye);
    const absl::Duration silence = absl::FromChrono(now - holders_.at(rank).heard);
    Lose(rank,
         absl::StrCat("not heard from for ",
                      absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(100)))),
         now, answers);
  }
  const std::vector<int> missing = Missing();
  for (const auto& [rank, holder] : holders_) {
    Answer answer = Say(holder.connection,
                        holder.joining ? StoreMessage::Type::kWaiting : StoreMessage::Type::kBeat);
    if (holder.joining) answer.message.ranks = missing;
    answers.push_back(answer);
  }
  for (const Newcomer& newcomer : newcomers_) {
    Answer answer = Say(newcomer.connection, StoreMessage::Type::kWaiting);
    answer.message.ranks = missing;
    answers.push_back(answer);
  }
  return answers;
}

void RoundBook::Join(Connection connection, const MemberMessage& message, Deadline now,
                     Answers& answers) {
  const int rank = message.member.rank;
  if (message.member.world_size != world_size_ || rank < 0 || rank >= world_size_) {
    answers.push_back(
        Refuse(connection, WithRanksAtFault(BadRank(message.member, world_size_), {rank})));
    return;
  }
  const auto holder = holders_.find(rank);
  if (holder != holders_.end() && holder->second.incarnation != message.incarnation) {
    newcomers_.push_back({connection, message, now});
    return;
  }
  if (holder != holders_.end() && !holder->second.joining) {
    // Its word may be the first about a rank whose connection hasn't ended here yet.
    EndRound(rank,
             !message.cause.ok() ? message.cause
                                 : WithRanksAtFault(absl::UnavailableError(absl::StrCat(
                                                        "rank ", rank, " wants to meet again")),
                                                    {rank}),
             answers);
  }
  holders_[rank] = {.connection = connection,
                    .member = message.member,
                    .incarnation = message.incarnation,
                    .joining = true,
                    .heard = now,
                    .position = {}};
  generation_ = std::max(generation_, message.generation);
  BeginRoundIfAllAreThere(now, answers);
}

void RoundBook::Heard(Connection connection, const std::string& position, Deadline now,
                      Answers& answers) {
  const std::optional<int> rank = RankOf(connection);
  if (!rank.has_value()) return;
  Holder& holder = holders_.at(*rank);
  holder.heard = now;
  holder.position = position;
  std::erase_if(newcomers_, [&](const Newcomer& newcomer) {
    // What was on its way when the newcomer came proves nothing.
    if (newcomer.join.member.rank != *rank ||
        absl::FromChrono(now - newcomer.since) < options_.interval) {
      return false;
    }
    answers.push_back(
        Refuse(newcomer.connection,
               WithRanksAtFault(absl::FailedPreconditionError(absl::StrCat(
                                    "two processes have one rank: ", Who(holder.member), " and ",
                                    Who(newcomer.join.member), "; check RANK of the pods")),
                                {*rank})));
    return true;
  });
}

void RoundBook::Lose(int rank, const std::string& how, Deadline now, Answers& answers) {
  const Holder lost = holders_.at(rank);
  holders_.erase(rank);
  if (!lost.joining) {
    const std::string position =
        lost.position.empty() ? "" : absl::StrCat("; it was in ", lost.position);
    EndRound(rank,
             WithRanksAtFault(absl::UnavailableError(
                                  absl::StrCat(Who(lost.member), " is lost: ", how, position)),
                              {rank}),
             answers);
  }
  const auto next = std::find_if(newcomers_.begin(), newcomers_.end(), [&](const Newcomer& each) {
    return each.join.member.rank == rank;
  });
  if (next == newcomers_.end()) return;
  const Newcomer newcomer = std::move(*next);
  newcomers_.erase(next);
  Join(newcomer.connection, newcomer.join, now, answers);
}

void RoundBook::EndRound(int but, const absl::Status& why, Answers& answers) {
  if (!std::exchange(running_, false)) return;
  for (const auto& [other, holder] : holders_) {
    if (other == but || holder.joining) continue;
    Answer answer = Say(holder.connection, StoreMessage::Type::kLost);
    answer.message.status = why;
    answers.push_back(answer);
  }
}

void RoundBook::BeginRoundIfAllAreThere(Deadline now, Answers& answers) {
  if (!Missing().empty()) return;
  if (const absl::Status status = CheckMembers(); !status.ok()) {
    for (const auto& [rank, holder] : holders_) {
      answers.push_back(Refuse(holder.connection, status));
    }
    holders_.clear();
    return;
  }
  running_ = true;
  token_ = NextToken(token_);
  Round round = {.generation = ++generation_, .token = token_, .members = {}};
  for (auto& [rank, holder] : holders_) {
    holder.joining = false;
    holder.heard = now;
    round.members.push_back(holder.member);
  }
  for (const auto& [rank, holder] : holders_) {
    Answer answer = Say(holder.connection, StoreMessage::Type::kRound);
    answer.message.round = round;
    answers.push_back(answer);
  }
}

absl::Status RoundBook::CheckMembers() const {
  const Member& first = holders_.begin()->second.member;
  std::map<std::string, const Member*> owners;
  for (const auto& [rank, holder] : holders_) {
    for (const std::string& uuid : holder.member.gpu_uuids) {
      const auto [owner, is_new] = owners.try_emplace(uuid, &holder.member);
      if (is_new) continue;
      return WithRanksAtFault(absl::FailedPreconditionError(absl::StrCat(
                                  "duplicate GPU UUID ", uuid, ": ", Who(*owner->second), " and ",
                                  Who(holder.member), " share one GPU; give each its own")),
                              {owner->second->rank, rank});
    }
    for (const auto& [name, version] : first.versions) {
      const auto theirs = holder.member.versions.find(name);
      const std::string other = theirs == holder.member.versions.end() ? "none" : theirs->second;
      if (other == version) continue;
      return WithRanksAtFault(
          absl::FailedPreconditionError(
              absl::StrCat("Mismatched ", name, " version: ", Who(first), " has ", version, ", ",
                           Who(holder.member), " has ", other, "; use one image for all pods")),
          {rank});
    }
  }
  return absl::OkStatus();
}

std::optional<int> RoundBook::RankOf(Connection connection) const {
  for (const auto& [rank, holder] : holders_) {
    if (holder.connection == connection) return rank;
  }
  return std::nullopt;
}

std::vector<int> RoundBook::Missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto holder = holders_.find(rank);
    if (holder == holders_.end() || !holder->second.joining) missing.push_back(rank);
  }
  return missing;
}

}  // namespace muster::worker
