#include "kube/embedded/server_impl.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "kube/embedded/accounts.h"
#include "kube/embedded/custom_types.h"
#include "kube/embedded/json_fields.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/embedded/table.h"

namespace muster::kube::embedded {
namespace {

constexpr int kMaxNesting = 256;

Answer FailureAnswer(const ApiError& error) {
  Answer answer;
  answer.response.status = error.code;
  answer.response.body = error.ToJson();
  answer.response.retry_after = error.retry_after;
  return answer;
}

bool NestsTooDeep(const std::string& body) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxNesting) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

const std::string& Call::Query(std::string_view name) const {
  static const auto* const kEmpty = new std::string;
  for (const auto& [key, value] : request.query) {
    if (key == name) return value;
  }
  return *kEmpty;
}

bool Call::HasQuery(std::string_view name) const {
  for (const auto& [key, value] : request.query) {
    if (key == name) return true;
  }
  return false;
}

std::string Call::KeyOf(const std::string& name_space, const std::string& name) {
  return name_space.empty() ? name : name_space + "/" + name;
}

ApiResult<Json> ParseJson(const std::string& body) {
  if (NestsTooDeep(body)) {
    return BadRequest(fmt::format("body is nested more than {} levels", kMaxNesting));
  }
  try {
    return Json::parse(body);
  } catch (const Json::exception& error) {
    return BadRequest(fmt::format("body is not JSON: {}", error.what()));
  }
}

Answer SuccessAnswer(int status, const ResourceType* type, const Json* object) {
  Json body = {{"kind", "Status"},
               {"apiVersion", "v1"},
               {"metadata", Json::object()},
               {"status", "Success"}};
  if (type != nullptr && object != nullptr) {
    body["details"] = {{"name", StringAt(*object, {"metadata", "name"})},
                       {"kind", type->plural},
                       {"uid", StringAt(*object, {"metadata", "uid"})}};
    if (!type->group.empty()) body["details"]["group"] = type->group;
  } else {
    body["code"] = status;
  }
  Answer answer;
  answer.response = {status, body.dump(), std::nullopt};
  return answer;
}

ServerImpl::ServerImpl(ApiServerOptions options)
    : options_(std::move(options)), store_(options_.history_limit), random_(options_.seed) {
  CreateBuiltInObjects();
}

Answer ServerImpl::Handle(const Request& request, const RequestHeaders& headers) {
  if (std::optional<Answer> discovery = Discover(request)) return *std::move(discovery);
  if (std::optional<Answer> review = AnswerAboutAccounts(request)) return *std::move(review);
  Call call{request, headers, {}, nullptr, {}};
  ApiResult<Answer> answer = Route(&call);
  Answer result = answer.ok() ? *std::move(answer) : FailureAnswer(answer.error());
  result.warnings = std::move(call.warnings);
  return result;
}

MaybeError ServerImpl::ResolveLocked(Call* call) {
  std::optional<ApiPath> path = ParseApiPath(call->request.path);
  if (!path || path->plural.empty()) return NoSuchPath();
  call->path = *std::move(path);
  ApiPath& it = call->path;
  // The old way to bind: POST to the collection .../bindings with the name in the body.
  if (it.group.empty() && it.plural == "bindings" && it.name.empty()) {
    it.plural = "pods";
    it.subresource = "binding";
  }
  call->type = types_.Find(it.group, it.version, it.plural);
  if (call->type == nullptr) return NoSuchPath();
  if (!call->type->namespaced && !it.name_space.empty()) return NoSuchPath();
  if (call->type->namespaced && it.name_space.empty() && !it.name.empty()) return NoSuchPath();
  return std::nullopt;
}

ApiResult<Answer> ServerImpl::Route(Call* call) {
  {
    std::lock_guard lock(mutex_);
    if (MaybeError error = ResolveLocked(call)) return *error;
  }
  if (call->request.body.size() > options_.max_body_bytes) {
    return TooLarge(fmt::format("limit is {} bytes, got {}", options_.max_body_bytes,
                                call->request.body.size()));
  }
  if (call->HasQuery("dryRun") && !call->Query("dryRun").empty() && !call->dry_run()) {
    ResourceType options;
    options.group = "meta.k8s.io";
    options.kind = call->request.method == Method::kPost    ? "CreateOptions"
                   : call->request.method == Method::kPut   ? "UpdateOptions"
                   : call->request.method == Method::kPatch ? "PatchOptions"
                                                            : "DeleteOptions";
    FieldErrors errors;
    errors.NotSupported("dryRun", "[" + Quoted(call->Query("dryRun")) + "]", {"All"});
    return InvalidObject(options, "", errors);
  }
  return call->path.subresource.empty() ? RouteVerb(call) : RouteSubresource(call);
}

ApiResult<Answer> ServerImpl::RouteVerb(Call* call) {
  const Method method = call->request.method;
  const bool one = !call->path.name.empty();
  // Only reads and collection deletes may leave the namespace open.
  const bool placed = !call->type->namespaced || !call->path.name_space.empty();
  if (ApiServer::IsWatch(call->request)) {
    return BadRequest("a watch is a stream: it can't be answered with one response");
  }
  if (method == Method::kGet) return one ? Get(call) : List(call);
  if (method == Method::kPost && !one && placed) return Create(call);
  if (method == Method::kPut && one) return Replace(call);
  if (method == Method::kPatch && one) return Patch(call);
  if (method == Method::kDelete && one) return Delete(call);
  if (method == Method::kDelete && placed) return DeleteCollection(call);
  return MethodNotAllowed();
}

ApiResult<Answer> ServerImpl::RouteSubresource(Call* call) {
  const Method method = call->request.method;
  const std::string& sub = call->path.subresource;
  const bool pods = call->type->group.empty() && call->type->plural == "pods";
  if (pods && sub == "binding" && method == Method::kPost) return Bind(call);
  if (pods && sub == "eviction" && method == Method::kPost) return Evict(call);
  if (pods && (sub == "binding" || sub == "eviction")) return MethodNotAllowed();
  if (sub != "status" || !call->type->status_subresource) return NoSuchPath();
  if (method == Method::kGet) return Get(call);
  if (method == Method::kPut) return Replace(call);
  if (method == Method::kPatch) return Patch(call);
  return MethodNotAllowed();
}

void ServerImpl::SetAccounts(std::vector<Account> accounts) {
  std::lock_guard lock(mutex_);
  accounts_ = std::move(accounts);
}

std::optional<Answer> ServerImpl::AnswerAboutAccounts(const Request& request) {
  std::lock_guard lock(mutex_);
  const std::optional<ApiResult<Answer>> answer = AnswerReview(request, accounts_);
  if (!answer) return std::nullopt;
  return answer->ok() ? **answer : FailureAnswer(answer->error());
}

void ServerImpl::CompactHistory() {
  std::lock_guard lock(mutex_);
  store_.Compact();
}

uint64_t ServerImpl::revision() {
  std::lock_guard lock(mutex_);
  return store_.revision();
}

ObjectPtr ServerImpl::StoreLocked(const ResourceType& type, const std::string& key, Json object) {
  ObjectPtr stored = store_.Put(type.index, key, std::move(object));
  AfterStoreLocked(type, stored);
  NotifyLocked(type.index);
  return stored;
}

void ServerImpl::AfterStoreLocked(const ResourceType& type, const ObjectPtr& stored) {
  if (type.group.empty() && type.plural == "events") {
    const Json& metadata = stored->value()["metadata"];
    event_expiries_.push_back(
        {now() + options_.event_lifetime,
         Call::KeyOf(StringAt(metadata, {"namespace"}), StringAt(metadata, {"name"})),
         stored->revision()});
    DropOldEventsLocked();
  } else if (type.kind == "CustomResourceDefinition" && !type.custom) {
    ServeCrdLocked(stored->value());
  }
}

std::string ServerImpl::RandomSuffixLocked() {
  // k8s.io/apimachinery/pkg/util/rand: no vowels, no look-alikes.
  constexpr std::string_view kLetters = "bcdfghjklmnpqrstvwxz2456789";
  std::string suffix;
  for (int i = 0; i < 5; ++i) suffix += kLetters[random_() % kLetters.size()];
  return suffix;
}

std::string ServerImpl::UidLocked() {
  uint64_t high = random_();
  uint64_t low = random_();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                     high & 0xfff, 0x8000 | ((low >> 48) & 0x3fff), low & 0xffffffffffff);
}

