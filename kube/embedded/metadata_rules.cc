#include "kube/embedded/metadata_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/embedded/json_fields.h"
#include "kube/objects/names.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAnnotationBytes = 256 * 1024;

constexpr const char* kQualifiedRule =
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character, with an optional DNS subdomain prefix and '/'";

void ValidateName(const ResourceType& type, const Json& metadata, FieldErrors* errors) {
  const std::string& name = StringAt(metadata, {"name"});
  const std::string& prefix = StringAt(metadata, {"generateName"});
  bool label = type.plural == "namespaces" || type.plural == "services";
  auto valid = [&](std::string_view text) {
    return label ? IsDnsLabel(text) : IsDnsSubdomain(text);
  };
  // A prefix may end in a dash, the random part comes after it.
  if (!prefix.empty() && !valid(prefix + "a")) {
    errors->Invalid("metadata.generateName", Quoted(prefix), label ? kLabelRule : kSubdomainRule);
  }
  if (name.empty()) {
    errors->Required("metadata.name", "name or generateName is required");
  } else if (!valid(name)) {
    errors->Invalid("metadata.name", Quoted(name), label ? kLabelRule : kSubdomainRule);
  }
}

void ValidateOwners(const Json& metadata, FieldErrors* errors) {
  int controllers = 0;
  const Json& owners = ListAt(metadata, {"ownerReferences"});
  for (size_t i = 0; i < owners.size(); ++i) {
    for (const char* field : {"apiVersion", "kind", "name", "uid"}) {
      if (!StringAt(owners[i], {field}).empty()) continue;
      errors->Invalid(fmt::format("metadata.ownerReferences[{}].{}", i, field), "\"\"",
                      "must not be empty");
    }
    controllers += BoolAt(owners[i], {"controller"}) ? 1 : 0;
  }
  if (controllers > 1) {
    errors->Invalid("metadata.ownerReferences", owners.dump(),
                    "Only one reference can have Controller set to true");
  }
}

}  // namespace

void ValidateMetadata(const ResourceType& type, const Json& object, FieldErrors* errors) {
  const Json& metadata = object["metadata"];
  ValidateName(type, metadata, errors);
  for (const auto& [key, value] : MapAt(metadata, {"labels"}).items()) {
    if (!IsQualifiedName(key)) errors->Invalid("metadata.labels", Quoted(key), kQualifiedRule);
    if (value.is_string() && !IsLabelValue(value.get_ref<const std::string&>())) {
      errors->Invalid("metadata.labels", Quoted(value),
                      "a valid label must be an empty string or consist of at most 63 alphanumeric "
                      "characters, '-', '_' or '.', and must start and end with an alphanumeric "
                      "character");
    }
  }
  size_t bytes = 0;
  for (const auto& [key, value] : MapAt(metadata, {"annotations"}).items()) {
    std::string lower = key;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (!IsQualifiedName(lower)) {
      errors->Invalid("metadata.annotations", Quoted(key), kQualifiedRule);
    }
    bytes += key.size() + (value.is_string() ? value.get_ref<const std::string&>().size() : 0);
  }
  if (bytes > kMaxAnnotationBytes) {
    errors->Invalid("metadata.annotations", std::to_string(bytes),
                    fmt::format("must have at most {} bytes", kMaxAnnotationBytes));
  }
  for (const Json& finalizer : ListAt(metadata, {"finalizers"})) {
    if (finalizer.is_string() && !IsQualifiedName(finalizer.get_ref<const std::string&>())) {
      errors->Invalid("metadata.finalizers", Quoted(finalizer), kQualifiedRule);
    }
  }
  ValidateOwners(metadata, errors);
}

void ValidateMetadataUpdate(const Json& before, const Json& after, FieldErrors* errors) {
  for (const char* field : {"name", "namespace", "uid"}) {
    const std::string& was = StringAt(before, {"metadata", field});
    const std::string& is = StringAt(after, {"metadata", field});
    if (was != is) {
      errors->Invalid(fmt::format("metadata.{}", field), Quoted(is), "field is immutable");
    }
  }
  if (StringAt(before, {"metadata", "deletionTimestamp"}).empty()) return;
  const Json& old_finalizers = ListAt(before, {"metadata", "finalizers"});
  for (const Json& finalizer : ListAt(after, {"metadata", "finalizers"})) {
    if (std::find(old_finalizers.begin(), old_finalizers.end(), finalizer) ==
        old_finalizers.end()) {
      errors->Forbidden("metadata.finalizers",
                        "no new finalizers can be added if the object is being deleted, found new "
                        "finalizers " +
                            finalizer.dump());
    }
  }
}

void KeepServerMetadata(const Json& before, Json* after) {
  Json& metadata = (*after)["metadata"];
  const Json& old = before["metadata"];
  for (const char* field :
       {"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
        "managedFields"}) {
    auto it = old.find(field);
    if (it != old.end()) {
      metadata[field] = *it;
    } else {
      metadata.erase(field);
    }
  }
  if (StringAt(metadata, {"uid"}).empty()) metadata["uid"] = StringAt(old, {"uid"});
  metadata.erase("selfLink");
}

}  // namespace muster::kube::embedded
