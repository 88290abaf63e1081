#include "worker/diagnose/xid.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "worker/diagnose/cause_table.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

std::vector<Xid> ReadXids() {
  std::vector<Xid> xids;
  for (const CauseRow& row : BuiltInCauses().rows) {
    if (row.kind != RowKind::kXid) continue;
    xids.push_back({.number = LeadingNumber(row.text).value_or(0),
                    .meaning = row.text.substr(std::min(row.text.find(' ') + 1, row.text.size())),
                    .cause = row.cause});
  }
  return xids;
}

// `text` begins after the word Xid: " (PCI:0000:53:00): 79, pid=..." or " 79:".
const Xid* XidAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(": "), text.size()));
  if (text.starts_with("(PCI")) {
    const size_t end = text.find("): ");
    if (end == std::string_view::npos) return nullptr;
    text.remove_prefix(end + 3);
  }
  const auto number = LeadingNumber(text);
  const std::span<const Xid> xids = Xids();
  const auto found = std::ranges::find_if(xids, [&](const Xid& x) { return x.number == number; });
  return found == xids.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Xid> Xids() {
  static const auto* const kXids = new std::vector<Xid>(ReadXids());
  return *kXids;
}

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
