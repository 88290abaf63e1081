// PATCH with application/apply-patch+yaml: server-side apply, of an object and of its status.
#include <fmt/format.h>

#include <algorithm>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/managed_fields.h"
#include "kube/embedded/server_impl.h"
#include "kube/embedded/typed_merge.h"

namespace muster::kube::embedded {
namespace {

constexpr int kMaxApplyAttempts = 5;     // as in updates.cc
constexpr size_t kMaxManagerName = 128;  // apimachinery/pkg/apis/meta/v1/validation v0.34

// The kind as Go writes a GroupVersionKind.
std::string ShownKind(const std::string& api_version, const std::string& kind) {
  const size_t slash = api_version.find('/');
  const std::string group = slash == std::string::npos ? "" : api_version.substr(0, slash);
  const std::string version =
      slash == std::string::npos ? api_version : api_version.substr(slash + 1);
  return fmt::format("{}/{}, Kind={}", group, version, kind);
}

}  // namespace

MaybeError CheckPatchOptions(const Call& call, bool applies) {
  const std::string& manager = call.Query("fieldManager");
  FieldErrors errors;
  if (applies && manager.empty()) {
    errors.Required("fieldManager", "is required for apply patch");
  }
  if (!applies && call.HasQuery("force")) {
    errors.Forbidden("force", "may not be specified for non-apply patch");
  }
  if (manager.size() > kMaxManagerName) {
    errors.TooLong("fieldManager", kMaxManagerName);
  }
  if (errors.empty()) return std::nullopt;
  ResourceType options;
  options.group = "meta.k8s.io";
  options.kind = "PatchOptions";
  return InvalidObject(options, "", errors);
}

FieldWriter WriterOf(const Call& call, absl::Time now) {
  FieldWriter writer{call.Query("fieldManager"), call.path.subresource, now};
  if (writer.manager.empty()) {
    const std::string& agent = call.headers.user_agent;
    writer.manager = agent.substr(0, std::min(agent.find('/'), kMaxManagerName));
  }
  if (writer.manager.empty()) writer.manager = "unknown";
  return writer;
}

ApiResult<Answer> ServerImpl::Apply(Call* call) {
  if (MaybeError error = CheckPatchOptions(*call, /*applies=*/true)) return *error;
  // Clients send JSON, which is YAML; other YAML isn't read here.
  ApiResult<Json> config = ParseJson(call->request.body);
  if (!config.ok()) return BadRequest("error decoding YAML: " + config.error().message);
  if (!config->is_object()) return BadRequest("error decoding YAML: want an object");
  const ResourceType& type = *call->type;
  const std::string kind =
      ShownKind(StringAt(*config, {"apiVersion"}), StringAt(*config, {"kind"}));
  if (kind != ShownKind(type.ApiVersion(), type.kind)) {
    return BadRequest("invalid object type: " + kind);
  }
  if (std::optional<std::string> why = WhyNotApplicable(type.schema.get(), *config)) {
    ApiError error;
    error.message = fmt::format("failed to create typed patch object ({}/{}; {}): {}",
                                StringAt(*config, {"metadata", "namespace"}),
                                StringAt(*config, {"metadata", "name"}), kind, *why);
    return error;
  }
  if (MaybeError error = CheckTypeMeta(*call, &*config)) return *error;
  Json& metadata = (*config)["metadata"];
  if (const Json* managed = FieldAt(metadata, {"managedFields"}); managed && !managed->is_null()) {
    return BadRequest("metadata.managedFields must be nil");
  }
  if (StringAt(metadata, {"name"}).empty()) metadata["name"] = call->path.name;
  if (MaybeError error = CheckName(*call, *config)) return *error;

  const FieldWriter writer = WriterOf(*call, now());
  const bool force = call->Query("force") == "true" || call->Query("force") == "1";
  for (int attempt = 0;; ++attempt) {
    bool there = false;
    {
      std::lock_guard lock(mutex_);
      there = store_.Find(type.index, call->Key()) != nullptr;
    }
    ApiResult<Answer> answer =
        there ? Modify(call, Write::kApply,
                       [&](const Json& current) {
                         return ApplyConfig(type, current, *config, writer, force);
                       })
              : CreateByApply(call, *config, writer);
    // Somebody else was faster: removed it, or created it.
    const bool raced = !answer.ok() && (there ? answer.error().code == 404
                                              : answer.error().reason == "AlreadyExists");
    if (!raced || attempt == kMaxApplyAttempts) return answer;
  }
}

ApiResult<Answer> ServerImpl::CreateByApply(Call* call, const Json& config,
                                            const FieldWriter& writer) {
  const ResourceType& type = *call->type;
  if (!call->path.subresource.empty()) return NotFound(type, call->path.name);
  if (const std::string& uid = StringAt(config, {"metadata", "uid"}); !uid.empty()) {
    return Conflict(type, call->path.name,
                    fmt::format("uid mismatch: the provided object specified uid {}, and no "
                                "existing object was found",
                                uid));
  }
  ApiResult<Json> object = ApplyConfig(type, Json::object(), config, writer, /*force=*/false);
  if (!object.ok()) return object.error();
  Json managed = (*object)["metadata"]["managedFields"];
  return CreateObject(call, *std::move(object), std::move(managed));
}

}  // namespace muster::kube::embedded
