// What was likely meant by a name that isn't one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::lint {

// So few letters are added, left out or changed in between that one is taken for the other. Of
// words of a fixed vocabulary: fields, values, keys.
bool IsNear(std::string_view a, std::string_view b);

// The same of names that users choose, which differ by less where they are different things:
// "team-a" isn't near "team-b", nor "data" near "data2".
bool IsNearName(std::string_view a, std::string_view b);

// That of `known` which is equal but for case, or else near; empty: none.
std::string_view Nearest(std::string_view name, const std::vector<std::string_view>& known);

// A label's or an annotation's key that was meant by this one: near it, or of the same name in a
// related domain ("karpenter.k8s.aws/instance-type" for node.kubernetes.io/instance-type). Empty:
// it is known, or nothing is known of its domain.
std::string_view KeyMeant(std::string_view key);

// One of the keys that Kubernetes, Karpenter or Kueue give nodes or read of objects.
bool IsKnownKey(std::string_view key);
// Of nodes.
bool IsNodeKey(std::string_view key);

}  // namespace muster::lint
