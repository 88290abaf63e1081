#include "worker/communicator/tcp_communicator.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "worker/communicator/rank_order.h"
#include "worker/communicator/tcp_exchange.h"

namespace muster::worker {
namespace {

class TcpCommunicator : public Communicator {
 public:
  TcpCommunicator(const Membership& membership, std::vector<Link> links)
      : Communicator(membership),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        exchange_(membership.rank, std::move(links), wake_.fd(), [this] { return status(); }) {}

  ~TcpCommunicator() override {
    if (status().ok()) Tell({});
  }

 private:
  absl::Status DoAllReduce(const Operation& operation, std::span<const int> group,
                           std::span<float> values, Reduction reduction,
                           Deadline deadline) override {
    const std::vector<ShardRange> shards = ShardsOf(group, values.size());
    const ShardRange& mine = shards[PlaceIn(group, rank())];
    const std::span<float> own = values.subspan(mine.begin, mine.size());
    absl::Status status = ReduceShards(operation, group, values, own, reduction, deadline);
    if (!status.ok()) return status;
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (size_t place = 0; place < group.size(); ++place) {
      if (group[place] == rank()) continue;
      const ShardRange& theirs = shards[place];
      outgoing.push_back({group[place], std::as_bytes(own)});
      incoming.push_back(
          {group[place], std::as_writable_bytes(values.subspan(theirs.begin, theirs.size()))});
    }
    return exchange_.Run(operation, 1, outgoing, incoming, deadline);
  }

  absl::Status DoReduceScatter(const Operation& operation, std::span<const float> input,
                               std::span<float> output, Reduction reduction,
                               Deadline deadline) override {
    return ReduceShards(operation, everyone(), input, output, reduction, deadline);
  }

  absl::Status DoAllGather(const Operation& operation, std::span<const std::byte> input,
                           std::span<std::byte> output, Deadline deadline) override {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (const int peer : Peers()) {
      outgoing.push_back({peer, input});
      incoming.push_back({peer, output.subspan(peer * input.size(), input.size())});
    }
    std::byte* mine = output.data() + rank() * input.size();
    if (!input.empty() && mine != input.data()) std::memcpy(mine, input.data(), input.size());
    return exchange_.Run(operation, 0, outgoing, incoming, deadline);
  }

  absl::Status DoBroadcast(const Operation& operation, std::span<std::byte> values, int root,
                           Deadline deadline) override {
    if (rank() != root) {
      const Incoming incoming = {root, values};
      return exchange_.Run(operation, 0, {}, {&incoming, 1}, deadline);
    }
    std::vector<Outgoing> outgoing;
    for (const int peer : Peers()) outgoing.push_back({peer, values});
    return exchange_.Run(operation, 0, outgoing, {}, deadline);
  }

  absl::Status DoBarrier(const Operation& operation, Deadline deadline) override {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (const int peer : Peers()) {
      outgoing.push_back({peer, {}});
      incoming.push_back({peer, {}});
    }
    return exchange_.Run(operation, 0, outgoing, incoming, deadline);
  }

  void DoAbort(const absl::Status& reason) override {
    Tell({.reason = reason});
    eventfd_write(wake_.fd(), 1);
  }

  // Once at most. A notice fits into the empty buffer of an idle connection, so nothing is waited
  // for.
  void Tell(const Notice& notice) {
    const std::string bytes = EncodeNotice(notice);
    for (const Link& link : exchange_.links()) {
      if (!link.control.open()) continue;
      SendSome(link.control, std::as_bytes(std::span(bytes))).status().IgnoreError();
    }
  }

  std::vector<int> Peers() const {
    std::vector<int> peers;
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer != rank()) peers.push_back(peer);
    }
    return peers;
  }

  // `own` becomes the reduction, over the group, of everyone's part of `input` that is this rank's.
  absl::Status ReduceShards(const Operation& operation, std::span<const int> group,
                            std::span<const float> input, std::span<float> own, Reduction reduction,
                            Deadline deadline) {
    std::vector<float> received(own.size() * (group.size() - 1));
    std::vector<const float*> in_order;
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    float* place = received.data();
    const std::vector<ShardRange> shards = ShardsOf(group, input.size());
    for (size_t number = 0; number < group.size(); ++number) {
      const int peer = group[number];
      const ShardRange& part = shards[number];
      if (peer == rank()) {
        in_order.push_back(input.data() + part.begin);
        continue;
      }
      outgoing.push_back({peer, std::as_bytes(input.subspan(part.begin, part.size()))});
      incoming.push_back({peer, std::as_writable_bytes(std::span(place, own.size()))});
      in_order.push_back(place);
      place += own.size();
    }
    absl::Status status = exchange_.Run(operation, 0, outgoing, incoming, deadline);
    if (!status.ok()) return status;
    ReduceInRankOrder(in_order, reduction, own.data(), own.size());
    return absl::OkStatus();
  }

  const Socket wake_;
  TcpExchange exchange_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcpCommunicator(
    const Membership& membership, const RoundName& round, const Socket& listener,
    std::span<const Endpoint> endpoints, absl::Duration timeout) {
  absl::StatusOr<std::vector<Link>> links =
      ConnectMesh(membership, round, listener, endpoints, DeadlineAfter(timeout));
  if (!links.ok()) return links.status();
  return std::make_unique<TcpCommunicator>(membership, *std::move(links));
}

}  // namespace muster::worker
