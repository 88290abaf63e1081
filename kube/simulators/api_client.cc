#include "kube/simulators/api_client.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/time/time.h"
#include "kube/objects/quantity.h"
#include "kube/objects/time_text.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr size_t kItemsPerRead = 1024;
constexpr const char* kForever = "315360000";  // ten years

std::string KeyOf(const Json& object) {
  const Json& metadata = object.at("metadata");
  const std::string& name = metadata.at("name").get_ref<const std::string&>();
  auto name_space = metadata.find("namespace");
  if (name_space == metadata.end()) return name;
  return fmt::format("{}/{}", name_space->get_ref<const std::string&>(), name);
}

absl::Status Send(embedded::ApiServer* server, Method method, const std::string& path,
                  std::string body, std::string_view content_type) {
  Request request;
  request.method = method;
  request.path = path;
  request.content_type = content_type;
  request.body = std::move(body);
  return ToStatus(server->Handle(request));
}

}  // namespace

Json AmountsJson(const ResourceList& amounts) {
  Json result = Json::object();
  for (const auto& [name, amount] : amounts.entries()) {
    result[name] = FormatQuantity(amount, UnitOf(name));
  }
  return result;
}

ApiClient::ApiClient(embedded::ApiServer* server, std::string component)
    : server_(server), component_(std::move(component)) {}

absl::StatusOr<Json> ApiClient::Create(const std::string& path, const Json& object) {
  Request request;
  request.method = Method::kPost;
  request.path = path;
  request.content_type = kJson;
  request.body = object.dump();
  Response response = server_->Handle(request);
  if (absl::Status status = ToStatus(response); !status.ok()) return status;
  Json stored = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (!stored.is_object()) return absl::InternalError("the API server's answer isn't an object");
  return stored;
}

absl::Status ApiClient::Patch(const std::string& path, const Json& patch, std::string_view type) {
  return Send(server_, Method::kPatch, path, patch.dump(), type);
}

absl::Status ApiClient::Delete(const std::string& path, const std::string& uid,
                               std::optional<int> grace_period_seconds) {
  Json options = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"preconditions", {{"uid", uid}}}};
  if (grace_period_seconds) options["gracePeriodSeconds"] = *grace_period_seconds;
  return Send(server_, Method::kDelete, path, options.dump(), kJson);
}

absl::Status ApiClient::Evict(const std::string& name_space, const std::string& name,
                              const std::string& uid) {
  Json eviction = {{"apiVersion", "policy/v1"},
                   {"kind", "Eviction"},
                   {"metadata", {{"name", name}, {"namespace", name_space}}},
                   {"deleteOptions", {{"preconditions", {{"uid", uid}}}}}};
  return Send(server_, Method::kPost, PodPath(name_space, name) + "/eviction", eviction.dump(),
              kJson);
}

void ApiClient::RecordEvent(const ObjectReference& about, bool warning, const std::string& reason,
                            const std::string& message) {
  absl::Time now = server_->now();
  std::string name_space = about.name_space.empty() ? "default" : about.name_space;
  Json involved = {{"apiVersion", about.api_version},
                   {"kind", about.kind},
                   {"name", about.name},
                   {"uid", about.uid}};
  if (!about.name_space.empty()) involved["namespace"] = about.name_space;
  Json event = {{"apiVersion", "v1"},
                {"kind", "Event"},
                {"metadata",
                 {{"name", fmt::format("{}.{}.{:x}", about.name, component_, ++events_)},
                  {"namespace", name_space}}},
                {"involvedObject", involved},
                {"type", warning ? "Warning" : "Normal"},
                {"reason", reason},
                {"message", message},
                {"count", 1},
                {"firstTimestamp", TimeText(now)},
                {"lastTimestamp", TimeText(now)},
                {"source", {{"component", component_}}},
                {"reportingComponent", component_}};
  Create(fmt::format("/api/v1/namespaces/{}/events", name_space), event).IgnoreError();
}

std::string PodPath(std::string_view name_space, std::string_view name) {
  return fmt::format("/api/v1/namespaces/{}/pods/{}", name_space, name);
}

std::string NodePath(std::string_view name) { return fmt::format("/api/v1/nodes/{}", name); }

std::string NodeClaimPath(std::string_view name) {
  return fmt::format("/apis/karpenter.sh/v1/nodeclaims/{}", name);
}

std::string NodePoolPath(std::string_view name) {
  return fmt::format("/apis/karpenter.sh/v1/nodepools/{}", name);
}

WatchFollower::WatchFollower(embedded::ApiServer* server, std::string collection_path, bool forever)
    : server_(server), path_(std::move(collection_path)), forever_(forever) {
  Open();
}

WatchFollower::~WatchFollower() = default;

void WatchFollower::Open() {
  Request request;
  request.path = path_;
  request.query = {{"watch", "1"},
                   {"sendInitialEvents", "true"},
                   {"resourceVersionMatch", "NotOlderThan"},
                   {"allowWatchBookmarks", "true"}};
  if (forever_) request.query.emplace_back("timeoutSeconds", kForever);
  session_ = server_->Watch(request).session;
  if (session_ != nullptr) unconfirmed_ = keys_;
}

void WatchFollower::Read(std::vector<Change>* out) {
  // A kind that isn't served yet is asked for again the next time.
  if (session_ == nullptr) Open();
  while (session_ != nullptr) {
    items_.clear();
    bool open = session_->Read(kItemsPerRead, &items_);
    for (const embedded::WatchItem& item : items_) Take(item, out);
    if (open && items_.empty()) return;
    if (!open) Open();
  }
}

void WatchFollower::Take(const embedded::WatchItem& item, std::vector<Change>* out) {
  using Type = embedded::WatchItem::Type;
  switch (item.type) {
    case Type::kAdded:
    case Type::kModified: {
      std::string key = KeyOf(item.object->value());
      unconfirmed_.erase(key);
      keys_.insert(key);
      out->push_back({std::move(key), item.object});
      return;
    }
    case Type::kDeleted: {
      std::string key = KeyOf(item.object->value());
      unconfirmed_.erase(key);
      keys_.erase(key);
      out->push_back({std::move(key), nullptr});
      return;
    }
    case Type::kBookmark:
      if (item.body.find("k8s.io/initial-events-end") == std::string::npos) return;
      for (const std::string& key : unconfirmed_) {
        keys_.erase(key);
        out->push_back({key, nullptr});
      }
      unconfirmed_.clear();
      return;
    case Type::kError:
      return;  // the watch ends after it
  }
}

}  // namespace muster::kube::simulators
