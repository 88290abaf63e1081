#include "cluster/node_faults.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cluster/snapshot.h"

namespace muster::cluster {
namespace {

struct XidFault {
  int code;
  const char* what;
};

// Driver errors whose remedy is a reset of the GPU or another machine, not another program (Xid
// catalog, docs.nvidia.com/deploy/xid-errors: resolution buckets). Left out because a program
// causes them: 13, 31, 43, 45, 68, 94, 109, which NVIDIA's device plugin doesn't count either or
// whose remedy is to start the program again.
constexpr std::array<XidFault, 8> kXids = {{
    {48, "double-bit ECC error"},
    {64, "row remapping failed"},
    {74, "NVLink error"},
    {79, "the GPU has fallen off the bus"},
    {95, "uncontained ECC error"},
    {119, "the GPU's system processor doesn't answer"},
    {120, "the GPU's system processor failed"},
    {140, "unrecovered ECC error"},
}};

struct FaultText {
  const char* text;
  const char* what;
};

constexpr std::array<FaultText, 9> kTexts = {{
    // What Muster's training worker writes: it has asked its peers before it blames its own node.
    {"\"cause\":\"gpu", "the worker reports its GPU"},
    {"\"cause\":\"efa", "the worker reports its EFA device"},
    // cudaGetErrorString (CUDA 13 runtime): cudaErrorECCUncorrectable,
    // cudaErrorNvlinkUncorrectable,
    // cudaErrorSystemNotReady (fabric manager).
    {"uncorrectable ECC error encountered", "uncorrectable ECC error"},
    {"uncorrectable NVLink error detected", "uncorrectable NVLink error"},
    {"CUDA error: system not yet initialized", "the GPUs' fabric isn't up"},
    // nvmlErrorString (NVML_ERROR_GPU_IS_LOST), and the driver's text of Xid 79.
    {"GPU is lost", "the GPU is lost"},
    {"GPU has fallen off the bus", "the GPU has fallen off the bus"},
    // The container couldn't be given its GPU: the driver isn't loaded or doesn't answer
    // (libnvidia-container, messages of nvidia-container-cli).
    {"nvidia-container-cli: initialization error: nvml error", "no GPU driver"},
    {"nvidia-container-cli: initialization error: driver", "no GPU driver"},
}};

// As aws-ofi-nccl prints a failed request: "... completed with error. RC: 103. Error: 4126 (...".
constexpr std::string_view kEfaRequest = "completed with error. RC: ";
// libfabric prov/efa/src/efa_errno.h: the device's own queue pair failed.
constexpr int kEfaQueuePairError = 2;

// The number in "Xid (PCI:0000:53:00): 79," or "XID 79:"; `text` begins after "xid".
std::optional<int> XidAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (text.starts_with("(PCI")) {
    const size_t end = text.find("): ");
    if (end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(end + 3);
  }
  int code = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), code);
  if (error != std::errc()) return std::nullopt;
  return code;
}

const XidFault* FindXid(std::string_view message) {
  const std::string lower = absl::AsciiStrToLower(std::string(message));
  for (size_t at = lower.find("xid"); at != std::string::npos; at = lower.find("xid", at + 3)) {
    if (at > 0 && absl::ascii_isalnum(static_cast<unsigned char>(lower[at - 1]))) continue;
    const std::optional<int> code = XidAt(message.substr(at + 3));
    const auto* fault =
        std::ranges::find_if(kXids, [&](const XidFault& xid) { return code == xid.code; });
    if (fault != kXids.end()) return fault;
  }
  return nullptr;
}

// Where a request failed by an error of the local EFA device, or npos.
size_t FindEfaFault(std::string_view message) {
  constexpr std::string_view kError = "Error: ";
  for (size_t at = message.find(kEfaRequest); at != std::string_view::npos;
       at = message.find(kEfaRequest, at + 1)) {
    std::string_view line = message.substr(at, message.find('\n', at) - at);
    const size_t error = line.find(kError);
    if (error == std::string_view::npos) continue;
    line.remove_prefix(error + kError.size());
    int code = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), code).ec == std::errc() &&
        code == kEfaQueuePairError) {
      return at;
    }
  }
  return std::string_view::npos;
}

// Around the words that matter: a message may be the last 2 KiB of a log.
std::string Excerpt(std::string_view message, size_t at) {
  constexpr size_t kLength = 200;
  size_t begin = message.rfind('\n', at);
  begin = begin == std::string_view::npos ? 0 : begin + 1;
  if (at - begin > kLength / 2) begin = at;
  std::string_view line = message.substr(begin, message.find('\n', at) - begin);
  if (line.size() <= kLength) return std::string(line);
  size_t end = kLength;  // and not within a character
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;
  return std::string(line.substr(0, end));
}

}  // namespace

std::string DeviceFaultIn(std::string_view message) {
  if (const XidFault* xid = FindXid(message)) {
    const size_t at = absl::AsciiStrToLower(std::string(message)).find("xid");
    return absl::StrCat("Xid ", xid->code, " (", xid->what, "): ", Excerpt(message, at));
  }
  for (const FaultText& fault : kTexts) {
    const size_t at = message.find(fault.text);
    if (at != std::string_view::npos) return absl::StrCat(fault.what, ": ", Excerpt(message, at));
  }
  if (const size_t at = FindEfaFault(message); at != std::string_view::npos) {
    return absl::StrCat("the EFA device's queue pair failed: ", Excerpt(message, at));
  }
  return "";
}

std::optional<std::string> KubeletRejection(const kube::Pod& pod) {
  const bool turned_away = pod.status_reason == "UnexpectedAdmissionError" ||
                           absl::StartsWith(pod.status_reason, "OutOf");
  if (!pod.IsBound() || pod.phase != kube::PodPhase::kFailed || !turned_away) return std::nullopt;
  return pod.status_message.empty() ? pod.status_reason
                                    : absl::StrCat(pod.status_reason, ": ", pod.status_message);
}

bool IsTakenByOthers(const kube::Pod& pod, const NodeInfo& info) {
  const kube::Node& node = *info.node;
  return std::ranges::any_of(pod.spec->requests.entries(), [&](const auto& request) {
    const auto& [resource, amount] = request;
    int64_t whole = node.allocatable.Get(resource);
    if (IsDevice(resource)) whole = std::max(whole, node.capacity.Get(resource));
    return amount > whole - info.requested.Get(resource);
  });
}

std::optional<std::string> NodeFault(const kube::Pod& pod) {
  if (!pod.IsBound()) return std::nullopt;
  if (std::optional<std::string> rejection = KubeletRejection(pod)) return rejection;
  if (pod.phase == kube::PodPhase::kSucceeded) return std::nullopt;
  std::string fault = DeviceFaultIn(pod.termination_message);
  if (fault.empty()) return std::nullopt;
  return fault;
}

std::string FailureText(const kube::Pod& pod) {
  if (std::optional<std::string> fault = NodeFault(pod)) return *fault;
  std::string why = pod.status_reason;
  for (const std::string& more : {pod.status_message, pod.termination_message.substr(0, 200)}) {
    if (!more.empty()) why += (why.empty() ? "" : ": ") + more;
  }
  return why;
}

}  // namespace muster::cluster
