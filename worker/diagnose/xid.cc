#include "worker/diagnose/xid.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

using enum CauseId;

// By the resolution buckets of NVIDIA's Xid catalog: those whose remedy is a reset or another
// machine are the GPU's; those whose remedy is in the program are the program's.
constexpr std::array<Xid, 13> kXids = {{
    {13, "exception of the graphics engine", kProgramFault},
    {31, "MMU fault: an illegal address", kProgramFault},
    {43, "the GPU stopped the program's work", kProgramFault},
    {48, "double-bit ECC error", kGpuFault},
    {64, "row remapping failed", kGpuFault},
    {74, "NVLink error", kGpuFault},
    {79, "the GPU has fallen off the bus", kGpuFault},
    {94, "contained ECC error", kContainedMemoryError},
    {95, "uncontained ECC error", kGpuFault},
    {109, "context switch timed out", kProgramFault},
    {119, "the GPU's system processor doesn't answer", kGpuFault},
    {120, "the GPU's system processor failed", kGpuFault},
    {140, "unrecovered ECC error", kGpuFault},
}};

// `text` begins after the word Xid: " (PCI:0000:53:00): 79, pid=..." or " 79:".
const Xid* XidAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(": "), text.size()));
  if (text.starts_with("(PCI")) {
    const size_t end = text.find("): ");
    if (end == std::string_view::npos) return nullptr;
    text.remove_prefix(end + 3);
  }
  const auto number = LeadingNumber(text);
  const auto* found = std::ranges::find_if(kXids, [&](const Xid& x) { return x.number == number; });
  return found == kXids.end() ? nullptr : found;
}

}  // namespace

std::span<const Xid> Xids() { return kXids; }

const Xid* FindXid(std::string_view line) {
  for (const std::string_view word : {"Xid", "XID"}) {
    for (size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 3)) {
      if (at > 0 && absl::ascii_isalnum(static_cast<unsigned char>(line[at - 1]))) continue;
      if (const Xid* xid = XidAt(line.substr(at + word.size()))) return xid;
    }
  }
  return nullptr;
}

}  // namespace muster::worker
