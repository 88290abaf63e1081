#include "cluster/suspect_nodes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/objects/time_text.h"

namespace muster::cluster {
namespace {

std::string_view NamespaceOf(std::string_view whose) { return whose.substr(0, whose.find('/')); }

}  // namespace

bool SuspectNodes::Report(const kube::Pod& pod, const std::string& whose, const std::string& fault,
                          bool turned_away, absl::Time now) {
  const absl::Time until = pod.ended_at.value_or(now) + time_;
  if (until <= now) return false;
  Entry& entry = nodes_[pod.node_name];
  const bool known = turned_away ? !entry.turned_away.insert(whose).second
                                 : entry.own.contains(whose) || entry.turned_away.contains(whose);
  if (known && !pod.ended_at) return false;
  Sighting& latest = turned_away ? entry.rejection : entry.own[whose];
  if (until > latest.until) latest = {fault, until};
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
  Entry& entry = nodes_[std::string(node)];
  if (!entry.turned_away.empty()) return;
  entry.rejection = {text("fault"), *until};
  const auto gangs = json.find("gangs");
  if (gangs == json.end() || !gangs->is_array()) return;
  for (const auto& name : *gangs) {
    if (name.is_string()) entry.turned_away.insert(name.get<std::string>());
  }
}

void SuspectNodes::Forget(std::string_view node) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) nodes_.erase(it);
}

std::vector<std::string> SuspectNodes::Expire(absl::Time now) {
  std::vector<std::string> over;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    Entry& entry = it->second;
    size_t gone =
        std::erase_if(entry.own, [&](const auto& own) { return own.second.until <= now; });
    if (entry.rejection.until <= now) {
      gone += entry.turned_away.size();
      entry.turned_away.clear();
    }
    const bool empty = entry.own.empty() && entry.turned_away.empty();
    if (gone > 0 || empty) over.push_back(it->first);
    it = empty ? nodes_.erase(it) : std::next(it);
  }
  return over;
}

absl::Time SuspectNodes::NextExpiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [name, entry] : nodes_) {
    if (!entry.turned_away.empty()) next = std::min(next, entry.rejection.until);
    for (const auto& [whose, own] : entry.own) next = std::min(next, own.until);
  }
  return next;
}

const SuspectNodes::Entry* SuspectNodes::Find(std::string_view node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

const SuspectNodes::Sighting* SuspectNodes::WhyLeftOut(std::string_view node,
                                                       const std::string& whose) const {
  const Entry* entry = Find(node);
  if (entry == nullptr) return nullptr;
  const std::set<std::string>& gangs = entry->turned_away;
  const bool of_two_namespaces =
      !gangs.empty() && NamespaceOf(*gangs.begin()) != NamespaceOf(*gangs.rbegin());
  if (gangs.contains(whose) || of_two_namespaces ||
      std::ranges::count(gangs, NamespaceOf(whose), NamespaceOf) >= 2) {
    return &entry->rejection;
  }
  const auto own = entry->own.find(whose);
  return own == entry->own.end() ? nullptr : &own->second;
}

std::string SuspectAnnotationOf(const SuspectNodes::Entry& entry) {
  const nlohmann::json json = {{"until", kube::TimeText(entry.rejection.until)},
                               {"fault", entry.rejection.fault},
                               {"gangs", entry.turned_away}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string SuspectTaintValueOf(const SuspectNodes::Entry& entry) {
  return absl::FormatTime("%Y%m%dT%H%M%SZ", entry.rejection.until, absl::UTCTimeZone());
}

std::optional<size_t> FindSuspectTaint(const kube::Node& node) {
  const auto it = std::ranges::find(node.taints, kSuspectTaint, &kube::Taint::key);
  if (it == node.taints.end()) return std::nullopt;
  return static_cast<size_t>(it - node.taints.begin());
}

}  // namespace muster::cluster
