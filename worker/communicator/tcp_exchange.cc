#include "worker/communicator/tcp_exchange.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::worker {
namespace {

constexpr uint32_t kFrameMagic = 0x4d53'5446;
// How long a notice may trail the end of its sender's data connection.
constexpr absl::Duration kNoticeTime = absl::Milliseconds(300);
// How long after its own deadline a rank that suspects several waits for the verdict of one that
// suspects fewer. The rank at fault is among the suspects of all who wait, directly or for each
// other, so who suspects one alone is right.
constexpr absl::Duration kVerdictTime = absl::Seconds(1);

// Before each payload. Bytes on the wire are those of the machine.
struct FrameHeader {
  uint32_t magic = kFrameMagic;
  OperationKind kind = OperationKind::kBarrier;
  uint8_t step = 0;
  uint16_t unused = 0;
  int32_t root = 0;
  uint32_t unused_too = 0;
  int64_t sequence = 0;
  uint64_t bytes = 0;
  uint64_t payload_size = 0;
};
static_assert(sizeof(FrameHeader) == 40);

using HeaderBytes = std::array<std::byte, sizeof(FrameHeader)>;

HeaderBytes MakeHeader(const Operation& operation, uint8_t step, size_t payload_size) {
  const FrameHeader header = {.kind = operation.kind,
                              .step = step,
                              .root = operation.root,
                              .sequence = operation.sequence,
                              .bytes = operation.bytes,
                              .payload_size = payload_size};
  HeaderBytes bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

// The part of header and payload, one after the other, that starts at `offset` and is contiguous.
template <typename Byte, typename Header>
std::span<Byte> Rest(Header& header, std::span<Byte> payload, size_t offset) {
  if (offset < header.size()) return std::span<Byte>(header).subspan(offset);
  return payload.subspan(offset - header.size());
}

absl::Status Gone(int peer, const Operation& operation, absl::string_view how) {
  return WithRanksAtFault(absl::UnavailableError(absl::StrCat("rank ", peer, " is gone, during ",
                                                              Describe(operation), ": ", how)),
                          {peer});
}

}  // namespace

struct TcpExchange::Transfer {
  int peer = 0;
  uint8_t step = 0;
  bool sends = false;
  HeaderBytes header_out;
  std::span<const std::byte> payload_out;
  size_t sent = 0;
  bool receives = false;
  HeaderBytes header_in;
  std::span<std::byte> payload_in;
  size_t received = 0;

