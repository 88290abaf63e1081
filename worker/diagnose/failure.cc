#include "worker/diagnose/failure.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "nlohmann/json.hpp"
#include "worker/diagnose/gpu_memory.h"
#include "worker/diagnose/patterns.h"
#include "worker/diagnose/text.h"
#include "worker/diagnose/xid.h"

namespace muster::worker {
namespace {

constexpr size_t kMaxDetail = 2000;
constexpr size_t kMaxHost = 253;

// What a line shows, and whether it is no more than a result code.
struct Shown {
  Failure failure;
  bool is_result = false;
};

std::optional<Shown> ShownBy(std::string_view line, PeerState peer) {
  if (const auto request = ReadFailedRequest(line)) {
    return Shown{{.cause = CauseOfEfaError(request->number, peer),
                  .detail = Concat("EFA error ", request->number, ", ", request->error->meaning)}};
  }
  if (const auto report = ReadGpuMemory(line)) {
    return Shown{
        {.cause = report->HeldByOthers() ? CauseId::kMemoryHeldByOthers : CauseId::kOutOfMemory,
         .detail = DescribeMemory(*report)}};
  }
  if (const Xid* xid = FindXid(line)) {
    return Shown{{.cause = xid->cause, .detail = Concat("Xid ", xid->number, ", ", xid->meaning)}};
  }
  const Pattern* pattern = FindPattern(line, TextKind::kMessage);
  if (pattern == nullptr) return std::nullopt;
  return Shown{{.cause = pattern->cause, .detail = Printable(line, kMaxDetail)},
               pattern->kind == RowKind::kResult};
}

std::string StringIn(const nlohmann::json& object, const char* key, size_t limit) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return "";
  return Printable(found->get_ref<const std::string&>(), limit);
}

}  // namespace

std::optional<Failure> FailureOf(std::string_view error_text, PeerState peer) {
  std::optional<Failure> result;
  while (!error_text.empty()) {
    const std::string_view line = error_text.substr(0, error_text.find('\n'));
    error_text.remove_prefix(std::min(line.size() + 1, error_text.size()));
    std::optional<Shown> shown = ShownBy(line, peer);
    if (!shown) continue;
    if (!shown->is_result) return std::move(shown->failure);
    if (!result) result = std::move(shown->failure);
  }
  return result;
}

std::string Sentence(const Failure& failure) {
  const Cause& cause = CauseOf(failure.cause);
  std::string text;
  if (failure.rank) Append(&text, "rank ", *failure.rank);
  if (!failure.host.empty()) {
    Append(&text, text.empty() ? "" : " on ", Printable(failure.host, kMaxHost));
  }
  Append(&text, text.empty() ? "" : ": ", cause.sentence);
  if (!failure.detail.empty()) {
    Append(&text, ": ", Printable(failure.detail, kMaxDetail));
  }
  return Concat(text, ". ", cause.fix);
}

std::string TerminationMessage(const Failure& failure) {
  const Cause& cause = CauseOf(failure.cause);
  nlohmann::json message = {{"cause", cause.name},
                            {"sentence", cause.sentence},
                            {"fix", cause.fix},
                            {"fault", FaultName(cause.fault)},
                            {"outcome", OutcomeName(OutcomeOf(cause))},
                            {"exitCode", cause.exit_code}};
  if (failure.rank) message["rank"] = *failure.rank;
  if (!failure.host.empty()) message["host"] = Printable(failure.host, kMaxHost);
  if (!failure.detail.empty()) {
    // Quotes and backslashes take two bytes each.
    for (size_t limit = kMaxDetail;; limit /= 2) {
      message["detail"] = Printable(failure.detail, limit);
      if (message.dump().size() <= kMaxTerminationMessage) break;
    }
  }
  return message.dump();
}

std::optional<Failure> ReadTerminationMessage(std::string_view line) {
  constexpr std::string_view kCause = "\"cause\":\"";
  const size_t at = line.find(kCause);
  if (at == std::string_view::npos) return std::nullopt;
  const Cause* cause = FindCause(TextAfter(line.substr(at), kCause, "\""));
  const size_t begin = line.rfind('{', at);
  if (cause == nullptr || begin == std::string_view::npos) return std::nullopt;
  Failure failure{.cause = cause->id};
  const size_t end = line.rfind('}');
  if (end == std::string_view::npos || end < at) return failure;
  const auto object = nlohmann::json::parse(line.substr(begin, end - begin + 1), nullptr,
                                            /*allow_exceptions=*/false);
  if (!object.is_object()) return failure;
  failure.detail = StringIn(object, "detail", kMaxDetail);
  failure.host = StringIn(object, "host", kMaxHost);
  const auto rank = object.find("rank");
  if (rank != object.end() && rank->is_number_unsigned()) {
    failure.rank = static_cast<int>(std::min<uint64_t>(rank->get<uint64_t>(), 1'000'000));
  }
  return failure;
}

absl::Status WriteTerminationMessage(const Failure& failure, const std::string& path) {
  const std::string message = TerminationMessage(failure);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, Concat("can't open ", path));
  const absl::Cleanup close_file = [file] { close(file); };
  const ssize_t written = write(file, message.data(), message.size());
  if (written < 0) return absl::ErrnoToStatus(errno, Concat("can't write ", path));
  if (static_cast<size_t>(written) < message.size()) {
    return absl::ResourceExhaustedError(
        Concat("only ", written, " of ", message.size(), " bytes could be written to ", path));
  }
  if (ftruncate(file, written) != 0) {
    return absl::ErrnoToStatus(errno, Concat("can't shorten ", path));
  }
  return absl::OkStatus();
}

}  // namespace muster::worker
