// POST to a collection.
#include <fmt/format.h>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/kind_rules.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/embedded/schema.h"
#include "kube/embedded/server_impl.h"
#include "kube/objects/time_text.h"

namespace muster::kube::embedded {
namespace {

constexpr int kMaxNameAttempts = 8;  // apiserver/pkg/registry/generic/registry/store.go v0.34

}  // namespace

ApiResult<Json> ServerImpl::DecodeObject(Call* call, const std::string& body) {
  const std::string& type = call->request.content_type;
  if (!type.empty() && !type.starts_with(kJson)) {
    return UnsupportedMediaType(
        fmt::format("the body of the request was in an unknown format - accepted media types "
                    "include: application/json, got {}",
                    type));
  }
  ApiResult<Json> object = ParseJson(body);
  if (!object.ok()) return object;
  if (!object->is_object()) return BadRequest("body: want an object");
  if (MaybeError error = CheckTypeMeta(*call, &*object)) return *error;
  return object;
}

MaybeError ServerImpl::CheckTypeMeta(const Call& call, Json* object) {
  const std::string api_version = call.type->ApiVersion();
  if (!object->contains("apiVersion")) (*object)["apiVersion"] = api_version;
  if (!object->contains("kind")) (*object)["kind"] = call.type->kind;
  const std::string& kind = StringAt(*object, {"kind"});
  const std::string& version = StringAt(*object, {"apiVersion"});
  if (version != api_version || kind != call.type->kind) {
    return BadRequest(fmt::format("{} {} in the body doesn't match the path: want {} {}",
                                  Quoted(version), Quoted(kind), Quoted(api_version),
                                  Quoted(call.type->kind)));
  }
  Json& metadata = (*object)["metadata"];
  if (metadata.is_null()) metadata = Json::object();
  if (!metadata.is_object()) return BadRequest("metadata: want an object");
  auto name_space = metadata.find("namespace");
  bool given = name_space != metadata.end() && name_space->is_string() &&
               !name_space->get_ref<const std::string&>().empty();
  if (given && *name_space != call.path.name_space) {
    return BadRequest(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  if (!call.path.name_space.empty()) {
    metadata["namespace"] = call.path.name_space;
  } else if (name_space != metadata.end()) {
    metadata.erase("namespace");
  }
  return std::nullopt;
}

MaybeError ServerImpl::CheckShape(Call* call, Json* object) {
  const ResourceType& type = *call->type;
  // Built-in kinds lose what they don't know; custom ones keep it.
  const bool keep_unknown = type.custom;
  std::vector<std::string> type_errors;
  std::vector<std::string> unknown;
  FieldErrors constraints;
  auto gather = [&](const SchemaFindings& findings, const std::string& prefix) {
    for (const std::string& text : findings.type_errors) type_errors.push_back(prefix + text);
    for (const std::string& text : findings.unknown_fields) unknown.push_back(prefix + text);
  };
  if (type.custom) {
    Json metadata = std::move((*object)["metadata"]);
    gather(ApplySchema(*CoreSchema("ObjectMeta"), false, &metadata), "metadata.");
    object->erase("metadata");
    if (type.schema) {
      SchemaFindings findings = ApplySchema(*type.schema, keep_unknown, object);
      gather(findings, "");
      constraints = findings.constraints;
    }
    (*object)["metadata"] = std::move(metadata);
  } else {
    gather(ApplySchema(*type.schema, keep_unknown, object), "");
  }
  if (!type_errors.empty()) {
    return BadRequest(fmt::format("{} in version {} cannot be handled as a {}: {}", type.kind,
                                  Quoted(type.version), type.kind, fmt::join(type_errors, "; ")));
  }
  const std::string& validation = call->Query("fieldValidation");
  for (std::string& field : unknown) field = "unknown field " + Quoted(field);
  if (!unknown.empty() && validation == "Strict") {
    return BadRequest(
        fmt::format("{} in version {} cannot be handled as a {}: strict decoding "
                    "error: {}",
                    type.kind, Quoted(type.version), type.kind, fmt::join(unknown, ", ")));
  }
  if (validation != "Ignore") {
    call->warnings.insert(call->warnings.end(), unknown.begin(), unknown.end());
  }
  if (!constraints.empty()) {
    return InvalidObject(type, StringAt(*object, {"metadata", "name"}), constraints);
  }
  return std::nullopt;
}

// Admission plugin Priority, but a priority given without a class is taken as it is.
MaybeError ServerImpl::ResolvePriority(const Call& call, Json* object) {
  if (!call.type->IsPods()) return std::nullopt;
  Json& spec = (*object)["spec"];
  const std::string name = StringAt(spec, {"priorityClassName"});
  if (name.empty()) {
    if (!spec.contains("priority")) spec["priority"] = 0;
  } else if (name == "system-node-critical") {
    spec["priority"] = 2000001000;
  } else if (name == "system-cluster-critical") {
    spec["priority"] = 2000000000;
  } else {
    std::lock_guard lock(mutex_);
    const ResourceType* classes = types_.FindPlural("scheduling.k8s.io", "priorityclasses");
    ObjectPtr found = store_.Find(classes->index, name);
    if (!found) {
      return Forbidden(*call.type, StringAt(*object, {"metadata", "name"}),
                       fmt::format("no PriorityClass with name {} was found", name));
    }
    spec["priority"] = IntAt(found->value(), {"value"}).value_or(0);
    if (!spec.contains("preemptionPolicy")) {
      spec["preemptionPolicy"] = StringAt(found->value(), {"preemptionPolicy"});
    }
  }
  if (!spec.contains("preemptionPolicy")) spec["preemptionPolicy"] = "PreemptLowerPriority";
  return std::nullopt;
}

MaybeError ServerImpl::AdmitNew(Call* call, Json* object) {
  if (MaybeError error = CheckShape(call, object)) return error;
  Json& metadata = (*object)["metadata"];
  if (!StringAt(metadata, {"resourceVersion"}).empty()) {
    return BadRequest("resourceVersion should not be set on objects to be created");
  }
  for (const char* field :
       {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
        "deletionGracePeriodSeconds", "generation", "selfLink", "managedFields"}) {
    metadata.erase(field);
  }
  DefaultObject(*call->type, object);
  if (MaybeError error = ResolvePriority(*call, object)) return error;
  ApiResult<std::vector<Webhook>> webhooks = MatchingWebhooks(*call, "CREATE", *object);
  if (!webhooks.ok()) return webhooks.error();
  if (webhooks->empty()) return std::nullopt;
  if (MaybeError error = CallWebhooks(call, "CREATE", nullptr, *webhooks, object)) return error;
  if (MaybeError error = CheckTypeMeta(*call, object)) return error;
  if (MaybeError error = CheckShape(call, object)) return error;
  DefaultObject(*call->type, object);
  return std::nullopt;
}

MaybeError ServerImpl::CheckNamespaceLocked(const Call& call) {
  if (!call.type->namespaced) return std::nullopt;
  const ResourceType* namespaces = types_.FindPlural("", "namespaces");
  ObjectPtr found = store_.Find(namespaces->index, call.path.name_space);
  if (!found) return NotFound(*namespaces, call.path.name_space);
  if (StringAt(found->value(), {"metadata", "deletionTimestamp"}).empty()) return std::nullopt;
  ApiError error =
      Forbidden(*call.type, call.path.name,
                fmt::format("unable to create new content in namespace {} because it is being "
                            "terminated",
                            call.path.name_space));
  error.causes.push_back({"NamespaceTerminating",
                          fmt::format("namespace {} is being terminated", call.path.name_space),
                          "metadata.namespace"});
  return error;
}

void ServerImpl::FillSystemFieldsLocked(const ResourceType& type, Json* object) {
  Json& metadata = (*object)["metadata"];
  metadata["uid"] = UidLocked();
  metadata["creationTimestamp"] = TimeText(now());
  if (type.counts_generation) metadata["generation"] = 1;
  InitStatus(type, now(), object);
}

ApiResult<Answer> ServerImpl::Create(Call* call) {
  ApiResult<Json> decoded = DecodeObject(call, call->request.body);
  if (!decoded.ok()) return decoded.error();
  return CreateObject(call, *std::move(decoded), /*managed_fields=*/nullptr);
}

ApiResult<Answer> ServerImpl::CreateObject(Call* call, Json object, Json managed_fields) {
  if (MaybeError error = AdmitNew(call, &object)) return *error;
  if (!managed_fields.is_null()) {
    object["metadata"]["managedFields"] = std::move(managed_fields);
  }
  const std::string prefix = StringAt(object, {"metadata", "generateName"});
  const bool generate = StringAt(object, {"metadata", "name"}).empty() && !prefix.empty();

  std::lock_guard lock(mutex_);
  if (MaybeError error = CheckNamespaceLocked(*call)) return *error;
  FillSystemFieldsLocked(*call->type, &object);
  std::string key;
  for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
    if (generate) object["metadata"]["name"] = prefix.substr(0, 58) + RandomSuffixLocked();
    key = Call::KeyOf(call->path.name_space, StringAt(object, {"metadata", "name"}));
    if (!generate || !store_.Find(call->type->index, key)) break;
  }
  const std::string name = StringAt(object, {"metadata", "name"});
  FieldErrors errors;
  ValidateNew(*call->type, object, &errors);
  if (!errors.empty()) return InvalidObject(*call->type, name, errors);
  if (store_.Find(call->type->index, key)) return AlreadyExists(*call->type, name);
  if (call->dry_run()) return ObjectAnswer(*call, 201, object);
  return ObjectAnswer(*call, 201, *StoreLocked(*call->type, key, std::move(object)));
}

}  // namespace muster::kube::embedded