Answer ServerImpl::ObjectAnswer(const Call& call, int status, const Json& object) {
  Answer answer;
  answer.response.status = status;
  answer.response.body =
      WantsTable(call.headers.accept)
          ? ObjectTable(*call.type, object, now(), {call.Query("includeObject"), "", true})
          : object.dump();
  return answer;
}

Answer ServerImpl::ObjectAnswer(const Call& call, int status, const StoredObject& object) {
  if (WantsTable(call.headers.accept)) return ObjectAnswer(call, status, object.value());
  Answer answer;
  answer.response = {status, object.bytes(), std::nullopt};
  return answer;
}

void ServerImpl::CreateBuiltInObjects() {
  auto create = [&](const char* path, std::string body) {
    Response response =
        Handle({Method::kPost, path, {}, std::string(kJson), std::move(body)}, {}).response;
    if (!response.ok()) {
      fmt::print(stderr, "embedded API server: built-in object refused: {}\n", response.body);
      std::abort();
    }
  };
  for (const char* name : {"default", "kube-node-lease", "kube-public", "kube-system"}) {
    create("/api/v1/namespaces", Json{{"metadata", {{"name", name}}}}.dump());
  }
  for (const std::string& crd : BuiltInCrds()) {
    create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd);
  }
}

}  // namespace muster::kube::embedded
