#include "worker/communicator/tcp_mesh.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::worker {
namespace {

constexpr uint32_t kHelloMagic = 0x4d53'5431;
constexpr uint32_t kNoticeMagic = 0x4d53'544e;
constexpr size_t kMostNoticeText = 4000;
constexpr size_t kMostNoticeRanks = 16;
// A stranger's connection may not keep others from being accepted.
constexpr absl::Duration kHelloTime = absl::Seconds(5);
constexpr absl::Duration kRetryPause = absl::Milliseconds(20);

enum Channel : uint32_t { kData = 0, kControl = 1 };

// Bytes on the wire are those of the machine: all ranks run one image.
struct Hello {
  uint32_t magic = kHelloMagic;
  uint32_t channel = kData;
  int64_t generation = 0;
  uint64_t token = 0;
  int32_t rank = 0;
  int32_t world_size = 0;
};
static_assert(sizeof(Hello) == 32);

struct NoticeHeader {
  uint32_t magic = kNoticeMagic;
  int32_t code = 0;
  uint32_t message_size = 0;
  uint32_t rank_count = 0;
};

// A connection that was accepted and hasn't said yet who it is.
struct Newcomer {
  Socket socket;
  std::array<std::byte, sizeof(Hello)> hello;
  size_t received = 0;
  Deadline deadline;
};

class MeshBuilder {
 public:
  MeshBuilder(const Membership& membership, const RoundName& round, const Socket& listener,
              Deadline deadline)
      : membership_(membership),
        round_(round),
        listener_(listener),
        deadline_(deadline),
        links_(membership.world_size) {}

  absl::Status ConnectTo(int peer, const Endpoint& endpoint) {
    absl::StatusOr<Socket> data = Reach(peer, endpoint, kData);
    if (!data.ok()) return data.status();
    absl::StatusOr<Socket> control = Reach(peer, endpoint, kControl);
    if (!control.ok()) return control.status();
    links_[peer] = {.data = *std::move(data), .control = *std::move(control)};
    return absl::OkStatus();
  }

  absl::Status AcceptThoseAbove() {
    while (!Missing().empty()) {
      if (TimeLeft(deadline_) == absl::ZeroDuration()) {
        return WithRanksAtFault(absl::DeadlineExceededError(absl::StrCat(
                                    RankList(Missing()), " did not connect to rank ",
                                    membership_.rank, " for generation ", round_.generation)),
                                Missing());
      }
      Wait();
      if (absl::Status status = AcceptAll(); !status.ok()) return status;
      std::erase_if(newcomers_, [&](Newcomer& newcomer) { return !StillSilent(newcomer); });
    }
    return absl::OkStatus();
  }

  std::vector<Link> Take() { return std::move(links_); }

 private:
  // Until it is reached or the time is up: a peer's listener may be a moment late.
  absl::StatusOr<Socket> Reach(int peer, const Endpoint& endpoint, Channel channel) {
    while (true) {
      absl::StatusOr<Socket> socket = ReachOnce(endpoint, channel);
      if (socket.ok()) return socket;
      if (TimeLeft(deadline_) <= kRetryPause) {
        return WithRanksAtFault(absl::DeadlineExceededError(
                                    absl::StrCat("rank ", peer, " at ", ToText(endpoint),
                                                 " was not reached: ", socket.status().message())),
                                {peer});
      }
      std::this_thread::sleep_for(absl::ToChronoMilliseconds(kRetryPause));
    }
  }

  absl::StatusOr<Socket> ReachOnce(const Endpoint& endpoint, Channel channel) {
    const absl::StatusOr<std::vector<SocketAddress>> addresses = Resolve(endpoint);
    if (!addresses.ok()) return addresses.status();
    absl::StatusOr<Socket> socket = Connect(*addresses, deadline_);
    if (!socket.ok()) return socket;
    const Hello hello = {.channel = channel,
                         .generation = round_.generation,
                         .token = round_.token,
                         .rank = membership_.rank,
                         .world_size = membership_.world_size};
    absl::Status sent = SendAll(*socket, std::as_bytes(std::span(&hello, 1)), deadline_);
    if (!sent.ok()) return sent;
    return socket;
  }

  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (int peer = membership_.rank + 1; peer < membership_.world_size; ++peer) {
      if (!links_[peer].data.open() || !links_[peer].control.open()) missing.push_back(peer);
    }
    return missing;
  }

