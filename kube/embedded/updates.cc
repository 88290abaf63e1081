// PUT and PATCH, of an object and of its status.
#include <fmt/format.h>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/kind_rules.h"
#include "kube/embedded/managed_fields.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/embedded/patch.h"
#include "kube/embedded/server_impl.h"

namespace muster::kube::embedded {
namespace {

// How often a change is made anew because the object changed while webhooks were asked.
constexpr int kMaxAttempts = 5;

// Through the status subresource nothing but status changes; for built-in kinds labels and
// annotations do as well.
void KeepAllButStatus(const ResourceType& type, const Json& before, Json* after) {
  Json kept = before;
  auto status = after->find("status");
  if (status != after->end()) {
    kept["status"] = std::move(*status);
  } else {
    kept.erase("status");
  }
  if (!type.custom) {
    for (const char* field : {"labels", "annotations", "finalizers"}) {
      const Json* value = FieldAt(*after, {"metadata", field});
      if (value != nullptr) {
        kept["metadata"][field] = *value;
      } else {
        kept["metadata"].erase(field);
      }
    }
  }
  kept["metadata"]["resourceVersion"] = StringAt(*after, {"metadata", "resourceVersion"});
  kept["metadata"]["uid"] = StringAt(*after, {"metadata", "uid"});
  *after = std::move(kept);
}

void KeepStatus(const Json& before, Json* after) {
  auto status = before.find("status");
  if (status != before.end()) {
    (*after)["status"] = *status;
  } else {
    after->erase("status");
  }
}

bool IsGone(const Json& object) {
  return !StringAt(object, {"metadata", "deletionTimestamp"}).empty() &&
         ListAt(object, {"metadata", "finalizers"}).empty() &&
         IntAt(object, {"metadata", "deletionGracePeriodSeconds"}).value_or(0) == 0;
}

}  // namespace

MaybeError CheckName(const Call& call, const Json& object) {
  const std::string& name = StringAt(object, {"metadata", "name"});
  if (name == call.path.name) return std::nullopt;
  return BadRequest(fmt::format(
      "the name of the object ({}) does not match the name on the URL ({})", name, call.path.name));
}

ApiResult<Answer> ServerImpl::Replace(Call* call) {
  ApiResult<Json> object = DecodeObject(call, call->request.body);
  if (!object.ok()) return object.error();
  if (StringAt(*object, {"metadata", "name"}).empty()) {
    (*object)["metadata"]["name"] = call->path.name;
  }
  if (MaybeError error = CheckName(*call, *object)) return *error;
  return Modify(call, Write::kPut, [&](const Json&) -> ApiResult<Json> { return *object; });
}

ApiResult<Answer> ServerImpl::Patch(Call* call) {
  const std::string type =
      call->request.content_type.substr(0, call->request.content_type.find(';'));
  if (type == kApplyPatch) return Apply(call);
  if (type == kStrategicMergePatch && call->type->custom) {
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml");
  }
  if (type != kMergePatch && type != kJsonPatch && type != kStrategicMergePatch) {
    return UnsupportedMediaType("415: Unsupported Media Type");
  }
  if (MaybeError error = CheckPatchOptions(*call, /*applies=*/false)) return *error;
  ApiResult<Json> patch = ParseJson(call->request.body);
  if (!patch.ok()) return BadRequest("error decoding patch: " + patch.error().message);
  if (type == kMergePatch && !patch->is_object()) {
    return BadRequest("a merge patch must be an object");
  }
  return Modify(call, Write::kPatch, [&](const Json& current) -> ApiResult<Json> {
    Json changed = current;
    MaybeError error;
    if (type == kMergePatch) {
      ApplyMergePatch(*patch, &changed);
    } else if (type == kJsonPatch) {
      error = ApplyJsonPatch(*patch, &changed);
    } else {
      error = ApplyStrategicMergePatch(*call->type->schema, *patch, &changed);
    }
    if (error) return *error;
    if (!changed.is_object()) return BadRequest("the patch leaves no object");
    if (MaybeError wrong = CheckTypeMeta(*call, &changed)) return *wrong;
    return changed;
  });
}

ApiResult<Answer> ServerImpl::Modify(Call* call, Write write, const Edit& edit) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    std::unique_lock lock(mutex_);
    ObjectPtr before = store_.Find(call->type->index, call->Key());
    lock.unlock();
    if (!before) return NotFound(*call->type, call->path.name);
    ApiResult<Json> edited = edit(before->value());
    if (!edited.ok()) return edited.error();
    ApiResult<Json> after = PrepareChange(call, write, before->value(), *std::move(edited));
    if (!after.ok()) return after.error();
    lock.lock();
    // Somebody else was faster: make the change on what is there now.
    if (store_.Find(call->type->index, call->Key()) != before) continue;
    return StoreChangeLocked(call, before, *std::move(after));
  }
  return ModifiedConflict(*call->type, call->path.name);
}

