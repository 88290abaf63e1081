#include "worker/diagnose/efa_error.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

using enum CauseId;

constexpr int kUnknownError = 4096;
constexpr int kUnreachable = 15;

constexpr std::array<EfaError, 47> kErrors = {{
    {0, "success", kFabricUnknown, kFabricUnknown, kFabricUnknown},
    {1, "flushed", kRequestsFlushed, kRequestsFlushed, kRequestsFlushed},
    {2, "internal error of the queue pair", kEfaDeviceFault, kEfaDeviceFault, kEfaDeviceFault},
    {3, "unsupported operation", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {4, "invalid address handle", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {5, "invalid local key", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {6, "message too long", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {7, "invalid remote key or address", kFabricSoftware, kFabricSoftware, kPeerLost},
    {8, "connection reset by the peer", kPeerLost, kConnectionClosed, kPeerLost},
    {9, "the peer's queue pair doesn't exist", kPeerLost, kConnectionClosed, kPeerLost},
    {10, "the peer isn't ready to receive", kPeerBusy, kPeerBusy, kPeerLost},
    {11, "the peer's buffer is too short", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {12, "unexpected status from the peer", kFabricSoftware, kFabricSoftware, kPeerLost},
    {13, "the peer was responsive and is no more", kPeerLost, kPeerBusy, kPeerLost},
    {14, "the peer doesn't know this address", kPeerLost, kConnectionClosed, kPeerLost},
    {15, "the peer is unreachable", kPeerUnreachable, kPeerUnreachable, kPeerLost},
    {kUnknownError, "unknown error", kFabricUnknown, kFabricUnknown, kFabricUnknown},
    {4097, "a packet of an old kind", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {4098, "an invalid packet", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {4099, "a packet of an unknown kind", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {4100, "a packet couldn't be posted", kFabricUnknown, kFabricUnknown, kPeerLost},
    {4101, "a packet couldn't be sent", kFabricUnknown, kFabricUnknown, kPeerLost},
    {4102, "a message's first packet is wrong", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {4103, "a tagged message's first packet is wrong", kFabricSoftware, kFabricSoftware,
     kFabricSoftware},
    {4104, "a packet came twice", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {4105, "out of memory", kFabricMemory, kFabricMemory, kFabricMemory},
    {4106, "memory couldn't be deregistered", kMemoryRegistration, kMemoryRegistration,
     kMemoryRegistration},
    {4107, "a received message couldn't be copied", kFabricUnknown, kFabricUnknown, kFabricUnknown},
    {4108, "no receive entries are left", kFabricMemory, kFabricMemory, kFabricMemory},
    {4109, "no send entries are left", kFabricMemory, kFabricMemory, kFabricMemory},
    {4110, "the peer's address can't be used", kPeerUnreachable, kPeerUnreachable,
     kPeerUnreachable},
    {4111, "a remote address isn't registered", kFabricSoftware, kFabricSoftware, kPeerLost},
    {4112, "internal receive buffers couldn't be posted", kFabricMemory, kFabricMemory,
     kFabricMemory},
    {4113, "the handshake couldn't be posted", kFabricUnknown, kFabricUnknown, kPeerLost},
    {4114, "a send couldn't be posted", kFabricUnknown, kFabricUnknown, kPeerLost},
    {4115, "a message isn't as long as announced", kFabricSoftware, kFabricSoftware,
     kFabricSoftware},
    {4116, "a read couldn't be posted", kFabricUnknown, kFabricUnknown, kPeerLost},
    {4117, "an RDMA read couldn't be posted", kFabricUnknown, kFabricUnknown, kPeerLost},
    {4118, "unsupported data type", kFabricSoftware, kFabricSoftware, kFabricSoftware},
    {4119, "a send's completion couldn't be written", kFabricUnknown, kFabricUnknown,
     kFabricUnknown},
    {4120, "a receive's completion couldn't be written", kFabricUnknown, kFabricUnknown,
     kFabricUnknown},
    {4121, "error of a datagram endpoint's completion queue", kFabricSoftware, kFabricSoftware,
     kFabricSoftware},
    {4122, "error of the shared-memory transport", kSharedMemorySmall, kSharedMemorySmall,
     kSharedMemorySmall},
    {4123, "a completion of shared memory couldn't be written", kFabricUnknown, kFabricUnknown,
     kFabricUnknown},
    {4124, "the peer stopped answering after the handshake", kPeerLost, kPeerBusy, kPeerLost},
    {4125, "a packet that doesn't belong to zero-copy receive", kFabricSoftware, kFabricSoftware,
     kFabricSoftware},
    {4126, "the peer's EFA device is reachable, but the handshake failed", kHandshakeFailed,
     kSecurityGroupEgress, kPeerLost},
}};

struct WordedError {
  std::string_view words;
  int number;
};

// Libfabric's versions count these differently, so that their words count before the number.
constexpr std::array<WordedError, 2> kWorded = {{
    {"reachable by EFA device but handshake failed", 4126},
    {"connection previously acknowledged by receiver", 4124},
}};

const EfaError* Find(int64_t number) {
  const auto* found = std::ranges::find(kErrors, number, &EfaError::number);
  return found == kErrors.end() ? Find(kUnknownError) : found;
}

// The number in the last "(N)" of `line`: libfabric's messages have parentheses of their own.
std::optional<int64_t> NumberInLastParentheses(std::string_view line) {
  const size_t at = line.rfind('(');
  if (at == std::string_view::npos) return std::nullopt;
  return LeadingNumber(line.substr(at + 1));
}

// Whether "2 (UNDELIVERABLE" isn't one of EFA's numbers, whose words are sentences: other providers
// have numbers of their own.
bool IsOfAnotherProvider(std::string_view error) {
  const std::string_view words = TextAfter(error, "(", " )");
  return words.size() > 3 && std::ranges::all_of(words, [](char c) {
           return absl::ascii_isupper(static_cast<unsigned char>(c)) || c == '_';
         });
}

std::optional<int64_t> ErrorNumber(std::string_view line) {
  for (const WordedError& worded : kWorded) {
    if (line.find(worded.words) != std::string_view::npos) return worded.number;
  }
  constexpr std::string_view kRequest = "completed with error. RC: ";
  if (const size_t at = line.find(kRequest); at != std::string_view::npos) {
    if (IsOfAnotherProvider(TextAfter(line.substr(at), "Error: ", ")"))) {
      const bool unreachable = NumberAfter(line.substr(at), kRequest) == EHOSTUNREACH;
      return unreachable ? kUnreachable : kUnknownError;
    }
    if (const auto error = NumberAfter(line.substr(at), "Error: ")) return error;
    // Old versions of the plugin give words only. What NCCL repeats of the line ends before them.
    const bool words = line.substr(at).find("Error: ") != std::string_view::npos;
    return words ? std::optional<int64_t>(kUnknownError) : std::nullopt;
  }
  if (const auto number = NumberAfter(line, "EFA internal error: (")) return number;
  const bool logged = line.find("libfabric:") != std::string_view::npos &&
                      (line.find("_handle_error") != std::string_view::npos ||
                       line.find("prov_errno: ") != std::string_view::npos);
  if (logged) return NumberInLastParentheses(line);
  // "err: Input/output error (5) prov_errno: Unknown error -12 (-12) prov/efa/src/...", which it
  // writes before it aborts.
  const size_t number = line.find("prov_errno: ");
  if (number == line.npos || line.find("prov/efa/", number) == line.npos) return std::nullopt;
  const auto own = NumberInLastParentheses(line);
  return own && *own < 0 ? kUnknownError : own;
}

std::string_view Instance(std::string_view line, std::string_view label) {
  const std::string_view id = TextAfter(line, label, " )");
  return id.starts_with("i-") ? id : std::string_view();
}

}  // namespace

std::span<const EfaError> EfaErrors() { return kErrors; }

std::optional<FailedRequest> ReadFailedRequest(std::string_view line) {
  const std::optional<int64_t> number = ErrorNumber(line);
  if (!number || *number <= 0 || *number > 1'000'000) return std::nullopt;
  return FailedRequest{.number = static_cast<int>(*number),
                       .error = Find(*number),
                       .my_address = TextAfter(line, "My EFA addr: ", " )"),
                       .peer_address = TextAfter(line, "Peer EFA addr: ", " )"),
                       .my_instance = Instance(line, "My host id: "),
                       .peer_instance = Instance(line, "Peer host id: ")};
}

CauseId CauseOfEfaError(int number, PeerState peer) {
  const EfaError* error = Find(number);
  switch (peer) {
    case PeerState::kAlive:
      return error->alive;
    case PeerState::kSilent:
      return error->silent;
    case PeerState::kUnknown:
      break;
  }
  return error->unknown;
}

}  // namespace muster::worker
