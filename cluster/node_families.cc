#include "cluster/node_families.h"

#include <algorithm>
#include <string_view>

#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

// Each part with its length before it, so that different lists never give the same text.
void Append(std::string* text, std::string_view part) {
  text->append(std::to_string(part.size()));
  text->push_back(':');
  text->append(part);
}

std::string IdentityOf(const kube::Node& node) {
  std::string text = node.unschedulable ? "cordoned" : "";
  for (const kube::Taint& taint : node.taints) {
    text.push_back('t');
    Append(&text, taint.key);
    Append(&text, taint.value);
    Append(&text, std::to_string(static_cast<int>(taint.effect)));
  }
  for (const std::string& feature : node.declared_features) {
    text.push_back('f');
    Append(&text, feature);
  }
  for (const auto& [name, amount] : node.allocatable.entries()) {
    text.push_back('r');
    Append(&text, name);
  }
  for (const auto& [key, value] : node.meta.labels) {
    if (key == kube::kHostnameLabel) continue;
    text.push_back('l');
    Append(&text, key);
    Append(&text, value);
  }
  return text;
}

bool SameLabelsButHostname(const kube::StringMap& a, const kube::StringMap& b) {
  auto x = a.begin();
  auto y = b.begin();
  while (true) {
    if (x != a.end() && x->first == kube::kHostnameLabel) ++x;
    if (y != b.end() && y->first == kube::kHostnameLabel) ++y;
    if (x == a.end() || y == b.end()) return x == a.end() && y == b.end();
    if (*x++ != *y++) return false;
  }
}

bool SameNames(const kube::ResourceList& a, const kube::ResourceList& b) {
  return std::equal(a.entries().begin(), a.entries().end(), b.entries().begin(), b.entries().end(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

}  // namespace

int NodeFamilies::Join(const kube::Node& node) {
  auto [it, is_new] = by_identity_.try_emplace(IdentityOf(node), -1);
  if (is_new) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<int>(families_.size()));
      families_.emplace_back();
    }
    it->second = unused_.back();
    unused_.pop_back();
    families_[it->second].number = it;
  }
  ++families_[it->second].nodes;
  return it->second;
}

void NodeFamilies::Leave(int number) {
  Family& family = families_[number];
  if (--family.nodes > 0) return;
  by_identity_.erase(family.number);
  unused_.push_back(number);
}

bool NodeFamilies::Alike(const kube::Node& a, const kube::Node& b) {
  return a.unschedulable == b.unschedulable && a.taints == b.taints &&
         a.declared_features == b.declared_features && SameNames(a.allocatable, b.allocatable) &&
         SameLabelsButHostname(a.meta.labels, b.meta.labels);
}

}  // namespace muster::cluster
