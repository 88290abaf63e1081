#include "tests/bench/engine_world.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "cluster/snapshot.h"
#include "coscheduling/labels.h"
#include "coscheduling/placement/planner/planner.h"
#include "fmt/format.h"
#include "kube/objects/topology_asked.h"
#include "kube/objects/well_known.h"
#include "muster/v1/admission.pb.h"
#include "tests/bench/machine.h"

namespace muster::bench {
namespace {

using coscheduling::FilterAnswer;

// That a step follows a step without end is a fault of the engine; it isn't measured for ever.
constexpr int kMostSteps = 10'000;

kube::Namespace NamespaceObject(int number, uint64_t version) {
  kube::Namespace name_space;
  name_space.meta.name = fmt::format("team-{}", number);
  name_space.meta.uid = "namespace-" + name_space.meta.name;
  name_space.meta.resource_version = std::to_string(version);
  name_space.meta.labels["kubernetes.io/metadata.name"] = name_space.meta.name;
  name_space.meta.annotations["example.com/changed"] = std::to_string(version);
  return name_space;
}

// What reading the clock adds to what is timed with it: the median, as it is a system call.
double ClockSeconds() {
  std::array<double, 1'001> seconds;
  for (double& one : seconds) {
    const double before = ThreadCpu();
    one = ThreadCpu() - before;
  }
  std::ranges::nth_element(seconds, seconds.begin() + seconds.size() / 2);
  return seconds[seconds.size() / 2];
}

coscheduling::EngineOptions OptionsFor(const WorldSize& size) {
  coscheduling::EngineOptions options;
  options.identity = "engine-bench";
  options.explanation_budget = size.explanation_budget;
  options.standalone = size.standalone;
  return options;
}

// Enough of an object to tell which one is gone.
template <typename Object>
Object Uid(const std::string& uid) {
  Object object;
  object.meta.uid = uid;
  return object;
}

}  // namespace

EngineWorld::EngineWorld(const WorldSize& size)
    : size_(size),
      engine_(OptionsFor(size)),
      now_(absl::FromUnixSeconds(1'767'225'600)),
      node_annotations_(size.nodes),
      node_label_(size.nodes),
      tenants_(size.nodes) {
  engine_.AdvanceTo(now_);
  for (int i = 0; i < 20; ++i) engine_.Upsert(NamespaceObject(i, ++version_));
  for (int i = 0; i < kDaemons; ++i) engine_.Upsert(DaemonSetObject(i));
  const auto loaded = [&](const std::string& what) {
    if (size.loaded) size.loaded(what);
  };
  for (int i = 0; i < size.nodes; ++i) node_numbers_[NodeName(i)] = i;
  loaded("nothing");
  for (int i = 0; i < size.nodes; ++i) Heartbeat(i);
  loaded("nodes");
  for (int i = 0; i < size.nodes; ++i) {
    if (!size.has_tenant || size.has_tenant(i)) TenantComes(i);
    for (int d = 0; d < kDaemons; ++d) Say(DaemonPod(d, NodeName(i), ++version_));
  }
  loaded("pods");
  for (int i = 0; i < size.services; ++i) ServiceChanges(ServiceComes(i % size.nodes));
  for (int i = 0; i < size.gangs; ++i) {
    Pass(absl::Milliseconds(10));
    GangComes(i % kShapes);
  }
  engine_.SetSynced();
  engine_.SetGatingActive(true);
  engine_.SetLeading(true);
}

template <typename Call>
void EngineWorld::Timed(Call call) {
  static const double clock = ClockSeconds();
  const double before = ThreadCpu();
  call();
  engine_seconds_ += std::max(0.0, ThreadCpu() - before - clock);
}

double EngineWorld::TakeEngineSeconds() { return std::exchange(engine_seconds_, 0); }

void EngineWorld::Pass(absl::Duration time) {
  now_ += time;
  engine_.AdvanceTo(now_);
}

void EngineWorld::Say(kube::Node node) {
  Timed([&] { engine_.Upsert(std::move(node)); });
}
void EngineWorld::Say(kube::Pod pod) {
  if (kube::IsOccupant(pod, "coscheduling")) occupants_.Reduce(&pod);
  Timed([&] { engine_.Upsert(std::move(pod)); });
}

void EngineWorld::Heartbeat(int node) {
  kube::Node object = NodeObject(node, ++version_);
  if (size_.change_node) size_.change_node(node, &object);
  for (const auto& [key, value] : node_annotations_[node]) object.meta.annotations[key] = value;
  if (!node_label_[node].empty()) object.meta.labels["example.com/rack-audit"] = node_label_[node];
  Say(std::move(object));
}

void EngineWorld::Relabel(int node, const std::string& value) {
  node_label_[node] = value;
  Heartbeat(node);
}

void EngineWorld::TenantComes(int node) {
  tenants_[node] = ++named_;
  Say(TenantPod(fmt::format("tenant-{}", tenants_[node]), NodeName(node), ++version_));
}

void EngineWorld::TenantGoes(int node) {
  const std::string uid = fmt::format("tenant-{}", std::exchange(tenants_[node], 0));
  Timed([&] { engine_.Remove(Uid<kube::Pod>(uid)); });
}

std::string EngineWorld::ServiceComes(int node) {
  std::string uid = fmt::format("service-{}", ++named_);
  service_nodes_[uid] = {NodeName(node), services_.size()};
  services_.push_back(uid);
  Say(ServicePod(uid, NodeName(node), /*running=*/false, ++version_));
  return uid;
}

void EngineWorld::ServiceChanges(const std::string& uid) {
  Say(ServicePod(uid, service_nodes_.at(uid).first, /*running=*/true, ++version_));
}

void EngineWorld::ServiceGoes(const std::string& uid) {
  const std::string gone = uid;
  const size_t place = service_nodes_.at(gone).second;
  services_[place] = services_.back();
  service_nodes_[services_[place]].second = place;
  services_.pop_back();
  service_nodes_.erase(gone);
  Timed([&] { engine_.Remove(Uid<kube::Pod>(gone)); });
}

void EngineWorld::PendingServiceChanges() {
  Say(ServicePod(fmt::format("pending-{}", ++named_), "", /*running=*/false, ++version_));
}

void EngineWorld::NamespaceChanges() {
  kube::Namespace name_space = NamespaceObject(static_cast<int>(++named_ % 20), ++version_);
  Timed([&] { engine_.Upsert(std::move(name_space)); });
}

std::string EngineWorld::GangComes(int shape, const std::string& required_level) {
  const std::string name = fmt::format("run-{}", ++named_);
  Gang& gang = gangs_[name];
  gang.shape = shape;
  gang.created = absl::FromUnixSeconds(absl::ToUnixSeconds(now_));
  Member member;
  member.state.gated = !size_.standalone;
  if (!required_level.empty()) {
    member.state.annotations.emplace_back(kube::kRequiredTopology, required_level);
  }
  gang.members.resize(MembersOf(shape), member);
  waiting_.push_back(name);
  SayGroup(name);
  for (int i = 0; i < MembersOf(shape); ++i) {
    member_of_[fmt::format("{}-{}", name, i)] = {name, i};
    SayMember(name, i);
  }
  return name;
}

void EngineWorld::MemberChanges(const std::string& gang) {
  std::vector<std::pair<std::string, std::string>>& annotations =
      gangs_.at(gang).members.front().state.annotations;
  std::erase_if(annotations, [](const auto& one) { return one.first == "example.com/seen"; });
  annotations.emplace_back("example.com/seen", std::to_string(version_));
  SayMember(gang, 0);
}

void EngineWorld::GangGoes(const std::string& gang) {
  const Gang ended = gangs_.at(gang);
  gangs_.erase(gang);
  for (size_t i = 0; i < ended.members.size(); ++i) {
    const std::string uid = fmt::format("{}-{}", gang, i);
    member_of_.erase(uid);
    to_bind_.erase(uid);
    Timed([&] { engine_.Remove(Uid<kube::Pod>(uid)); });
  }
  auto group = Uid<kube::PodGroup>("group-" + gang);
  group.meta.name_space = NamespaceOf(gang);
  group.meta.name = gang;
  Timed([&] { engine_.Remove(group); });
}

std::string EngineWorld::AnyWaitingGang(uint64_t draw) const {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const std::string& name = waiting_[(draw + i) % waiting_.size()];
    auto it = gangs_.find(name);
    if (it != gangs_.end() && it->second.bound == 0) return name;
  }
  return "";
}

void EngineWorld::SayMember(const std::string& gang, int member) {
  const Gang& one = gangs_.at(gang);
  Say(MemberPod(one.shape, gang, member, one.members[member].state, one.created, ++version_));
}

void EngineWorld::SayGroup(const std::string& gang) {
  const Gang& one = gangs_.at(gang);
  kube::PodGroup group = GroupObject(one.shape, gang, one.created, ++version_);
  for (const auto& [key, value] : one.annotations) group.meta.annotations[key] = value;
  group.status = one.status;
  Timed([&] { engine_.Upsert(std::move(group)); });
}

bool EngineWorld::Step() {
  coscheduling::StepOutput output;
  Timed([&] { output = engine_.Step(now_); });
  Heed(output.filter_answers);
  for (coscheduling::NumberedAction& action : output.actions) {
    unanswered_.push_back(std::move(action));
  }
  if (hold_answers) return engine_.NextWake() <= now_;
  const bool answers = !unanswered_.empty() || !to_bind_.empty();
  DeliverAnswers();
  return answers || engine_.NextWake() <= now_;
}

void EngineWorld::DeliverAnswers() {
  for (const coscheduling::NumberedAction& action : std::exchange(unanswered_, {})) {
    Answer(action);
  }
  for (const std::string& uid : std::exchange(to_bind_, {})) CallBind(uid);
}

void EngineWorld::Settle() {
  for (int i = 0; Step(); ++i) {
    if (i < kMostSteps) continue;
    std::cerr << "engine_world: the engine isn't quiet after " << kMostSteps << " steps\n";
    std::exit(1);
  }
}

void EngineWorld::Answer(const coscheduling::NumberedAction& action) {
  const bool done = Apply(action.action);
  if (action.id == 0) return;
  const absl::Status status = done ? absl::OkStatus() : absl::NotFoundError("the object is gone");
  Timed([&] { engine_.Finish(action.id, status, now_); });
}

bool EngineWorld::ChangeMember(const std::string& uid, const std::function<void(Member&)>& change) {
  auto it = member_of_.find(uid);
  if (it == member_of_.end()) return false;
  const auto [gang, member] = it->second;
  change(gangs_.at(gang).members[member]);
  SayMember(gang, member);
  return true;
}

// What the API server does about an action; false if its object is gone.
bool EngineWorld::Apply(const coscheduling::Action& action) {
  using namespace coscheduling;  // NOLINT(google-build-using-namespace): the sorts of actions
  if (const auto* record = std::get_if<WriteRecord>(&action)) {
    auto it = gangs_.find(record->group.name);
    if (it == gangs_.end()) return false;
    if (record->record.empty()) {
      it->second.annotations.erase("muster.dev/admission");
    } else {
      it->second.annotations["muster.dev/admission"] = record->record;
    }
    SayGroup(record->group.name);
    return true;
  }
  if (const auto* update = std::get_if<UpdatePodGroupStatus>(&action)) {
    auto it = gangs_.find(update->group.name);
    if (it == gangs_.end()) return false;
    it->second.status = {update->phase,
                         update->occupied_by,
                         update->scheduled,
                         update->running,
                         update->succeeded,
                         update->failed,
                         update->schedule_start_time,
                         update->admitted ? "True" : "False",
                         update->reason,
                         update->message};
    SayGroup(update->group.name);
    return true;
  }
  if (const auto* signal = std::get_if<SignalPod>(&action)) {
    return ChangeMember(signal->pod.uid, [&](Member& member) {
      member.state.scheduled_reason = signal->reason;
      member.state.scheduled_message = signal->message;
    });
  }
  if (const auto* nominate = std::get_if<NominatePod>(&action)) {
    return ChangeMember(nominate->pod.uid,
                        [&](Member& member) { member.state.nominated = nominate->node; });
  }
  if (const auto* lift = std::get_if<LiftGate>(&action)) {
    return ChangeMember(lift->pod.uid, [&](Member& member) {
      member.state.gated = false;
      if (!member.planned.empty()) to_bind_.insert(lift->pod.uid);
    });
  }
  if (const auto* annotate = std::get_if<AnnotatePod>(&action)) {
    return ChangeMember(annotate->pod.uid, [&](Member& member) {
      for (const auto& [key, value] : annotate->annotations) {
        member.state.annotations.emplace_back(key, value);
      }
      if (!member.state.gated && !member.planned.empty()) to_bind_.insert(annotate->pod.uid);
    });
  }
  if (const auto* bind = std::get_if<BindPod>(&action)) {
    const bool there =
        ChangeMember(bind->pod.uid, [&](Member& member) { member.state.node = bind->node; });
    if (!there) return false;
    const std::string& name = member_of_.at(bind->pod.uid).first;
    Gang& gang = gangs_.at(name);
    if (++gang.bound < static_cast<int>(gang.members.size())) return true;
    Bound whole{name, {}};
    for (const Member& member : gang.members) whole.nodes.insert(member.state.node);
    bound_.push_back(std::move(whole));
    return true;
  }
  if (const auto* annotate = std::get_if<AnnotateNode>(&action)) {
    const int node = node_numbers_.at(annotate->node);
    for (const auto& [key, value] : annotate->annotations) {
      if (value) {
        node_annotations_[node][key] = *value;
      } else {
        node_annotations_[node].erase(key);
      }
    }
    Heartbeat(node);
    return true;
  }
  if (std::holds_alternative<EmitEvent>(action) || std::holds_alternative<AnswerBind>(action)) {
    return true;
  }
  std::cerr << "engine_world: an action that isn't expected here, number " << action.index()
            << " of its sorts\n";
  std::exit(1);
}

void EngineWorld::Heed(
    const std::vector<std::pair<std::string, std::optional<FilterAnswer>>>& answers) {
  for (const auto& [uid, answer] : answers) {
    auto it = member_of_.find(uid);
    if (it == member_of_.end()) continue;
    Member& member = gangs_.at(it->second.first).members[it->second.second];
    const bool planned = answer && answer->kind == FilterAnswer::Kind::kPlanned;
    member.planned = planned ? answer->node : "";
    if (planned && !member.state.gated && member.state.node.empty()) to_bind_.insert(uid);
  }
}

void EngineWorld::CallBind(const std::string& uid) {
  auto it = member_of_.find(uid);
  if (it == member_of_.end()) return;
  const Member& member = gangs_.at(it->second.first).members[it->second.second];
  if (member.planned.empty() || !member.state.node.empty()) return;
  Timed([&] { engine_.RequestBind(++bind_calls_, uid, member.planned, now_); });
}

std::vector<EngineWorld::Bound> EngineWorld::TakeBound() { return std::exchange(bound_, {}); }

std::map<std::string, int> EngineWorld::States() const {
  std::map<std::string, int> states;
  for (const coscheduling::GangKey& key : engine_.Gangs()) {
    v1::Gang gang;
    engine_.Describe(key, &gang);
    ++states[fmt::format("{} {}", v1::GangState_Name(gang.state()),
                         v1::ReasonCode_Name(gang.reason().code()))];
  }
  return states;
}

coscheduling::PlanRequest EngineWorld::RequestOf(const std::string& gang) const {
  coscheduling::PlanRequest request;
  const size_t members = gangs_.at(gang).members.size();
  for (size_t i = 0; i < members; ++i) {
    request.members.push_back(engine_.snapshot().FindPod(fmt::format("{}-{}", gang, i)));
  }
  request.required = members;
  request.required_topology_key = kube::kZoneLabel;  // they ask for EFA
  return request;
}

coscheduling::Plan EngineWorld::PlanOf(const std::string& gang,
                                       const std::set<std::string, std::less<>>& kept) const {
  coscheduling::PlanRequest request = RequestOf(gang);
  request.excluded_nodes = kept;
  return coscheduling::MakePlan(engine_.snapshot(), request);
}

bool EngineWorld::IsKept(const std::string& node) const {
  return std::ranges::any_of(engine_.Gangs(), [&](const coscheduling::GangKey& key) {
    v1::Gang gang;
    engine_.Describe(key, &gang);
    return std::ranges::count(gang.reservation().nodes(), node) > 0;
  });
}

std::string EngineWorld::FitsButWaits() const {
  // By their places in line; what is kept for one isn't for those after it.
  std::map<std::pair<absl::Time, std::string>, v1::Gang> gangs;
  for (const coscheduling::GangKey& key : engine_.Gangs()) {
    engine_.Describe(key, &gangs[{gangs_.at(key.name).created, key.ToString()}]);
  }
  std::set<std::string, std::less<>> kept;
  for (const auto& [place, gang] : gangs) {
    if (gang.state() == v1::PROVISIONING && PlanOf(gang.name(), kept).complete) return gang.name();
    kept.insert(gang.reservation().nodes().begin(), gang.reservation().nodes().end());
  }
  return "";
}

double EngineWorld::PlanSeconds(const std::string& gang) const {
  const double before = ThreadCpu();
  const coscheduling::Plan plan = PlanOf(gang);
  const double took = ThreadCpu() - before;
  return plan.placements.size() > gangs_.at(gang).members.size() ? 0 : took;
}

double EngineWorld::KeptPlanSeconds(const std::string& gang, const std::string& required_level) {
  coscheduling::PlanRequest request = RequestOf(gang);
  if (!required_level.empty()) request.required_topology_key = required_level;
  planner_.Follow(engine_.snapshot());
  const double before = ThreadCpu();
  const coscheduling::Plan plan = planner_.MakePlan(engine_.snapshot(), request);
  const double took = ThreadCpu() - before;
  return plan.complete ? took : absl::ToDoubleSeconds(absl::InfiniteDuration());
}

}  // namespace muster::bench
