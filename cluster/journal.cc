#include "cluster/journal.h"

#include <array>
#include <utility>

namespace muster::cluster {

std::string NodeChanges::ToString() const {
  constexpr std::array<std::pair<NodeChange, const char*>, 7> kWords = {{
      {NodeChange::kCame, "came"},
      {NodeChange::kWent, "went"},
      {NodeChange::kRoomGrew, "room grew"},
      {NodeChange::kRoomShrank, "room shrank"},
      {NodeChange::kClass, "class"},
      {NodeChange::kPods, "pods"},
      {NodeChange::kMarks, "marks"},
  }};
  std::string text;
  for (const auto& [change, word] : kWords) {
    if (!Has(change)) continue;
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

bool Journal::empty() const {
  return nodes.empty() && volume_claims.empty() && volumes.empty() && storage_classes.empty() &&
         csi_drivers.empty() && namespaces.empty();
}

}  // namespace muster::cluster