  void Wait() {
    std::vector<pollfd> waits = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Newcomer& newcomer : newcomers_) {
      waits.push_back({.fd = newcomer.socket.fd(), .events = POLLIN, .revents = 0});
    }
    const int64_t left = absl::ToInt64Milliseconds(TimeLeft(deadline_)) + 1;
    poll(waits.data(), waits.size(), static_cast<int>(std::min<int64_t>(left, 1000)));
  }

  absl::Status AcceptAll() {
    while (true) {
      absl::StatusOr<std::optional<Socket>> socket = Accept(listener_);
      if (!socket.ok()) return socket.status();
      if (!socket->has_value()) return absl::OkStatus();
      newcomers_.push_back({.socket = *std::move(*socket),
                            .hello = {},
                            .received = 0,
                            .deadline = DeadlineAfter(kHelloTime)});
    }
  }

  // False once it has become a link, or was hung up on.
  bool StillSilent(Newcomer& newcomer) {
    const auto rest = std::span(newcomer.hello).subspan(newcomer.received);
    const absl::StatusOr<size_t> received = ReceiveSome(newcomer.socket, rest);
    if (!received.ok()) return false;
    newcomer.received += *received;
    if (newcomer.received < sizeof(Hello)) {
      return TimeLeft(newcomer.deadline) > absl::ZeroDuration();
    }
    Hello hello;
    std::memcpy(&hello, newcomer.hello.data(), sizeof hello);
    if (!Expected(hello)) return false;
    Link& link = links_[hello.rank];
    (hello.channel == kData ? link.data : link.control) = std::move(newcomer.socket);
    return false;
  }

  bool Expected(const Hello& hello) const {
    return hello.magic == kHelloMagic && hello.channel <= kControl &&
           hello.generation == round_.generation && hello.token == round_.token &&
           hello.world_size == membership_.world_size && hello.rank > membership_.rank &&
           hello.rank < membership_.world_size;
  }

  const Membership membership_;
  const RoundName round_;
  const Socket& listener_;
  const Deadline deadline_;
  std::vector<Link> links_;
  std::vector<Newcomer> newcomers_;
};

}  // namespace

absl::StatusOr<std::vector<Link>> ConnectMesh(const Membership& membership, const RoundName& round,
                                              const Socket& listener,
                                              std::span<const Endpoint> endpoints,
                                              Deadline deadline) {
  if (endpoints.size() != static_cast<size_t>(membership.world_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(endpoints.size(), " endpoints for ", membership.world_size, " ranks"));
  }
  MeshBuilder builder(membership, round, listener, deadline);
  for (int peer = 0; peer < membership.rank; ++peer) {
    absl::Status status = builder.ConnectTo(peer, endpoints[peer]);
    if (!status.ok()) return status;
  }
  absl::Status status = builder.AcceptThoseAbove();
  if (!status.ok()) return status;
  return builder.Take();
}

std::string EncodeNotice(const Notice& notice) {
  const std::string message(notice.reason.message().substr(0, kMostNoticeText));
  const std::vector<int> ranks = RanksAtFault(notice.reason);
  // The message names all of them.
  const auto count = static_cast<uint32_t>(std::min(ranks.size(), kMostNoticeRanks));
  const NoticeHeader header = {.code = static_cast<int32_t>(notice.reason.code()),
                               .message_size = static_cast<uint32_t>(message.size()),
                               .rank_count = count};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(ranks.data()), count * sizeof(int));
  return bytes + message;
}

absl::Status NoticeReader::Read(const Socket& control) {
  std::array<std::byte, sizeof(NoticeHeader) + kMostNoticeRanks * sizeof(int) + kMostNoticeText>
      buffer;
  const absl::StatusOr<size_t> received = ReceiveSome(control, buffer);
  if (!received.ok()) return received.status();
  bytes_.append(reinterpret_cast<const char*>(buffer.data()), *received);
  NoticeHeader header;
  if (bytes_.size() < sizeof header) return absl::OkStatus();
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (header.magic != kNoticeMagic || header.message_size > kMostNoticeText ||
      header.rank_count > kMostNoticeRanks) {
    return absl::UnavailableError("it sent what is no notice");
  }
  const size_t ranks_size = header.rank_count * sizeof(int);
  if (bytes_.size() < sizeof header + ranks_size + header.message_size) return absl::OkStatus();
  done_ = true;
  if (header.code == 0) return absl::OkStatus();
  std::vector<int> ranks(header.rank_count);
  if (!ranks.empty()) std::memcpy(ranks.data(), bytes_.data() + sizeof header, ranks_size);
  notice_.reason =
      WithRanksAtFault(absl::Status(static_cast<absl::StatusCode>(header.code),
                                    bytes_.substr(sizeof header + ranks_size, header.message_size)),
                       ranks);
  return absl::OkStatus();
}

}  // namespace muster::worker
