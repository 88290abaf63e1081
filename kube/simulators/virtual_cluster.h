// For the tests of the simulators: an API server with a clock of its own, and short ways to say
// what happens and what is there.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/embedded/api_server.h"

namespace muster::kube::simulators {

class VirtualCluster {
 public:
  using Json = nlohmann::json;

  VirtualCluster();

  // Anything with Tick(absl::Time) and NextWake(); must outlive its use here.
  template <typename Simulator>
  void Drive(Simulator* simulator) {
    driven_.push_back({[simulator](absl::Time now) { simulator->Tick(now); },
                       [simulator] { return simulator->NextWake(); }});
  }

  embedded::ApiServer& server() { return server_; }
  absl::Duration elapsed() const { return now_ - start_; }
  absl::Time now() const { return now_; }

  // Lets everything happen that is due until then.
  void RunTo(absl::Duration since_start);
  // The moment `holds` first did, at most `limit`; InfiniteDuration if it didn't.
  absl::Duration RunUntil(const std::function<bool()>& holds, absl::Duration limit);

  // Each fails the test if the server refuses.
  Json Create(const std::string& collection, const Json& object);
  void Patch(const std::string& path, const Json& merge_patch);
  void Delete(const std::string& path);
  Response Try(Method method, const std::string& path, const Json& body);

  // A null value if it isn't there.
  Json Get(const std::string& path);
  std::vector<Json> List(const std::string& collection);
  size_t Count(const std::string& collection) { return List(collection).size(); }

  void CreatePod(const std::string& name, const Json& requests, const Json& more_spec = {});
  void CreateNode(const std::string& name, const Json& amounts);
  // `more` is merged over the NodePool's spec.
  void CreatePool(const std::string& name, const std::vector<std::string>& instance_types,
                  const Json& more = Json::object());
  // As Muster asks Karpenter for a node, and takes it back.
  void Signal(const std::string& pod, const std::string& reason = "Unschedulable");
  Response Bind(const std::string& pod, const std::string& node);

  Json Pod(const std::string& name);
  std::string Phase(const std::string& pod);
  std::vector<Json> Claims();
  std::vector<Json> Nodes();
  // "True/Reason", "Unknown/Reason", "" if absent.
  static std::string Condition(const Json& object, const std::string& type);
  static bool HasTaint(const Json& node, const std::string& key);
  // Messages of the events with this reason.
  std::vector<std::string> Events(const std::string& reason);

 private:
  void Settle();

  struct Driven {
    std::function<void(absl::Time)> tick;
    std::function<absl::Time()> next_wake;
  };
  const absl::Time start_;
  absl::Time now_;
  embedded::ApiServer server_;
  std::vector<Driven> driven_;
};

}  // namespace muster::kube::simulators
