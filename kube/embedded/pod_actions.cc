// pods/binding and pods/eviction (k8s.io/kubernetes/pkg/registry/core/pod/storage v1.34).
#include <fmt/format.h>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/pod_rules.h"
#include "kube/embedded/schema.h"
#include "kube/embedded/server_impl.h"

namespace muster::kube::embedded {
namespace {

// A resource type that only lends its name to an error.
ResourceType Named(const char* group, const char* plural, const char* kind) {
  ResourceType type;
  type.group = group;
  type.plural = plural;
  type.kind = kind;
  return type;
}

// Checks a subresource's own object: its shape, and that its name is the path's.
ApiResult<Json> DecodeAction(Call* call, const char* kind) {
  ApiResult<Json> body = ParseJson(call->request.body);
  if (!body.ok()) return body.error();
  if (!body->is_object()) return BadRequest(fmt::format("{}: want an object", kind));
  SchemaFindings findings = ApplySchema(*CoreSchema(kind), false, &*body);
  if (!findings.type_errors.empty()) {
    return BadRequest(fmt::format("{}: {}", kind, fmt::join(findings.type_errors, "; ")));
  }
  const std::string& its_kind = StringAt(*body, {"kind"});
  if (!its_kind.empty() && its_kind != kind) {
    return BadRequest(fmt::format("want a {} in the body, got {}", kind, Quoted(its_kind)));
  }
  const std::string& name = StringAt(*body, {"metadata", "name"});
  if (call->path.name.empty()) call->path.name = name;
  if (name != call->path.name) {
    return BadRequest(fmt::format("name in URL does not match name in {} object", kind));
  }
  const std::string& name_space = StringAt(*body, {"metadata", "namespace"});
  if (!name_space.empty() && name_space != call->path.name_space) {
    return BadRequest(fmt::format("namespace in URL does not match namespace in {} object", kind));
  }
  return body;
}

}  // namespace

ApiResult<Answer> ServerImpl::Bind(Call* call) {
  ApiResult<Json> binding = DecodeAction(call, "Binding");
  if (!binding.ok()) return binding.error();
  const std::string& name = call->path.name;
  const std::string& node = StringAt(*binding, {"target", "name"});
  const std::string& target_kind = StringAt(*binding, {"target", "kind"});
  FieldErrors errors;
  if (!target_kind.empty() && target_kind != "Node") {
    errors.NotSupported("target.kind", Quoted(target_kind), {"Node", "<empty>"});
  }
  if (node.empty()) errors.Required("target.name");
  if (!errors.empty()) return InvalidObject(Named("", "bindings", "Binding"), name, errors);

  std::lock_guard lock(mutex_);
  ObjectPtr found = store_.Find(call->type->index, call->Key());
  if (!found) return NotFound(*call->type, name);
  Json pod = found->value();
  const ResourceType refused = Named("", "pods/binding", "Binding");
  const ResourceType pods = Named("", "pods", "Pod");
  const std::string& uid = StringAt(*binding, {"metadata", "uid"});
  const std::string& version = StringAt(*binding, {"metadata", "resourceVersion"});
  if (!uid.empty() && uid != StringAt(pod, {"metadata", "uid"})) {
    return Conflict(pods, name,
                    FailedPrecondition(*call->type, call->Key(), "UID", uid,
                                       StringAt(pod, {"metadata", "uid"})));
  }
  if (!version.empty() && version != StringAt(pod, {"metadata", "resourceVersion"})) {
    return Conflict(pods, name,
                    FailedPrecondition(*call->type, call->Key(), "ResourceVersion", version,
                                       StringAt(pod, {"metadata", "resourceVersion"})));
  }
  if (!StringAt(pod, {"metadata", "deletionTimestamp"}).empty()) {
    return Conflict(refused, name,
                    fmt::format("pod {} is being deleted, cannot be assigned to a host", name));
  }
  const std::string& bound_to = StringAt(pod, {"spec", "nodeName"});
  if (!bound_to.empty()) {
    return Conflict(refused, name,
                    fmt::format("pod {} is already assigned to node {}", name, Quoted(bound_to)));
  }
  if (!ListAt(pod, {"spec", "schedulingGates"}).empty()) {
    return Conflict(refused, name, fmt::format("pod {} has non-empty .spec.schedulingGates", name));
  }
  pod["spec"]["nodeName"] = node;
  for (const auto& [key, value] : MapAt(*binding, {"metadata", "annotations"}).items()) {
    pod["metadata"]["annotations"][key] = value;
  }
  SetPodCondition(now(), "PodScheduled", "True", "", "", &pod);
  if (!call->dry_run()) StoreLocked(*call->type, call->Key(), std::move(pod));
  return SuccessAnswer(201);
}

// There are no disruption budgets here: an eviction is a delete with a condition that says why.
ApiResult<Answer> ServerImpl::Evict(Call* call) {
  ApiResult<Json> eviction = DecodeAction(call, "Eviction");
  if (!eviction.ok()) return eviction.error();
  const Json* wishes = FieldAt(*eviction, {"deleteOptions"});
  ApiResult<DeleteOptions> options = DeleteOptionsOf(*call, wishes);
  if (!options.ok()) return options.error();

  std::lock_guard lock(mutex_);
  ObjectPtr found = store_.Find(call->type->index, call->Key());
  if (!found) return NotFound(*call->type, call->path.name);
  DeleteOptions dry_run = *options;
  dry_run.dry_run = true;
  ApiResult<Answer> allowed = DeleteLocked(*call->type, call->Key(), dry_run);
  if (!allowed.ok() || options->dry_run) return allowed.ok() ? SuccessAnswer(201) : allowed;
  Json pod = found->value();
  SetPodCondition(now(), "DisruptionTarget", "True", "EvictionByEvictionAPI",
                  "Eviction API: evicting", &pod);
  if (pod != found->value()) StoreLocked(*call->type, call->Key(), std::move(pod));
  options->resource_version.clear();  // checked above; the condition made a new one
  ApiResult<Answer> deleted = DeleteLocked(*call->type, call->Key(), *options);
  if (!deleted.ok()) return deleted;
  return SuccessAnswer(201);
}

}  // namespace muster::kube::embedded
