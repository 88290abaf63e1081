#include "coscheduling/suspect_nodes.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster::coscheduling {
namespace {

// Words by which a worker's termination message accuses its node rather than its program.
constexpr std::array<const char*, 7> kFaultWords = {
    "\"cause\":\"gpu", "\"cause\":\"efa", "XID 79", "XID 48", "XID 95", "XID 119", "XID 120"};

}  // namespace

std::optional<std::string> NodeFault(const kube::Pod& pod) {
  if (pod.phase != kube::PodPhase::kFailed || !pod.IsBound()) return std::nullopt;
  if (pod.status_reason == "UnexpectedAdmissionError" ||
      absl::StartsWith(pod.status_reason, "OutOf")) {
    return pod.status_message.empty() ? pod.status_reason
                                      : absl::StrCat(pod.status_reason, ": ", pod.status_message);
  }
  for (const char* word : kFaultWords) {
    if (absl::StrContains(pod.termination_message, word)) {
      return absl::StrCat("worker reported: ", pod.termination_message.substr(0, 200));
    }
  }
  return std::nullopt;
}

void SuspectNodes::Report(const kube::Pod& pod, const std::string& gang_uid,
                          const std::string& fault, absl::Time now) {
  Entry& entry = nodes_[pod.node_name];
  if (!entry.pods.insert(pod.meta.uid).second) return;
  entry.gangs.insert(gang_uid);
  entry.fault = fault;
  entry.until = now + time_;
}

bool SuspectNodes::Expire(absl::Time now) {
  return std::erase_if(nodes_, [now](const auto& node) { return node.second.until <= now; }) > 0;
}

absl::Time SuspectNodes::NextExpiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [name, entry] : nodes_) next = std::min(next, entry.until);
  return next;
}

bool SuspectNodes::IsSuspectFor(std::string_view node, const std::string& gang_uid) const {
  auto it = nodes_.find(node);
  if (it == nodes_.end()) return false;
  return it->second.gangs.size() >= 2 || it->second.gangs.contains(gang_uid);
}

}  // namespace muster::coscheduling
