// Everything of a pod that CheckClass and CheckRoom read, as text.

#include "cluster/predicates.h"

namespace muster::cluster {
namespace {

// Pieces are written with their length, so that no two lists of pieces read alike.
class KeyWriter {
 public:
  void Text(std::string_view text) {
    key_ += std::to_string(text.size());
    key_ += ':';
    key_ += text;
  }
  void Number(int64_t number) {
    key_ += std::to_string(number);
    key_ += ';';
  }
  void Requirements(const std::vector<kube::Requirement>& requirements) {
    Number(static_cast<int64_t>(requirements.size()));
    for (const kube::Requirement& requirement : requirements) {
      Text(requirement.key);
      Number(static_cast<int64_t>(requirement.op));
      Number(static_cast<int64_t>(requirement.values.size()));
      for (const std::string& value : requirement.values) Text(value);
    }
  }
  std::string Take() { return std::move(key_); }

 private:
  std::string key_;
};

void WriteNodeAffinity(KeyWriter& key, const kube::PodSpec& spec) {
  key.Number(static_cast<int64_t>(spec.node_selector.size()));
  for (const auto& [label, value] : spec.node_selector) {
    key.Text(label);
    key.Text(value);
  }
  const auto& terms = spec.affinity.required_node_terms;
  key.Number(terms ? static_cast<int64_t>(terms->size()) : -1);
  if (!terms) return;
  for (const kube::NodeSelectorTerm& term : *terms) {
    key.Requirements(term.match_expressions);
    key.Requirements(term.match_fields);
  }
}

}  // namespace

std::string ClassKey(const kube::Pod& pod) {
  const kube::PodSpec& spec = *pod.spec;
  KeyWriter key;
  WriteNodeAffinity(key, spec);
  key.Number(static_cast<int64_t>(spec.tolerations.size()));
  for (const kube::Toleration& toleration : spec.tolerations) {
    key.Text(toleration.key);
    key.Number(toleration.exists ? 1 : 0);
    key.Text(toleration.value);
    key.Number(toleration.effect ? static_cast<int64_t>(*toleration.effect) : -1);
  }
  for (const auto& [resource, amount] : spec.requests.entries()) {
    if (amount <= 0) continue;
    key.Text(resource);
    key.Number(amount);
  }
  key.Number(static_cast<int64_t>(spec.host_ports.size()));
  for (const kube::HostPort& port : spec.host_ports) {
    key.Text(port.ip);
    key.Text(port.protocol);
    key.Number(port.port);
  }
  key.Number(spec.uses_resource_claims ? 1 : 0);
  for (const std::string& feature : spec.node_features) key.Text(feature);
  if (!spec.persistent_volume_claims.empty()) {
    key.Text(pod.meta.name_space);
    for (const auto* claims : {&spec.persistent_volume_claims, &spec.ephemeral_claims}) {
      key.Number(static_cast<int64_t>(claims->size()));
      for (const std::string& claim : *claims) key.Text(claim);
    }
  }
  return key.Take();
}

}  // namespace muster::cluster
