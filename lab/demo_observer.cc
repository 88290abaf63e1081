#include "lab/demo_observer.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/embedded/api_server.h"
#include "kube/objects/well_known.h"

namespace muster::lab {
namespace {

using Json = nlohmann::json;
using kube::embedded::WatchItem;
using kube::embedded::WatchSession;

constexpr size_t kItemsPerRead = 256;

std::unique_ptr<WatchSession> Open(kube::embedded::ApiServer* server, const char* path) {
  kube::Request request;
  request.path = path;
  request.query = {{"watch", "true"}};
  auto result = server->Watch(request);
  if (result.session == nullptr) std::abort();  // these two kinds can always be watched
  return std::move(result.session);
}

void ReadAll(WatchSession& session, std::vector<WatchItem>* items) {
  for (size_t before = items->size();; before = items->size()) {
    session.Read(kItemsPerRead, items);
    if (items->size() == before) return;
  }
}

// Taints by which Karpenter and the kubelet mark a node that isn't there yet.
bool HasNewNodeTaint(const Json& node) {
  const Json taints = node.value("/spec/taints"_json_pointer, Json::array());
  return std::ranges::any_of(taints, [](const Json& taint) {
    const std::string key = taint.value("key", "");
    return key == kube::kUnregisteredTaint || key == "node.kubernetes.io/not-ready";
  });
}

bool IsComplete(const Json& node) {
  const Json labels = node.value("/metadata/labels"_json_pointer, Json::object());
  if (labels.value(kube::kRegisteredLabel, "") != "true") return false;
  if (labels.value(kube::kInitializedLabel, "") != "true") return false;
  if (HasNewNodeTaint(node)) return false;
  const Json amounts = node.value("/status/allocatable"_json_pointer, Json::object());
  if (amounts.value("nvidia.com/gpu", "0") == "0") return false;
  const Json conditions = node.value("/status/conditions"_json_pointer, Json::array());
  return std::ranges::any_of(conditions, [](const Json& condition) {
    return condition.value("type", "") == "Ready" && condition.value("status", "") == "True";
  });
}

}  // namespace

DemoObserver::DemoObserver(kube::embedded::ApiServer* server, std::function<absl::Time()> now)
    : now_(std::move(now)),
      pods_(Open(server, "/api/v1/pods")),
      nodes_(Open(server, "/api/v1/nodes")),
      thread_([this] { Run(); }) {}

DemoObserver::~DemoObserver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::map<std::string, BoundPod> DemoObserver::bound_pods() const {
  const std::lock_guard lock(mutex_);
  return bound_pods_;
}

std::map<std::string, Moment> DemoObserver::complete_nodes() const {
  const std::lock_guard lock(mutex_);
  return complete_nodes_;
}

void DemoObserver::Run() {
  const auto wake = [this] {
    const std::lock_guard lock(mutex_);
    ready_ = true;
    changed_.notify_all();
  };
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || ready_; });
      if (stopping_) return;
      ready_ = false;
    }
    // The nodes last, and shown with the pods: a pod that is seen bound has its node complete.
    std::vector<WatchItem> items;
    ReadAll(*pods_, &items);
    ReadAll(*nodes_, &items);
    Show(items);
    pods_->OnReady(wake);
    nodes_->OnReady(wake);
  }
}

void DemoObserver::Show(const std::vector<WatchItem>& items) {
  const absl::Time now = now_();
  const std::lock_guard lock(mutex_);
  for (const WatchItem& item : items) {
    if (item.object == nullptr || item.type == WatchItem::Type::kDeleted) continue;
    const Json& object = item.object->value();
    const Moment moment = {now, item.object->revision()};
    const std::string name = object.at("metadata").at("name");
    if (object.value("kind", "") == "Pod") {
      const std::string node = object.value("/spec/nodeName"_json_pointer, "");
      if (!node.empty()) bound_pods_.try_emplace(name, BoundPod{node, moment});
    } else if (IsComplete(object)) {
      complete_nodes_.try_emplace(name, moment);
    }
  }
}

}  // namespace muster::lab