  bool sending() const { return sends && sent < header_out.size() + payload_out.size(); }
  bool receiving() const { return receives && received < header_in.size() + payload_in.size(); }
  bool unseen() const { return receives && received < header_in.size(); }
};

TcpExchange::TcpExchange(int rank, std::vector<Link> links, int wake,
                         std::function<absl::Status()> aborted)
    : rank_(rank),
      links_(std::move(links)),
      wake_(wake),
      aborted_(std::move(aborted)),
      peers_(links_.size()) {}

absl::Status TcpExchange::Run(const Operation& operation, uint8_t step,
                              std::span<const Outgoing> outgoing,
                              std::span<const Incoming> incoming, Deadline deadline) {
  std::vector<Transfer> transfers(links_.size());
  for (size_t peer = 0; peer < transfers.size(); ++peer) {
    transfers[peer].peer = static_cast<int>(peer);
    transfers[peer].step = step;
  }
  for (const Outgoing& each : outgoing) {
    Transfer& transfer = transfers[each.peer];
    transfer.sends = true;
    transfer.header_out = MakeHeader(operation, step, each.payload.size());
    transfer.payload_out = each.payload;
  }
  for (const Incoming& each : incoming) {
    transfers[each.peer].receives = true;
    transfers[each.peer].payload_in = each.payload;
  }
  bool undecided = true;
  while (true) {
    std::erase_if(transfers,
                  [](const Transfer& each) { return !each.sending() && !each.receiving(); });
    if (transfers.empty()) return absl::OkStatus();
    Wait(transfers, deadline);
    if (absl::Status status = aborted_(); !status.ok()) return status;
    if (absl::Status status = CheckControls(); !status.ok()) return status;
    for (Transfer& transfer : transfers) {
      if (absl::Status status = Progress(operation, transfer); !status.ok()) return status;
    }
    if (TimeLeft(deadline) > absl::ZeroDuration()) continue;
    if (undecided && Behind(transfers).size() > 1) {
      undecided = false;
      deadline += absl::ToChronoNanoseconds(kVerdictTime);
      continue;
    }
    return Late(operation, transfers);
  }
}

void TcpExchange::Wait(std::span<const Transfer> transfers, Deadline deadline) const {
  std::vector<pollfd> waits = {{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (!links_[peer].control.open() || peers_[peer].control.done()) continue;
    waits.push_back({.fd = links_[peer].control.fd(), .events = POLLIN, .revents = 0});
  }
  for (const Transfer& transfer : transfers) {
    const int events = (transfer.sending() ? POLLOUT : 0) | (transfer.receiving() ? POLLIN : 0);
    waits.push_back({.fd = links_[transfer.peer].data.fd(),
                     .events = static_cast<int16_t>(events),
                     .revents = 0});
  }
  const int64_t left = absl::ToInt64Milliseconds(TimeLeft(deadline)) + 1;
  poll(waits.data(), waits.size(), static_cast<int>(std::min<int64_t>(left, 60'000)));
}

absl::Status TcpExchange::CheckControls() {
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    NoticeReader& control = peers_[peer].control;
    if (!links_[peer].control.open() || control.done()) continue;
    const absl::Status status = control.Read(links_[peer].control);
    if (!status.ok()) {
      return WithRanksAtFault(
          absl::UnavailableError(absl::StrCat("rank ", peer, " is gone: ", status.message())),
          {static_cast<int>(peer)});
    }
    if (control.done() && !control.notice().reason.ok()) return control.notice().reason;
  }
  return absl::OkStatus();
}

absl::Status TcpExchange::Progress(const Operation& operation, Transfer& transfer) {
  absl::Status status = Send(transfer);
  if (status.ok()) status = Receive(operation, transfer);
  return absl::IsUnavailable(status) ? Explain(transfer.peer, operation) : status;
}

absl::Status TcpExchange::Send(Transfer& transfer) {
  while (transfer.sending()) {
    const absl::StatusOr<size_t> sent =
        SendSome(links_[transfer.peer].data,
                 Rest<const std::byte>(transfer.header_out, transfer.payload_out, transfer.sent));
    if (!sent.ok()) return sent.status();
    if (*sent == 0) break;
    transfer.sent += *sent;
  }
  return absl::OkStatus();
}

absl::Status TcpExchange::Receive(const Operation& operation, Transfer& transfer) {
  while (transfer.receiving()) {
    const bool header = transfer.unseen();
    const absl::StatusOr<size_t> received =
        ReceiveSome(links_[transfer.peer].data,
                    Rest<std::byte>(transfer.header_in, transfer.payload_in, transfer.received));
    if (!received.ok()) return received.status();
    if (*received == 0) break;
    transfer.received += *received;
    if (!header || transfer.unseen()) continue;
    if (absl::Status status = CheckHeader(operation, transfer); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TcpExchange::CheckHeader(const Operation& operation, Transfer& transfer) {
  FrameHeader header;
  std::memcpy(&header, transfer.header_in.data(), sizeof header);
  const Operation theirs = {.sequence = header.sequence,
                            .kind = header.kind,
                            .bytes = header.bytes,
                            .root = header.root,
                            .started = absl::Now()};
  if (header.magic == kFrameMagic) peers_[transfer.peer].last = theirs;
  if (header.magic == kFrameMagic && SameCall(theirs, operation) && header.step == transfer.step &&
      header.payload_size == transfer.payload_in.size()) {
    return absl::OkStatus();
  }
  return WithRanksAtFault(absl::FailedPreconditionError(absl::StrCat(
                              "rank ", transfer.peer, " is at ",
                              header.magic == kFrameMagic ? Describe(theirs) : "no known operation",
                              ", rank ", rank_, " at ", Describe(operation))),
                          {transfer.peer});
}

absl::Status TcpExchange::Explain(int peer, const Operation& operation) {
  const Deadline deadline = DeadlineAfter(kNoticeTime);
  while (!peers_[peer].control.done() && WaitFor(links_[peer].control, POLLIN, deadline)) {
    if (absl::Status status = CheckControls(); !status.ok()) return status;
  }
  if (peers_[peer].control.done()) return Gone(peer, operation, "it has finished already");
  return Gone(peer, operation, "its connection broke");
}

std::vector<int> TcpExchange::Behind(std::span<const Transfer> transfers) {
  std::vector<int> unseen;
  std::vector<int> unfinished;
  for (const Transfer& transfer : transfers) {
    (transfer.unseen() ? unseen : unfinished).push_back(transfer.peer);
  }
  return unseen.empty() ? unfinished : unseen;
}

absl::Status TcpExchange::Late(const Operation& operation,
                               std::span<const Transfer> transfers) const {
  const std::vector<int> behind = Behind(transfers);
  const std::optional<Operation>& last = peers_[behind[0]].last;
  // Those that are only sent to, or have begun an earlier step of it, are not told to be absent.
  const bool came = std::ranges::none_of(transfers, &Transfer::unseen) ||
                    (last.has_value() && last->sequence == operation.sequence);
  return WithRanksAtFault(
      absl::DeadlineExceededError(absl::StrCat(
          RankList(behind), " did not ", came ? "finish " : "come to ", Describe(operation),
          " within ", absl::FormatDuration(absl::Now() - operation.started), "; rank ", behind[0],
          " was last heard from ",
          last.has_value() ? absl::StrCat("in ", Describe(*last)) : "before the first operation")),
      behind);
}

}  // namespace muster::worker
