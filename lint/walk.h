// All fields of all objects, for rules that are about a field wherever it stands.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lint/manifests.h"
#include "yaml/tree.h"

namespace muster::lint {

struct WalkedObject {
  std::string what;  // "PyTorchJob default/x", "NodePool gpu"
  std::string file, kind, name_space, name;
  yaml::YamlValue yaml;
};

// Views into what is walked, valid during the call.
struct WalkedField {
  const std::vector<std::string_view>& path;  // its own key at the end, "*" for an entry of a list
  const yaml::YamlValue& parent;              // the mapping, or the list, that it stands in
  const yaml::YamlValue& value;

  // The path ends in these steps: "persistentVolumeClaim.claimName". A list's own step is left out,
  // unless its entry is the field.
  bool Is(std::string_view steps) const;
  bool IsIn(std::string_view parent_key) const;
  std::string_view Name() const { return path.back(); }
};

// Each once, those that make pods first.
std::vector<WalkedObject> WalkedObjects(const Manifests& manifests);

// But for status, data, and the schemas in a CustomResourceDefinition.
void Walk(const yaml::YamlValue& object, const std::function<void(const WalkedField&)>& see);

// What "spec.replicatedJobs.*.name" leads to.
std::vector<yaml::YamlValue> AllAt(const yaml::YamlValue& object, std::string_view path);

}  // namespace muster::lint
