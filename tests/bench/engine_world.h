// A cluster around an engine, on one thread and in virtual time: it holds what the API server
// would, carries out what the engine decides, and binds as kube-scheduler would.
//
// Every node is full, unless told otherwise: one tenant of another scheduler has its devices, and
// daemons run beside it. All gangs wait. Only what the engine itself does is timed (CPU time of the
// thread): objects are made before it is handed one, and answers after it has decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/placement/planner/planner.h"
#include "kube/objects/occupants.h"
#include "tests/bench/engine_objects.h"

namespace muster::bench {

struct WorldSize {
  int gangs = 1'000;
  int nodes = 5'000;
  // Beside the tenant and the daemons of each node, so many small pods, spread over the nodes.
  int services = 2'500;
  // EngineOptions' of that name.
  size_t explanation_budget = coscheduling::EngineOptions().explanation_budget;
  // Members come without a gate, and are bound without having been asked for.
  bool standalone = false;
  // What is otherwise about a node than NodeObject says, and whether a tenant is there at first;
  // without them nothing, and one is.
  std::function<void(int node, kube::Node*)> change_node = {};
  std::function<bool(int node)> has_tenant = {};
  // Called before there is any object, when all nodes are there, and when their pods are.
  std::function<void(const std::string& loaded)> loaded = {};
};

class EngineWorld {
 public:
  explicit EngineWorld(const WorldSize& size);
  EngineWorld(const EngineWorld&) = delete;
  EngineWorld& operator=(const EngineWorld&) = delete;

  coscheduling::Engine& engine() { return engine_; }
  absl::Time now() const { return now_; }
  int nodes() const { return size_.nodes; }
  int foreign_pods() const { return size_.nodes * (1 + kDaemons) + size_.services; }
  void Pass(absl::Duration time);

  // Each hands the engine one object, or its end, and returns nothing: what comes of it is seen in
  // Settle.
  void Heartbeat(int node);
  // A label that nobody selects.
  void Relabel(int node, const std::string& value);
  void TenantComes(int node);
  void TenantGoes(int node);
  // A service's pod on a full node: it takes, and gives back, some cpu that no gang lacks.
  std::string ServiceComes(int node);
  void ServiceChanges(const std::string& uid);
  void ServiceGoes(const std::string& uid);
  // One that no scheduler has bound yet.
  void PendingServiceChanges();
  void NamespaceChanges();
  // Returns its name. Its members ask for one domain of the level, if that is given.
  std::string GangComes(int shape, const std::string& required_level = "");
  // One of its members is written to by somebody else.
  void MemberChanges(const std::string& gang);
  // Its job is over, or its user deletes it.
  void GangGoes(const std::string& gang);

  // One step of the engine, and its actions carried out when it is over.
  // Returns whether there is more to do now.
  bool Step();
  // Steps until nothing is left to do.
  void Settle();
  // The answers to the actions of the last step and what kube-scheduler does about them are handed
  // over now. Step does that by itself unless `hold_answers`.
  bool hold_answers = false;
  void DeliverAnswers();

  // CPU seconds that the engine took since the last call.
  double TakeEngineSeconds();

  size_t gang_count() const { return gangs_.size(); }
  int ShapeOf(const std::string& gang) const { return gangs_.at(gang).shape; }
  std::string AnyWaitingGang(uint64_t draw) const;
  const std::vector<std::string>& services() const { return services_; }
  // Gangs that were bound whole and didn't end yet, with their nodes, in order of their binding.
  struct Bound {
    std::string gang;
    std::set<std::string> nodes;
  };
  std::vector<Bound> TakeBound();
  // How many gangs are in each state and for what reason, by what the engine says.
  std::map<std::string, int> States() const;
  // For a gang that waits.
  bool IsKept(const std::string& node) const;
  // A gang that waits for nodes though all of its members would fit as things stand, beside what is
  // kept for those before it; "" if there is none.
  std::string FitsButWaits() const;
  // CPU seconds of one plan for this gang as things stand, placed or not.
  double PlanSeconds(const std::string& gang) const;
  // The same of one planner for all gangs, which has followed the nodes as the engine's has. Its
  // members ask for one domain of the level, if that is given.
  double KeptPlanSeconds(const std::string& gang, const std::string& required_level);
  int NumberOf(const std::string& node) const { return node_numbers_.at(node); }

 private:
  struct Member {
    MemberState state;
    std::string planned;  // by the filter answer
    bool asked = false;   // the bind call was made
  };
  struct Gang {
    int shape = 0;
    absl::Time created;
    std::map<std::string, std::string> annotations;  // of the PodGroup
    kube::PodGroup::Status status;
    std::vector<Member> members;
    int bound = 0;
  };

  template <typename Call>
  void Timed(Call call);
  // Beside nodes that are kept for others.
  coscheduling::PlanRequest RequestOf(const std::string& gang) const;
  coscheduling::Plan PlanOf(const std::string& gang,
                            const std::set<std::string, std::less<>>& kept = {}) const;
  void Say(kube::Node node);
  void Say(kube::Pod pod);
  void SayMember(const std::string& gang, int member);
  void SayGroup(const std::string& gang);
  void Answer(const coscheduling::NumberedAction& action);
  bool Apply(const coscheduling::Action& action);
  bool ChangeMember(const std::string& uid, const std::function<void(Member&)>& change);
  void Heed(const std::vector<std::pair<std::string, std::optional<coscheduling::FilterAnswer>>>&);
  void CallBind(const std::string& uid);

  const WorldSize size_;
  coscheduling::Engine engine_;
  kube::OccupantPool occupants_;  // as in the service's watch (extender/cluster_watch.h)
  absl::Time now_;
  uint64_t version_ = 1'000'000;
  double engine_seconds_ = 0;
  uint64_t named_ = 0;
  uint64_t bind_calls_ = 0;
  std::map<std::string, Gang> gangs_;
  std::vector<std::string> waiting_;  // names of gangs, some of which have gone
  absl::flat_hash_map<std::string, std::pair<std::string, int>> member_of_;  // by UID
  absl::flat_hash_map<std::string, int> node_numbers_;
  std::vector<std::map<std::string, std::string>> node_annotations_;
  std::vector<std::string> node_label_;
  std::vector<uint64_t> tenants_;  // by node: how many it had, 0 while it has none
  std::vector<std::string> services_;
  absl::flat_hash_map<std::string, std::pair<std::string, size_t>> service_nodes_;
  std::vector<coscheduling::NumberedAction> unanswered_;
  std::set<std::string> to_bind_;
  std::vector<Bound> bound_;
  coscheduling::Planner planner_;
};

}  // namespace muster::bench