ApiResult<Json> ServerImpl::PrepareChange(Call* call, Write write, const Json& before, Json after) {
  const ResourceType& type = *call->type;
  const std::string& name = call->path.name;
  const bool status_only = call->path.subresource == "status";
  if (MaybeError error = CheckShape(call, &after)) return *error;
  const std::string& version = StringAt(after, {"metadata", "resourceVersion"});
  if (!version.empty() && version != StringAt(before, {"metadata", "resourceVersion"})) {
    return ModifiedConflict(type, name);
  }
  if (version.empty() && write == Write::kPut && (type.custom || type.kind == "Lease")) {
    FieldErrors errors;
    errors.Invalid("metadata.resourceVersion", "0", "must be specified for an update");
    ResourceType by_plural = type;
    by_plural.kind = type.plural;
    return InvalidObject(by_plural, name, errors);
  }
  const Json applied =
      write == Write::kApply ? ListAt(after, {"metadata", "managedFields"}) : Json();
  KeepServerMetadata(before, &after);
  const std::string& uid = StringAt(after, {"metadata", "uid"});
  if (uid != StringAt(before, {"metadata", "uid"})) {
    return Conflict(
        type, name,
        FailedPrecondition(type, call->Key(), "UID", uid, StringAt(before, {"metadata", "uid"})));
  }
  if (status_only) {
    KeepAllButStatus(type, before, &after);
  } else {
    if (type.status_subresource) KeepStatus(before, &after);
    DefaultObject(type, &after);
  }
  if (write == Write::kApply) {
    after["metadata"]["managedFields"] = applied;
  } else {
    TrackUpdate(type, before, WriterOf(*call, now()), &after);
  }
  if (!status_only) {
    ApiResult<std::vector<Webhook>> webhooks = MatchingWebhooks(*call, "UPDATE", after);
    if (!webhooks.ok()) return webhooks.error();
    if (!webhooks->empty()) {
      if (MaybeError error = CallWebhooks(call, "UPDATE", &before, *webhooks, &after)) {
        return *error;
      }
      if (MaybeError error = CheckShape(call, &after)) return *error;
    }
    if (type.counts_generation && SpecDiffers(before, after)) {
      after["metadata"]["generation"] = IntAt(before, {"metadata", "generation"}).value_or(0) + 1;
    }
  }
  FieldErrors errors;
  ValidateChange(type, before, after, status_only, &errors);
  if (!errors.empty()) return InvalidObject(type, name, errors);
  // So that a change that changes nothing is seen as such.
  after["metadata"]["resourceVersion"] = StringAt(before, {"metadata", "resourceVersion"});
  return after;
}

ApiResult<Answer> ServerImpl::StoreChangeLocked(Call* call, const ObjectPtr& before, Json after) {
  if (after == before->value() || SameButTimes(before->value(), after))
    return ObjectAnswer(*call, 200, *before);
  if (call->dry_run()) return ObjectAnswer(*call, 200, after);
  if (IsGone(after)) {
    Answer answer = ObjectAnswer(*call, 200, after);
    RemoveLocked(*call->type, call->Key(), std::move(after));
    return answer;
  }
  return ObjectAnswer(*call, 200, *StoreLocked(*call->type, call->Key(), std::move(after)));
}

}  // namespace muster::kube::embedded
