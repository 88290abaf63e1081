// Metadata that every Kubernetes object carries, and label selectors over it.
//
// These types are plain values: no I/O, no locks. They are decoded once (decode.h) and never
// written back: writes are patches, so a field that is not modelled here is never lost.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/string_map.h"

namespace muster::kube {

struct OwnerReference {
  std::string api_version;
  std::string kind;
  std::string name;
  std::string uid;
  bool controller = false;
  bool operator==(const OwnerReference&) const = default;
};

// An object as others of its namespace refer to it. Whoever may write in one namespace can put any
// UID into an owner reference; one of another namespace names nothing (a controller lies in the
// namespace of what it owns, Kubernetes' garbage collection).
struct NamespacedUid {
  std::string name_space;
  std::string uid;
  auto operator<=>(const NamespacedUid&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const NamespacedUid& of) {
    return H::combine(std::move(state), of.name_space, of.uid);
  }
};

struct ObjectMeta {
  std::string name;
  std::string name_space;  // empty for cluster-scoped objects
  std::string uid;
  std::string resource_version;
  int64_t generation = 0;
  absl::Time creation_time = absl::InfinitePast();
  std::optional<absl::Time> deletion_time;
  StringMap labels;
  StringMap annotations;
  std::vector<OwnerReference> owners;
  std::vector<std::string> finalizers;

  // "namespace/name", or "name" for a cluster-scoped object.
  std::string FullName() const;
  const OwnerReference* Controller() const;
  // The same as those who keep something for each owner ask for it; without a UID if none controls
  // it.
  NamespacedUid ControllerUid() const;
  // The value of a label or annotation, or nullptr.
  const std::string* Label(std::string_view key) const;
  const std::string* Annotation(std::string_view key) const;
  // Its value; "" where there is no such label.
  std::string LabelText(std::string_view key) const;
};

// An object as it was last seen. Writes carry uid (and, where said, resource_version) as
// preconditions, so they never reach a successor of the same name.
struct ObjectRef {
  std::string name_space;
  std::string name;
  std::string uid;
  std::string resource_version;
};

inline ObjectRef RefOf(const ObjectMeta& meta) {
  return {meta.name_space, meta.name, meta.uid, meta.resource_version};
}

// True if `candidate` is strictly older than `current`. Resource versions of one API server are
// decimal and ordered (KEP-5504); if either isn't decimal, nothing is ever called older.
bool IsOlderVersion(std::string_view candidate, std::string_view current);

enum class SelectorOperator { kIn, kNotIn, kExists, kDoesNotExist, kGt, kLt };

// One requirement of a label selector, a node selector term, or a Karpenter requirement.
// kGt and kLt compare decimal integers and never match a value that isn't one
// (k8s.io/component-helpers/scheduling/corev1/nodeaffinity v0.34).
struct Requirement {
  std::string key;
  SelectorOperator op = SelectorOperator::kExists;
  std::vector<std::string> values;

  // `value` is nullptr when the key is absent.
  bool Matches(const std::string* value) const;
  std::string ToString() const;
  bool operator==(const Requirement&) const = default;
};

// metav1.LabelSelector with matchLabels folded into In requirements. An empty selector matches
// everything; an absent one (std::nullopt where it is optional) matches nothing.
struct LabelSelector {
  std::vector<Requirement> requirements;

  bool Matches(const StringMap& labels) const;
  bool operator==(const LabelSelector&) const = default;
};

}  // namespace muster::kube
