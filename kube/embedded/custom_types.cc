#include "kube/embedded/custom_types.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/embedded/schema.h"
#include "kube/embedded/server_impl.h"

namespace muster::kube::embedded {
namespace {

std::vector<std::string> Strings(const Json& list) {
  std::vector<std::string> strings;
  for (const Json& entry : list) {
    if (entry.is_string()) strings.push_back(entry);
  }
  return strings;
}

const Json* StorageVersion(const Json& crd) {
  for (const Json& version : ListAt(crd, {"spec", "versions"})) {
    if (BoolAt(version, {"storage"})) return &version;
  }
  return nullptr;
}

// apiVersion, kind and metadata are known to every kind, whether its schema lists them or not.
ApiResult<std::shared_ptr<const Schema>> SchemaOf(const Json& version) {
  const Json* open_api = FieldAt(version, {"schema", "openAPIV3Schema"});
  if (open_api == nullptr) return std::shared_ptr<const Schema>();
  if (!open_api->is_object()) return BadRequest("openAPIV3Schema: want an object");
  Json amended = *open_api;
  if (amended.contains("properties") && !amended["properties"].is_object()) {
    return BadRequest("openAPIV3Schema.properties: want an object");
  }
  for (const char* field : {"apiVersion", "kind"}) {
    amended["properties"][field] = {{"type", "string"}};
  }
  ApiResult<std::shared_ptr<const Schema>> schema = SchemaFromOpenApi(amended);
  if (!schema.ok()) return schema;
  auto whole = std::make_shared<Schema>(**schema);
  whole->fields["metadata"] = CoreSchema("ObjectMeta");
  return std::shared_ptr<const Schema>(std::move(whole));
}

}  // namespace

ApiResult<ResourceType> TypeFromCrd(const Json& crd) {
  const Json* version = StorageVersion(crd);
  if (version == nullptr) return BadRequest("spec.versions: no storage version");
  ResourceType type;
  type.group = StringAt(crd, {"spec", "group"});
  type.version = StringAt(*version, {"name"});
  const Json& names = MapAt(crd, {"spec", "names"});
  type.plural = StringAt(names, {"plural"});
  type.singular = StringAt(names, {"singular"});
  type.kind = StringAt(names, {"kind"});
  type.short_names = Strings(ListAt(names, {"shortNames"}));
  type.categories = Strings(ListAt(names, {"categories"}));
  type.namespaced = StringAt(crd, {"spec", "scope"}) != "Cluster";
  type.status_subresource = FieldAt(*version, {"subresources", "status"}) != nullptr;
  type.counts_generation = true;
  type.custom = true;
  for (const Json& field : ListAt(*version, {"selectableFields"})) {
    const std::string& path = StringAt(field, {"jsonPath"});
    if (path.starts_with(".")) type.selectable_fields.push_back(path.substr(1));
  }
  for (const Json& column : ListAt(*version, {"additionalPrinterColumns"})) {
    type.columns.push_back({StringAt(column, {"name"}), StringAt(column, {"type"}),
                            StringAt(column, {"jsonPath"}),
                            static_cast<int>(IntAt(column, {"priority"}).value_or(0))});
  }
  ApiResult<std::shared_ptr<const Schema>> schema = SchemaOf(*version);
  if (!schema.ok()) return schema.error();
  type.schema = *std::move(schema);
  type.definition = MapAt(crd, {"spec"}).dump();
  return type;
}

void ServerImpl::ServeCrdLocked(const Json& crd) {
  ApiResult<ResourceType> type = TypeFromCrd(crd);
  const Json* version = StorageVersion(crd);
  const ResourceType* crds = types_.FindPlural("apiextensions.k8s.io", "customresourcedefinitions");
  Json updated = crd;
  Json& status = updated["status"];
  auto condition = [&](const char* name, bool value, const char* reason, const std::string& text) {
    return Json{{"type", name},
                {"status", value ? "True" : "False"},
                {"lastTransitionTime", StringAt(crd, {"metadata", "creationTimestamp"})},
                {"reason", reason},
                {"message", text}};
  };
  if (!type.ok()) {
    status["conditions"] =
        Json::array({condition("Established", false, "InvalidSchema", type.error().message)});
  } else {
    status = {{"acceptedNames", MapAt(crd, {"spec", "names"})},
              {"storedVersions", Json::array({StringAt(*version, {"name"})})},
              {"conditions",
               {condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
                condition("Established", true, "InitialNamesAccepted",
                          "the initial names have been accepted")}}};
    // A version that isn't the stored one isn't served: there is no conversion here.
    const ResourceType* served = types_.FindPlural(type->group, type->plural);
    bool serve = BoolAt(*version, {"served"});
    if (served != nullptr && (!serve || !served->custom)) {
      if (served->custom) types_.Remove(type->group, type->plural);
    } else if (serve && (served == nullptr || served->definition != type->definition)) {
      types_.Add(*std::move(type));
    }
  }
  if (updated != crd) {
    store_.Put(crds->index, StringAt(crd, {"metadata", "name"}), std::move(updated));
  }
}

void ServerImpl::StopServingCrdLocked(const Json& crd) {
  const ResourceType* type = types_.FindPlural(StringAt(crd, {"spec", "group"}),
                                               StringAt(crd, {"spec", "names", "plural"}));
  if (type == nullptr || !type->custom) return;
  std::vector<std::pair<std::string, ObjectPtr>> instances;
  store_.Scan(type->index, "", "", [&](const std::string& key, const ObjectPtr& object) {
    instances.emplace_back(key, object);
    return true;
  });
  for (const auto& [key, object] : instances) RemoveLocked(*type, key, object->value());
  EndWatchesLocked(type->index);
  types_.Remove(type->group, type->plural);
}

}  // namespace muster::kube::embedded
