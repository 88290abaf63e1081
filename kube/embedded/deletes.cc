// DELETE of an object or a collection: preconditions, grace, finalizers, namespaces.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/embedded/server_impl.h"
#include "kube/objects/time_text.h"

namespace muster::kube::embedded {
namespace {

bool IsNamespaces(const ResourceType& type) {
  return type.group.empty() && type.plural == "namespaces";
}

// How long a pod may take to end (CheckGracefulDelete of registry/core/pod/strategy.go v1.34).
int64_t PodGrace(const Json& pod, const DeleteOptions& options) {
  const std::string& phase = StringAt(pod, {"status", "phase"});
  if (StringAt(pod, {"spec", "nodeName"}).empty()) return 0;
  if (phase == "Failed" || phase == "Succeeded") return 0;
  int64_t period = options.grace_period.value_or(
      IntAt(pod, {"spec", "terminationGracePeriodSeconds"}).value_or(0));
  return period < 0 ? 1 : period;
}

}  // namespace

ApiResult<DeleteOptions> ServerImpl::DeleteOptionsOf(const Call& call, const Json* body) {
  DeleteOptions options;
  options.dry_run = call.dry_run();
  const std::string& grace = call.Query("gracePeriodSeconds");
  if (!grace.empty()) {
    int64_t seconds = 0;
    auto [end, error] = std::from_chars(grace.data(), grace.data() + grace.size(), seconds);
    if (error != std::errc() || end != grace.data() + grace.size()) {
      return BadRequest("gracePeriodSeconds: want an integer, got " + Quoted(grace));
    }
    options.grace_period = seconds;
  }
  if (body == nullptr) return options;
  if (!body->is_object()) return BadRequest("DeleteOptions: want an object");
  if (body->contains("gracePeriodSeconds") && !(*body)["gracePeriodSeconds"].is_null()) {
    options.grace_period = IntAt(*body, {"gracePeriodSeconds"});
    if (!options.grace_period) return BadRequest("gracePeriodSeconds: want an integer");
  }
  options.uid = StringAt(*body, {"preconditions", "uid"});
  options.resource_version = StringAt(*body, {"preconditions", "resourceVersion"});
  const Json& dry_run = ListAt(*body, {"dryRun"});
  options.dry_run |= std::find(dry_run.begin(), dry_run.end(), "All") != dry_run.end();
  return options;
}

ApiResult<DeleteOptions> ServerImpl::DeleteOptionsOf(const Call& call) {
  if (call.request.body.empty()) return DeleteOptionsOf(call, nullptr);
  const ApiResult<Json> body = ParseJson(call.request.body);
  if (!body.ok()) return body.error();
  return DeleteOptionsOf(call, body->is_null() ? nullptr : &*body);
}

ApiResult<Answer> ServerImpl::Delete(Call* call) {
  ApiResult<DeleteOptions> options = DeleteOptionsOf(*call);
  if (!options.ok()) return options.error();
  std::lock_guard lock(mutex_);
  return DeleteLocked(*call->type, call->Key(), *options);
}

ApiResult<Answer> ServerImpl::DeleteLocked(const ResourceType& type, const std::string& key,
                                           const DeleteOptions& options) {
  ObjectPtr found = store_.Find(type.index, key);
  const std::string name = key.substr(key.find('/') + 1);
  if (!found) return NotFound(type, name);
  Json object = found->value();
  const std::string& uid = StringAt(object, {"metadata", "uid"});
  const std::string& version = StringAt(object, {"metadata", "resourceVersion"});
  // BeforeDelete of k8s.io/apiserver v0.34 pkg/registry/rest/delete.go, which names the kind.
  ResourceType by_kind = type;
  by_kind.plural = type.kind;
  if (!options.uid.empty() && options.uid != uid) {
    return Conflict(by_kind, name,
                    fmt::format("the UID in the precondition ({}) does not match the UID in record "
                                "({}). The object might have been deleted and then recreated",
                                options.uid, uid));
  }
  if (!options.resource_version.empty() && options.resource_version != version) {
    return Conflict(by_kind, name,
                    fmt::format("the ResourceVersion in the precondition ({}) does not match the "
                                "ResourceVersion in record ({}). The object might have been "
                                "modified",
                                options.resource_version, version));
  }
  Answer answer;
  answer.response = {200, found->bytes(), std::nullopt};
  if (options.dry_run && !type.IsPods()) return SuccessAnswer(200, &type, &object);
  if (options.dry_run) return answer;

  const int64_t grace = type.IsPods() ? PodGrace(object, options) : 0;
  const bool finalized = !ListAt(object, {"metadata", "finalizers"}).empty();
  if (grace > 0) {
    DeletePodLocked(type, key, std::move(object), grace);
    answer.response.body = store_.Find(type.index, key)->bytes();
    return answer;
  }
  if (finalized || IsNamespaces(type)) {
    Json& metadata = object["metadata"];
    if (!metadata.contains("deletionTimestamp") ||
        IntAt(metadata, {"deletionGracePeriodSeconds"}).value_or(0) != 0) {
      metadata["deletionTimestamp"] = TimeText(now());
      metadata["deletionGracePeriodSeconds"] = 0;
      if (IsNamespaces(type)) object["status"]["phase"] = "Terminating";
      answer.response.body = StoreLocked(type, key, std::move(object))->bytes();
    }
    if (IsNamespaces(type)) EmptyNamespaceLocked(name);
    return answer;
  }
  if (type.IsPods()) {
    Json& metadata = object["metadata"];
    if (metadata.contains("deletionTimestamp")) metadata["deletionGracePeriodSeconds"] = 0;
    answer.response.body = object.dump();
  } else {
    answer = SuccessAnswer(200, &type, &object);
  }
  RemoveLocked(type, key, std::move(object));
  return answer;
}

// A second, shorter wish shortens the grace; a longer one changes nothing.
void ServerImpl::DeletePodLocked(const ResourceType& type, const std::string& key, Json pod,
                                 int64_t grace) {
  Json& metadata = pod["metadata"];
  std::optional<int64_t> running = IntAt(metadata, {"deletionGracePeriodSeconds"});
  if (metadata.contains("deletionTimestamp") && running.value_or(0) <= grace) return;
  metadata["deletionTimestamp"] = TimeText(now() + absl::Seconds(grace));
  metadata["deletionGracePeriodSeconds"] = grace;
  // A shorter grace makes no new generation.
  if (!running) metadata["generation"] = IntAt(metadata, {"generation"}).value_or(0) + 1;
  StoreLocked(type, key, std::move(pod));
}

void ServerImpl::RemoveLocked(const ResourceType& type, const std::string& key, Json last) {
  const std::string name_space = StringAt(last, {"metadata", "namespace"});
  const bool crd = !type.custom && type.kind == "CustomResourceDefinition";
  ObjectPtr removed = store_.Remove(type.index, key, std::move(last));
  NotifyLocked(type.index);
  if (crd) StopServingCrdLocked(removed->value());
  if (!name_space.empty()) FinishNamespaceLocked(name_space);
}

void ServerImpl::EmptyNamespaceLocked(const std::string& name_space) {
  for (const ResourceType* type : types_.Served()) {
    if (!type->namespaced) continue;
    std::vector<std::string> keys;
    store_.Scan(type->index, name_space + "/", "", [&](const std::string& key, const ObjectPtr&) {
      keys.push_back(key);
      return true;
    });
    for (const std::string& key : keys) DeleteLocked(*type, key, {});
  }
  FinishNamespaceLocked(name_space);
}

// A namespace that is being deleted goes once nothing is left in it.
void ServerImpl::FinishNamespaceLocked(const std::string& name_space) {
  const ResourceType* namespaces = types_.FindPlural("", "namespaces");
  ObjectPtr found = store_.Find(namespaces->index, name_space);
  if (!found || StringAt(found->value(), {"metadata", "deletionTimestamp"}).empty()) return;
  if (!ListAt(found->value(), {"metadata", "finalizers"}).empty()) return;
  bool empty = true;
  for (const ResourceType* type : types_.Served()) {
    if (!type->namespaced || !empty) continue;
    store_.Scan(type->index, name_space + "/", "",
                [&](const std::string&, const ObjectPtr&) { return empty = false; });
  }
  if (empty) RemoveLocked(*namespaces, name_space, found->value());
}

ApiResult<Answer> ServerImpl::DeleteCollection(Call* call) {
  ApiResult<Selection> selection = SelectionOf(*call);
  if (!selection.ok()) return selection.error();
  ApiResult<DeleteOptions> options = DeleteOptionsOf(*call);
  if (!options.ok()) return options.error();
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, ObjectPtr>> found;
  store_.Scan(call->type->index, selection->prefix, "",
              [&](const std::string& key, const ObjectPtr& object) {
                if (selection->Matches(object->value())) found.emplace_back(key, object);
                return true;
              });
  std::string items;
  for (const auto& [key, object] : found) {
    DeleteLocked(*call->type, key, *options);
    if (!items.empty()) items += ',';
    items += object->bytes();
  }
  Answer answer;
  answer.response.status = 200;
  answer.response.body =
      fmt::format(R"({{"apiVersion":"{}","kind":"{}","metadata":{{"resourceVersion":"{}"}},)"
                  R"("items":[{}]}})",
                  call->type->ApiVersion(), call->type->ListKind(), store_.revision(), items);
  return answer;
}

void ServerImpl::DropOldEventsLocked() {
  const ResourceType* events = types_.FindPlural("", "events");
  while (!event_expiries_.empty() && event_expiries_.front().at <= now()) {
    EventExpiry expiry = std::move(event_expiries_.front());
    event_expiries_.pop_front();
    ObjectPtr event = store_.Find(events->index, expiry.key);
    if (event && event->revision() == expiry.revision) {
      RemoveLocked(*events, expiry.key, event->value());
    }
  }
}

}  // namespace muster::kube::embedded
