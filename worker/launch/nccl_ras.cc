#include "worker/launch/nccl_ras.h"

#include <poll.h>

#include <array>
#include <span>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace muster::worker {
namespace {

constexpr uint16_t kPort = 28028;
constexpr size_t kMostOfAnswer = 1 << 20;

// The number that follows `word`.
std::optional<int64_t> NumberAfter(absl::string_view line, absl::string_view word) {
  const size_t at = line.find(word);
  if (at == absl::string_view::npos) return std::nullopt;
  line.remove_prefix(at + word.size());
  int64_t number = 0;
  if (!absl::SimpleAtoi(line.substr(0, line.find_first_not_of("0123456789")), &number)) {
    return std::nullopt;
  }
  return number;
}

// "Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210"
std::optional<int> RankIn(absl::string_view line,
                          const std::function<std::optional<int>(int64_t)>& rank_of) {
  const std::optional<int64_t> pid = NumberAfter(line, "managed by process ");
  if (const auto known = pid.has_value() ? rank_of(*pid) : std::nullopt) return known;
  const std::optional<int64_t> rank = NumberAfter(line, "Rank ");
  return rank.has_value() ? std::optional<int>(static_cast<int>(*rank)) : std::nullopt;
}

}  // namespace

Endpoint RasEndpoint(const Environment& environment) {
  Endpoint endpoint = {.host = "localhost", .port = kPort};
  const auto set = environment.find("NCCL_RAS_ADDR");
  if (set == environment.end()) return endpoint;
  const size_t colon = set->second.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(set->second.substr(colon + 1), &port)) {
    return endpoint;
  }
  endpoint.host = set->second.substr(0, colon);
  if (absl::StartsWith(endpoint.host, "[") && absl::EndsWith(endpoint.host, "]")) {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

std::string AskRas(const Endpoint& endpoint, absl::Duration timeout) {
  const Deadline deadline = DeadlineAfter(timeout);
  const absl::StatusOr<std::vector<SocketAddress>> addresses = Resolve(endpoint);
  if (!addresses.ok()) return "";
  const absl::StatusOr<Socket> socket = Connect(*addresses, deadline);
  constexpr absl::string_view kQuestion = "verbose status\n";
  if (!socket.ok() ||
      !SendAll(*socket, std::as_bytes(std::span(kQuestion.data(), kQuestion.size())), deadline)
           .ok()) {
    return "";
  }
  std::string answer;
  std::array<std::byte, 4096> buffer;
  while (answer.size() < kMostOfAnswer && WaitFor(*socket, POLLIN, deadline)) {
    const absl::StatusOr<size_t> size = ReceiveSome(*socket, buffer);
    if (!size.ok()) break;  // it has said all
    answer.append(reinterpret_cast<const char*>(buffer.data()), *size);
  }
  return answer;
}

Standstill ReadRas(absl::string_view status,
                   const std::function<std::optional<int>(int64_t pid)>& rank_of) {
  Standstill found;
  bool counts_differ = false;
  std::optional<int64_t> most;
  std::optional<int64_t> least;
  for (const absl::string_view raw : absl::StrSplit(status, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (absl::StrContains(line, "different collective operation counts")) {
      counts_differ = true;
      most = least = std::nullopt;
      continue;
    }
    if (!counts_differ) continue;
    if (line.empty() || line[0] == '#') {
      counts_differ = false;
      continue;
    }
    if (const auto operation = NumberAfter(line, "launched up to operation ")) {
      most = std::max(most.value_or(*operation), *operation);
      least = std::min(least.value_or(*operation), *operation);
      continue;
    }
    if (!absl::StartsWith(line, "Rank ") || !most.has_value() || found.rank.has_value()) continue;
    // The ranks named are those of the smaller group, and that may be ahead as well.
    found.rank = RankIn(line, rank_of);
    if (found.rank.has_value()) {
      found.detail =
          absl::StrCat("rank ", *found.rank, " has launched other collectives than most ",
                       "ranks (NCCL's RAS: from ", *least, " to ", *most, ")");
    }
  }
  return found;
}

}  // namespace muster::worker
