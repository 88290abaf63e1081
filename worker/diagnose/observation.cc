#include "worker/diagnose/observation.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/algorithm/container.h"
#include "worker/diagnose/efa_error.h"
#include "worker/diagnose/failure.h"
#include "worker/diagnose/gpu_memory.h"
#include "worker/diagnose/text.h"
#include "worker/diagnose/xid.h"

namespace muster::worker {
namespace {

constexpr size_t kMaxAddress = 253;

Observation OfRequest(const FailedRequest& request) {
  Observation observation{
      .cause = CauseOfEfaError(request.number, PeerState::kUnknown),
      .detail = Concat("EFA error ", request.number, ", ", request.error->meaning),
      .efa_error = request.number,
      .peer_address = Printable(request.peer_address, kMaxAddress)};
  if (!request.peer_instance.empty()) {
    Append(&observation.detail, "; the peer's instance is ",
           Printable(request.peer_instance, kMaxAddress));
  }
  return observation;
}

Observation OfMemory(const GpuMemoryReport& report) {
  const bool others = report.HeldByOthers();
  Observation observation{.cause = others ? CauseId::kMemoryHeldByOthers : CauseId::kOutOfMemory,
                          .detail = DescribeMemory(report)};
  if (others && !WholeWeight(report.asked).empty()) {
    observation.remedy =
        "Then partition the weights from the start (ZeRO-3, or a sharded load) instead of moving "
        "the whole model to each GPU.";
  }
  return observation;
}

// Whether an exception is of a library that talks to servers, which are no ranks: Python writes the
// whole name of a type that isn't its own.
bool IsOfServer(std::string_view text) {
  constexpr std::array<std::string_view, 18> kOfRanks = {
      "torch.", "c10.",    "jax.",       "jaxlib.",          "tensorflow.", "horovod.",
      "ray.",   "socket.", "deepspeed.", "multiprocessing.", "concurrent.", "asyncio.",
      "cupy.",  "mpi4py.", "megatron.",  "accelerate.",      "lightning.",  "pytorch_lightning."};
  const std::string_view type = text.substr(0, text.find_first_of(": \n"));
  if (type.find('.') == type.npos) {
    return text.find("http://") != text.npos || text.find("https://") != text.npos;
  }
  return absl::c_none_of(kOfRanks, [&](std::string_view own) { return type.starts_with(own); });
}

// Whether the server that a download's exception names is one of the job's own, or of its cluster:
// it has no name with a dot, or one that only a cluster knows.
bool IsOfOwnServer(std::string_view text) {
  // A mirror of the Hub is one to load from.
  for (const std::string_view path : {"/resolve/", "/api/models/", "/api/datasets/"}) {
    if (text.find(path) != text.npos) return false;
  }
  for (const std::string_view word : {"Pool(host='", "url: http://", "url: https://"}) {
    const std::string_view host = TextAfter(text, word, "'/:, )\n");
    if (host.empty()) continue;
    const bool number = host.find_first_not_of("0123456789.") == host.npos;
    return number || host.find('.') == host.npos || host.ends_with(".svc") ||
           host.ends_with(".svc.cluster.local") || host.ends_with(".local");
  }
  return false;
}

bool IsOfDownload(CauseId cause) {
  return cause == CauseId::kDownloadFailed || cause == CauseId::kDownloadDenied ||
         cause == CauseId::kDownloadNotFound;
}

// Launchers raise these when a process of theirs has ended, and say elsewhere how.
bool IsLaunchersOwn(std::string_view text) {
  return text.find("ChildFailedError") != std::string_view::npos ||
         text.find("ProcessRaisedException") != std::string_view::npos ||
         text.find("died because of an error raised in its creation task") !=
             std::string_view::npos ||
         text.find("Please inspect the previous error messages for a cause") !=
             std::string_view::npos ||
         text.starts_with("SystemExit") || text.starts_with("subprocess.CalledProcessError");
}

// What NCCL gave back to the program: "NCCL INFO init.cc:1548 -> 3", perhaps with "[Async thread]"
// after it. What its inner functions give back may be tried another way.
std::optional<CauseId> NcclResultIn(std::string_view text) {
  const size_t arrow = text.rfind(" -> ");
  if (arrow == text.npos) return std::nullopt;
  const std::string_view place = text.substr(text.rfind(' ', arrow - 1) + 1);
  constexpr std::array<std::string_view, 3> kFiles = {"init.cc:", "group.cc:", "enqueue.cc:"};
  if (absl::c_none_of(kFiles, [&](std::string_view file) { return place.starts_with(file); })) {
    return std::nullopt;
  }
  switch (LeadingNumber(text.substr(arrow + 4)).value_or(0)) {
    case 1:
      return CauseId::kCudaFailure;
    case 2:
      return CauseId::kNcclSystemError;
    case 3:
      return CauseId::kNcclInternalError;
    case 4:
    case 5:
      return CauseId::kNcclMisuse;
    case 6:
      return CauseId::kPeerLost;
    default:
      return std::nullopt;
  }
}

// Whether an exception's words say of a loss or of gradients that they are no numbers: "found NaN
// in local forward loss calculation". A name between quotation marks is a setting's.
bool SaysThatLossIsNoNumber(std::string_view text) {
  constexpr std::array<std::string_view, 6> kTypes = {"AssertionError",  "ValueError",
                                                      "RuntimeError",    "FloatingPointError",
                                                      "ArithmeticError", "Exception"};
  constexpr std::array<std::string_view, 7> kNoNumber = {
      "nan", "nans", "inf", "infinity", "infinite", "non-finite", "nonfinite"};
  constexpr std::array<std::string_view, 7> kSubjects = {
      "loss", "losses", "grad", "grads", "gradient", "gradients", "grad_norm"};
  constexpr size_t kLongest = 400;
  constexpr std::string_view kOfWord =
      "abcdefghijklmnopqrstuvwxyz0123456789_-'\"`";  // quotes, so that what they hold is another
  const size_t colon = text.find(": ");
  if (colon == text.npos) return false;
  const std::string_view type = text.substr(0, colon);
  if (absl::c_none_of(kTypes, [&](std::string_view end) { return type.ends_with(end); })) {
    return false;
  }
  const std::string lowered = Lowered(text.substr(colon, kLongest));
  if (lowered.find("support") != lowered.npos) return false;
  bool no_number = false;
  bool subject = false;
  std::string_view rest = lowered;
  for (size_t at = rest.find_first_of(kOfWord); at != rest.npos; at = rest.find_first_of(kOfWord)) {
    rest.remove_prefix(at);
    const std::string_view word = rest.substr(0, rest.find_first_not_of(kOfWord));
    rest.remove_prefix(word.size());
    no_number |=
        absl::c_linear_search(kNoNumber, word) || (word == "not" && rest.starts_with(" finite"));
    subject |= absl::c_linear_search(kSubjects, word) || word.ends_with("_loss");
  }
  return no_number && subject;
}

// Whether the kernel killed what keeps watch over a node, or serves it: no process that trains.
bool IsKillOfService(const Observation& seen, std::string_view text) {
  if (seen.cause != CauseId::kHostOutOfMemory && seen.cause != CauseId::kNodeOutOfMemory) {
    return false;
  }
  constexpr std::array<std::string_view, 20> kServices = {
      "node_exporter", "kubelet",    "containerd", "dockerd",  "sshd",
      "systemd",       "prometheus", "fluent",     "telegraf", "dcgm",
      "nv-hostengine", "chrome",     "mysqld",     "postgres", "redis",
      "gnome-shell",   "promtail",   "otelcol",    "cadvisor", "loki"};
  const size_t killed = text.find("Killed process ");
  if (killed == text.npos) return false;
  const std::string_view name = TextAfter(text.substr(killed), "(", ")");
  return absl::c_any_of(kServices,
                        [&](std::string_view service) { return name.starts_with(service); });
}

// Whether an exception's type is one of those of torch.distributed, which says by it that others,
// or what is between them, failed: no program's own.
bool IsOfCommunication(std::string_view text) {
  const std::string_view type = text.substr(0, text.find_first_of(": \n"));
  constexpr std::array<std::string_view, 5> kTypes = {
      "DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "DistQueueEmptyError"};
  return absl::c_any_of(kTypes, [&](std::string_view end) { return type.ends_with(end); });
}

// Whether what checks a program's arguments raised this of them, not of the node that it is on.
bool IsOfSettings(std::string_view text) {
  if (!text.starts_with("AssertionError") && !text.starts_with("ValueError")) return false;
  const std::string lowered = Lowered(text);
  return lowered.find("gpu") == lowered.npos && lowered.find("cuda") == lowered.npos;
}

bool SaysWhy(const Observation& seen) { return !seen.is_result && !seen.is_passed_on; }

}  // namespace

bool IsOfPeers(const Cause& cause) {
  return cause.role == Role::kEcho || cause.id == CauseId::kNameNotFound;
}

std::optional<Observation> ShownBy(std::string_view text, TextKind kind, Doing doing) {
  if (const auto failure = ReadTerminationMessage(text)) {
    return Observation{.cause = failure->cause,
                       .detail = failure->detail,
                       .rank = failure->rank,
                       .host = failure->host};
  }
  if (const auto request = ReadFailedRequest(text)) return OfRequest(*request);
  if (const auto report = ReadGpuMemory(text)) return OfMemory(*report);
  if (const Xid* xid = FindXid(text)) {
    return Observation{.cause = xid->cause,
                       .detail = Concat("Xid ", xid->number, ", ", xid->meaning),
                       // NVLink 5 repaired that by itself.
                       .is_weak = text.find(" Nonfatal ") != text.npos,
                       .is_plain = text.find("(PCI") == text.npos,
                       .xid = xid->number};
  }
  const Pattern* pattern = FindPattern(text, kind, doing);
  if (pattern == nullptr) {
    if (kind == TextKind::kException && SaysThatLossIsNoNumber(text)) {
      return Observation{.cause = CauseId::kLossNotFinite};
    }
    const auto result = kind == TextKind::kNcclInfo ? NcclResultIn(text) : std::nullopt;
    if (!result) return std::nullopt;
    return Observation{.cause = *result, .is_result = true};
  }
  if (kind == TextKind::kException && IsOfPeers(CauseOf(pattern->cause)) && IsOfServer(text)) {
    return std::nullopt;
  }
  if (IsOfDownload(pattern->cause) && IsOfOwnServer(text)) return std::nullopt;
  Observation seen{.cause = pattern->cause,
                   .is_result = pattern->kind == RowKind::kResult,
                   .is_weak = pattern->kind == RowKind::kWarned,
                   .is_plain = pattern->kind == RowKind::kShows,
                   .is_passed_on = pattern->kind == RowKind::kWraps};
  seen.is_weak |= IsKillOfService(seen, text);
  return seen;
}

std::optional<Observation> ShownBy(const Raised& raised) {
  for (const std::string& text : raised.before) {
    std::optional<Observation> signal = ShownBy(text, TextKind::kException);
    const bool told =
        signal && (signal->cause == CauseId::kInterrupted || signal->cause == CauseId::kTerminated);
    if (told && !signal->is_result) return signal;
  }
  const Doing doing = raised.WhatItDid();
  const auto shown_by = [&](std::string_view text) {
    std::optional<Observation> seen = ShownBy(text, TextKind::kException, doing);
    // What another exception was handed, perhaps as what Python's repr makes of it.
    if (!seen || !SaysWhy(*seen)) {
      const std::string printed = WithReprsPrinted(text);
      auto told = printed.empty() ? std::nullopt : ShownBy(printed, TextKind::kException, doing);
      if (told && SaysWhy(*told)) seen = std::move(told);
    }
    // Of a server that is no rank.
    const bool of_server = raised.asked_server && seen && IsOfPeers(CauseOf(seen->cause));
    return of_server ? std::nullopt : seen;
  };
  std::optional<Observation> result = shown_by(raised.text);
  // Of its output, which is no volume and no rank.
  const bool of_output =
      raised.in_printing && result &&
      (result->cause == CauseId::kStorageFailed || result->cause == CauseId::kConnectionClosed);
  if (of_output) return Observation{.cause = CauseId::kPythonException};
  if (result && SaysWhy(*result)) return result;
  for (const std::string& text : raised.before) {
    std::optional<Observation> earlier = shown_by(text);
    if (!earlier || (!SaysWhy(*earlier) && result)) continue;
    result = std::move(earlier);
    if (SaysWhy(*result)) return result;
  }
  if (result || IsLaunchersOwn(raised.text)) return result;
  if (raised.in_validation && IsOfSettings(raised.text)) {
    return Observation{.cause = CauseId::kConfigurationInvalid};
  }
  return Observation{.cause = CauseId::kPythonException, .is_weak = IsOfCommunication(raised.text)};
}

bool IsNoticedByOther(const Observation& end, const Observation& seen) {
  const bool worker_died = end.cause == CauseId::kDataWorkerDied;
  const bool by_itself =
      worker_died || end.cause == CauseId::kKilled || end.cause == CauseId::kProgramCrash;
  if (!end.is_result || !by_itself || seen.survived) return false;
  // Who gave up waiting may be killed, or crash, as it ends.
  return CauseOf(seen.cause).role == Role::kEcho ||
         (IsHang(seen.cause) && (worker_died || IsBefore(end, seen)));
}

absl::Duration Between(const Observation& a, const Observation& b) {
  if (!a.time || !b.time) return absl::ZeroDuration();
  if (Since(*a.time, *b.time) < absl::ZeroDuration()) return -Between(b, a);
  const std::optional<LineTime>& earliest = b.time_is_near ? b.since : b.time;
  return earliest ? std::max(Since(*a.time, *earliest), absl::ZeroDuration())
                  : absl::ZeroDuration();
}

bool IsBefore(const Observation& a, const Observation& b) {
  const absl::Duration between = Between(a, b);
  if (between != absl::ZeroDuration()) return between > absl::ZeroDuration();
  const bool of_objects = a.is_event || a.is_state || b.is_event || b.is_state;
  return !of_objects && a.part == b.part && a.line < b.line;
}

bool MayBeSameRank(const Observation& a, const Observation& b) {
  return !a.rank || !b.rank || *a.rank == *b.rank;
}

bool IsHang(CauseId cause) {
  return cause == CauseId::kCollectiveTimeout || cause == CauseId::kProcessHung;
}

}  // namespace muster::worker
