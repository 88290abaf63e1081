#include "coscheduling/placement/suspect_nodes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/objects/time_text.h"

namespace muster::coscheduling {

bool SuspectNodes::Report(const kube::Pod& pod, const std::string& gang, const std::string& fault,
                          absl::Time now) {
  const absl::Time until = pod.ended_at.value_or(now) + time_;
  if (until <= now) return false;
  auto [it, inserted] = nodes_.try_emplace(pod.node_name);
  Entry& entry = it->second;
  if (!entry.pods.insert(pod.meta.uid).second) return false;
  if (inserted) entry.until = absl::InfinitePast();
  const bool known = !entry.gangs.insert(gang).second;
  if (known && !pod.ended_at) return false;
  if (until > entry.until) {
    entry.until = until;
    entry.fault = fault;
  }
  return true;
}

void SuspectNodes::Restore(std::string_view node, std::string_view annotation) {
  const nlohmann::json json =
      nlohmann::json::parse(annotation, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  const auto text = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto until = kube::ReadTimeText(text("until"));
  if (!until) return;
  auto [it, inserted] = nodes_.try_emplace(std::string(node));
  Entry& entry = it->second;
  if (!inserted) return;
  entry.until = *until;
  entry.fault = text("fault");
  const auto gangs = json.find("gangs");
  if (gangs == json.end() || !gangs->is_array()) return;
  for (const auto& gang : *gangs) {
    if (gang.is_string()) entry.gangs.insert(gang.get<std::string>());
  }
}

void SuspectNodes::Forget(std::string_view node) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) nodes_.erase(it);
}

std::vector<std::string> SuspectNodes::Expire(absl::Time now) {
  std::vector<std::string> over;
  std::erase_if(nodes_, [&](const auto& node) {
    if (node.second.until <= now) over.push_back(node.first);
    return node.second.until <= now;
  });
  return over;
}

absl::Time SuspectNodes::NextExpiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [name, entry] : nodes_) next = std::min(next, entry.until);
  return next;
}

const SuspectNodes::Entry* SuspectNodes::Find(std::string_view node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

bool SuspectNodes::IsSuspectFor(std::string_view node, const std::string& gang) const {
  const Entry* entry = Find(node);
  return entry != nullptr && (entry->gangs.size() >= 2 || entry->gangs.contains(gang));
}

std::string SuspectAnnotationOf(const SuspectNodes::Entry& entry) {
  nlohmann::json json = {
      {"until", kube::TimeText(entry.until)}, {"fault", entry.fault}, {"gangs", entry.gangs}};
  // A termination message needn't be UTF-8, nor end with a whole character where it was cut.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string SuspectTaintValueOf(const SuspectNodes::Entry& entry) {
  return absl::FormatTime("%Y%m%dT%H%M%SZ", entry.until, absl::UTCTimeZone());
}

}  // namespace muster::coscheduling
