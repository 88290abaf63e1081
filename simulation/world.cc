#include "simulation/world.h"

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "coscheduling/engine.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/embedded/api_server.h"
#include "kube/simulators/coscheduling_plugin.h"
#include "kube/simulators/karpenter_simulator.h"
#include "kube/simulators/kubelet_simulator.h"
#include "kube/simulators/scheduler_simulator.h"
#include "kube/simulators/volume_simulator.h"
#include "muster/v1/admission.pb.h"
#include "simulation/faults.h"
#include "simulation/invariants.h"
#include "simulation/job_controllers.h"
#include "simulation/kueue_simulator.h"
#include "simulation/manifests.h"
#include "simulation/observers.h"
#include "simulation/workload.h"
#include "writes/action_requests.h"
#include "writes/answers.h"

namespace muster::simulation {
namespace {

using coscheduling::Engine;
using coscheduling::FilterAnswer;
using nlohmann::json;

// More rounds than this at one moment mean that the parts answer each other without end.
constexpr int kMaxRounds = 2'000;

// How much later than it happened Muster may act on something, with all that faults may add.
constexpr absl::Duration kFaultLag = absl::Seconds(30);
// Longer than the pause before a write that failed is tried again.
constexpr absl::Duration kMissed = absl::Seconds(30);

// 2026-01-01, at a moment that is no whole milli- or microsecond: what is written to objects is
// less exact than the clock.
absl::Time ScenarioStart() { return absl::FromUnixNanos(1'767'225'600'123'456'789); }

bool LosesWrites(const Scenario& scenario) {
  return std::ranges::any_of(scenario.steps, [](const Step& step) {
    return std::holds_alternative<LoseWritesStep>(step.action);
  });
}

std::string Key(const std::string& gang) {
  return absl::StrContains(gang, "/") ? gang : "default/" + gang;
}

// What Muster's place is taken by.
struct Peers {
  Peers(kube::embedded::ApiServer* server, bool fair_sharing)
      : kueue(server, fair_sharing), coscheduling(server, {}) {}

  KueueSimulator kueue;
  kube::simulators::CoschedulingPlugin coscheduling;
};

json WithoutGate(json pod) {
  json gates = json::array();
  for (const json& gate : pod["spec"].value("schedulingGates", json::array())) {
    if (gate.at("name") != coscheduling::kGate) gates.push_back(gate);
  }
  pod["spec"]["schedulingGates"] = std::move(gates);
  return pod;
}

constexpr absl::Duration kVolumeMaking = absl::Seconds(3);

// Of Policy::kGuard.
constexpr absl::Duration kGuardPeriod = absl::Minutes(5);
constexpr absl::Duration kGuardTime = absl::Minutes(1);

}  // namespace

std::string_view PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kMuster:
      return "muster";
    case Policy::kCoscheduling:
      return "coscheduling";
    case Policy::kNoReservation:
      return "no-reservation";
    case Policy::kGuard:
      return "guard";
  }
  return "";
}

// Muster in this world: the engine, what it observes, and what its bind calls wait for. Or its
// peers, beside an engine that sees nothing.
struct World::State : kube::simulators::ExtenderClient {
  State(const Scenario& s, WorldOptions o)
      : scenario(s),
        options(std::move(o)),
        server({.clock = [this] { return now; }, .seed = options.seed}),
        karpenter(&server, KarpenterConfigOf(scenario, options.seed, start)),
        kubelet(&server, {}),
        peers(options.policy == Policy::kCoscheduling
                  ? std::make_unique<Peers>(&server, scenario.options.fair_sharing)
                  : nullptr),
        scheduler(
            &server, peers == nullptr ? this : nullptr,
            {.scheduler_name = scenario.options.scheduler_name, .bind_timeout = absl::Seconds(30)},
            peers == nullptr ? nullptr : &peers->coscheduling),
        volumes(&server, kVolumeMaking),
        faults(scenario.faults ? &*scenario.faults : nullptr, start),
        invariants(
            &server,
            !options.lose_write && !options.lose_answer && !LosesWrites(scenario) && !faults.any(),
            faults.any() ? kFaultLag : absl::ZeroDuration()) {}

  void StartMuster() {
    coscheduling::EngineOptions engine_options = scenario.options;
    engine_options.seed = options.seed;
    engine_options.standalone = standalone;
    engine_options.identity = fmt::format("muster-{}", ++generation);
    if (options.policy == Policy::kNoReservation) {
      engine_options.reserve_after = absl::InfiniteDuration();
    } else if (options.policy == Policy::kGuard) {
      engine_options.reserve_after = kGuardPeriod;
      engine_options.reservations.time = kGuardTime;
      engine_options.reservations.period = kGuardPeriod;
    }
    engine = std::make_unique<Engine>(std::move(engine_options));
    engine->SetGatingActive(true);
    answers.clear();
    invariants.ForgetShown();
    for (auto& [id, held] : binds) held.done("connection refused");
    binds.clear();
    if (peers != nullptr) return;
    feeds = WatchEverything(&server, engine.get(), &faults, now);
    engine->SetSynced();
  }

  bool IsHidden(const std::string& node) const {
    const auto it = hidden.find(node);
    return it != hidden.end() && now < it->second;
  }

  // --- ExtenderClient ---
  kube::simulators::FilterResult Filter(const kube::simulators::FilterCall& call) override {
    kube::simulators::FilterResult result;
    if (faults.Active(now) && faults.FilterFails()) {
      result.error = "context deadline exceeded";
      return result;
    }
    // What is listed has passed kube-scheduler's own filters.
    std::vector<std::string> offered = call.node_names;
    std::erase_if(offered, [this](const std::string& node) { return IsHidden(node); });
    auto it = answers.find(call.pod_uid);
    const FilterAnswer answer = it == answers.end() ? FilterAnswer{} : it->second;
    switch (answer.kind) {
      case FilterAnswer::Kind::kPlanned:
        if (std::ranges::find(offered, answer.node) != offered.end()) {
          result.node_names = {answer.node};
        } else {
          engine->RefusePlannedNode(call.pod_uid, answer.node, offered, now);
          result.error = "the planned node is not among those offered";
        }
        break;
      case FilterAnswer::Kind::kUnresolvable:
        for (const std::string& name : call.node_names) result.failed[name] = answer.message;
        break;
      case FilterAnswer::Kind::kHold:
        result.error = answer.message.empty() ? "unknown pod" : answer.message;
        break;
    }
    return result;
  }

  void Bind(const kube::simulators::BindCall& call, BindDone done) override {
    const auto delay = bind_delays.find(call.pod_namespace + "/" + call.pod_name);
    absl::Time arrival = delay == bind_delays.end() ? now : std::max(now, delay->second);
    Faults::Call way;
    if (faults.Active(now)) way = faults.OfBind();
    if (way.lost) return;  // kube-scheduler's own timeout ends it
    arrival += way.there;
    if (way.unanswered) done = [](const std::string&) {};
    if (way.back > absl::ZeroDuration()) {
      done = [this, back = way.back, done = std::move(done)](std::string error) {
        At(now + back, [done, error = std::move(error)] { done(error); });
      };
    }
    if (way.repeated) {
      At(arrival + way.back, [this, call] { ReceiveBind(call, [](const std::string&) {}); });
    }
    if (arrival == now) return ReceiveBind(call, std::move(done));
    At(arrival, [this, call, done = std::move(done)] { ReceiveBind(call, done); });
  }

  void ReceiveBind(const kube::simulators::BindCall& call, BindDone done) {
    const uint64_t id = ++next_bind;
    binds[id] = {call.pod_uid, now, std::move(done)};
    engine->RequestBind(id, call.pod_uid, call.node, now);
  }

  // --- what is under way ---
  void At(absl::Time time, std::function<void()> arrive) {
    under_way.emplace(time, std::move(arrive));
  }

  bool Arrive() {
    bool any = false;
    while (!under_way.empty() && under_way.begin()->first <= now) {
      under_way.extract(under_way.begin()).mapped()();
      any = true;
    }
    return any;
  }

  // --- carrying out actions ---
  void CarryOut(const coscheduling::NumberedAction& numbered) {
    if (const auto* answer = std::get_if<coscheduling::AnswerBind>(&numbered.action)) {
      auto it = binds.find(answer->request);
      if (it == binds.end()) return;
      auto done = std::move(it->second.done);
      binds.erase(it);
      done(answer->error);
      return;
    }
    ++asked[std::string(writes::KindOf(numbered.action))];
    const std::optional<writes::ActionRequest> made = writes::ToRequest(numbered.action, now);
    if (!made) return;  // an event: the timeline says as much
    auto write = std::make_shared<Write>(Write{.id = numbered.id,
                                               .generation = generation,
                                               .kind = writes::KindOf(numbered.action),
                                               .made = *made});
    if (!faults.Active(now)) return Send(write);
    write->trip = faults.OfWrite(write->kind);
    At(now + write->trip.there, [this, write] { Send(write); });
  }

  // One of Muster's writes, on its way.
  struct Write {
    uint64_t id = 0;
    int generation = 0;  // of the Muster that asked for it
    std::string_view kind;
    writes::ActionRequest made;
    Faults::Trip trip{};
    absl::Status status{};
    writes::AnswerKind answer = writes::AnswerKind::kNone;
    std::string body{};  // of the answer; empty if nothing came back
  };

  // It reaches the API server, even if who sent it is gone by then.
  void Send(const std::shared_ptr<Write>& write) {
    using Fate = Faults::Trip::Fate;
    write->status = absl::UnavailableError("the connection broke");
    if (write->trip.fate == Fate::kRefused) {
      write->status = kube::ToStatus({.status = write->trip.refusal});
    } else if (write->trip.fate != Fate::kLost && !LosesWrite(write->kind)) {
      const kube::Response response = server.Handle(write->made.request);
      write->status = kube::ToStatus(response);
      if (response.status == 404) {
        missed_at = now;
        missed = fmt::format("{} {}", write->kind, write->made.request.path);
      }
      if (options.lose_answer && options.lose_answer(write->kind)) {
        write->status = absl::UnavailableError("the connection broke before the answer");
      } else if (write->trip.fate == Fate::kUnanswered) {
        write->status = absl::DeadlineExceededError("no answer came in time");
      } else if (response.ok()) {
        write->answer = write->made.answer;
        write->body = response.body;
      }
    }
    if (write->trip.back == absl::ZeroDuration()) return Receive(write);
    At(now + write->trip.back, [this, write] { Receive(write); });
  }

  // "workload/of-NAME" is that of PodGroup or pod NAME: its own name ends with a hash.
  void FindWorkload(kube::Request* request) {
    constexpr std::string_view kOf = "/workloads/of-";
    const size_t of = request->path.find(kOf);
    if (of == std::string::npos) return;
    const std::string owner = request->path.substr(of + kOf.size());
    kube::Request list;
    list.path = request->path.substr(0, of) + "/workloads";
    const json all = json::parse(server.Handle(list).body);
    for (const json& workload : all.at("items")) {
      const json& metadata = workload.at("metadata");
      if (metadata.at("ownerReferences").at(0).at("name") != owner) continue;
      request->path = list.path + "/" + metadata.at("name").get<std::string>();
      return;
    }
  }

  void Receive(const std::shared_ptr<Write>& write) {
    if (write->generation != generation) return;
    if (write->status.ok()) return Finish(*write);
    // Why it failed is read from the object, as it is now; what it says may be old when it comes.
    const kube::Response read = server.Handle(write->made.read_back);
    if (read.ok()) {
      write->answer = write->made.read_back_answer;
      write->body = read.body;
    }
    if (!faults.Active(now)) return Finish(*write);
    const Faults::Trip trip = faults.OfWrite(write->kind);
    if (trip.fate != Faults::Trip::Fate::kCarriedOut) write->body.clear();
    At(now + trip.there + trip.back, [this, write] {
      if (write->generation == generation) Finish(*write);
    });
  }

  void Finish(const Write& write) {
    if (!write.body.empty()) Observe(write.answer, write.body);
    engine->Finish(write.id, write.status, now);
  }

  bool LosesWrite(std::string_view kind) {
    bool lost = options.lose_write && options.lose_write(kind);
    for (Loss& loss : losses) {
      if (loss.kind == kind && now < loss.until) lost |= loss.passing-- <= 0;
    }
    return lost;
  }

  // What the embedded server answered can be decoded.
  void Observe(writes::AnswerKind kind, const std::string& body) {
    if (kind != writes::AnswerKind::kNone) writes::ObservationOf(kind, body)(*engine);
  }

  bool StepMuster() {
    if (peers != nullptr) return peers->kueue.Tick(now);
    bool moved = false;
    engine->AdvanceTo(now);
    for (Feed& feed : feeds) moved |= feed.Read(now);
    moved |= Arrive();
    // As the service does at any time: not only once a step has looked at what was observed.
    if (moved) {
      std::vector<v1::Queue> queues;
      engine->DescribeQueues(&queues);
    }
    coscheduling::StepOutput out = engine->Step(now);
    for (auto& [uid, answer] : out.filter_answers) {
      if (answer) {
        answers[uid] = *answer;
      } else {
        answers.erase(uid);
      }
    }
    for (const coscheduling::DecisionNote& note : out.notes) {
      if (options.observer != nullptr) options.observer->OnDecision(note, now);
      timeline.push_back(fmt::format("{:>8} {} {} {} {}", absl::FormatDuration(now - start),
                                     note.gang.ToString(), v1::GangState_Name(note.state),
                                     v1::ReasonCode_Name(note.reason), note.message));
    }
    invariants.Show(out);
    for (const coscheduling::NumberedAction& action : out.actions) CarryOut(action);
    return moved || !out.actions.empty() || !out.filter_answers.empty();
  }

  // Everything that can happen at this moment.
  void Settle() {
    for (int round = 0; round < kMaxRounds; ++round) {
      const uint64_t revision = server.revision();
      karpenter.Tick(now);
      kubelet.Tick(now);
      bool moved = StepMuster();
      if (standalone) {
        volumes.Tick(now);
      } else {
        scheduler.Tick(now);
      }
      moved |= StepMuster();
      if (!moved && server.revision() == revision) return;
    }
    broken = absl::InternalError(
        fmt::format("nothing comes to rest at {}", absl::FormatDuration(now - start)));
  }

  absl::Time NextEvent() const {
    const absl::Time muster = peers == nullptr ? engine->NextWake() : absl::InfiniteFuture();
    absl::Time arrival = under_way.empty() ? absl::InfiniteFuture() : under_way.begin()->first;
    for (const Feed& feed : feeds) arrival = std::min(arrival, feed.NextArrival());
    const absl::Time binding = standalone ? volumes.NextWake() : scheduler.NextWake();
    return std::min({muster, karpenter.NextWake(), kubelet.NextWake(), binding, arrival});
  }

  // A request from outside, through the webhooks of Muster's peers: what a scenario creates has
  // been through Muster's.
  kube::Response Handle(kube::Request request) {
    if (peers != nullptr && request.method == kube::Method::kPost &&
        absl::EndsWith(request.path, "/pods")) {
      json pod = WithoutGate(json::parse(request.body));
      peers->kueue.AdmitPod(&pod);
      request.body = pod.dump();
    }
    if (!engine->NeedsGate() && request.method == kube::Method::kPost &&
        absl::EndsWith(request.path, "/pods")) {
      request.body = WithoutGate(json::parse(request.body)).dump();
    }
    return server.Handle(request);
  }

  void CheckInvariants() {
    if (!broken.ok()) return;
    broken = invariants.Check(*engine, now);
    if (broken.ok()) broken = CheckHeldBinds();
    if (!broken.ok()) {
      broken = absl::FailedPreconditionError(fmt::format(
          "at {}: {}", absl::FormatDuration(now - start), std::string(broken.message())));
    }
  }

  // kube-scheduler keeps the node taken for as long as its bind call is held.
  absl::Status CheckHeldBinds() const {
    for (const auto& [id, held] : binds) {
      if (now - held.since <= scenario.options.bind_wait) continue;
      return absl::FailedPreconditionError(
          fmt::format("the bind call for pod {} has been held for {}, longer than {}", held.pod_uid,
                      absl::FormatDuration(now - held.since),
                      absl::FormatDuration(scenario.options.bind_wait)));
    }
    return absl::OkStatus();
  }

  struct HeldBind {
    std::string pod_uid;
    absl::Time since;
    BindDone done;
  };

  // A LoseWritesStep under way.
  struct Loss {
    std::string kind;
    int passing = 0;
    absl::Time until;
  };

  const Scenario scenario;
  const WorldOptions options;
  const bool standalone =
      scenario.mode == Mode::kAny ? options.standalone : scenario.mode == Mode::kStandalone;
  const absl::Time start = ScenarioStart();
  absl::Time now = ScenarioStart();
  kube::embedded::ApiServer server;
  kube::simulators::KarpenterSimulator karpenter;
  kube::simulators::KubeletSimulator kubelet;
  const std::unique_ptr<Peers> peers;              // null: Muster
  kube::simulators::SchedulerSimulator scheduler;  // unless standalone
  kube::simulators::VolumeSimulator volumes;       // only then: beside it none binds volumes
  std::unique_ptr<Engine> engine;
  std::vector<Feed> feeds;
  std::map<std::string, FilterAnswer> answers;
  std::map<uint64_t, HeldBind> binds;
  uint64_t next_bind = 0;
  int generation = 0;
  std::vector<std::string> timeline;
  Faults faults;
  Invariants invariants;
  std::vector<Loss> losses;
  std::map<std::string, absl::Time> hidden;       // by a HideNodeStep: node -> until
  std::map<std::string, absl::Time> bind_delays;  // by a DelayBindsStep: "namespace/name" -> until
  std::multimap<absl::Time, std::function<void()>> under_way;
  // The latest write of Muster's to something that isn't there.
  absl::Time missed_at = absl::InfinitePast();
  std::string missed;
  std::map<std::string, int> asked;  // actions, by kind
  absl::Status broken;
};

World::World(const Scenario& scenario, WorldOptions options)
    : state_(std::make_unique<State>(scenario, std::move(options))) {
  for (const Manifest& manifest : ClusterManifests(scenario)) {
    const kube::Response response = state_->server.Handle(CreateRequest(manifest));
    if (!response.ok()) state_->broken = kube::ToStatus(response);
  }
  if (WorldObserver* observer = state_->options.observer) {
    observer->OnStart(&state_->server, state_->start);
  }
  state_->StartMuster();
}

World::~World() {
  if (WorldObserver* observer = state_->options.observer) observer->OnEnd();
}

absl::Time World::start() const { return state_->start; }
absl::Time World::now() const { return state_->now; }
absl::Time World::next_event() const { return state_->NextEvent(); }
const absl::Status& World::broken_invariant() const { return state_->broken; }
const std::vector<std::string>& World::timeline() const { return state_->timeline; }
double World::kept_idle_gpu_seconds() const {
  return state_->engine->TakeStats().reserved_idle_gpu_seconds;
}
const Engine& World::engine() const { return *state_->engine; }
kube::Response World::Call(const kube::Request& request) { return state_->Handle(request); }

void World::Restart() {
  if (state_->peers != nullptr) return;
  if (WorldObserver* observer = state_->options.observer) observer->OnRestart(state_->now);
  state_->timeline.push_back(
      fmt::format("{:>8} muster restarts", absl::FormatDuration(state_->now - state_->start)));
  state_->StartMuster();
}

absl::Status World::Perform(const Action& action) {
  if (std::holds_alternative<RestartStep>(action)) {
    Restart();
    return absl::OkStatus();
  }
  if (const auto* loss = std::get_if<LoseWritesStep>(&action)) {
    state_->losses.push_back({loss->kind, loss->after, state_->now + loss->duration});
    return absl::OkStatus();
  }
  if (const auto* hide = std::get_if<HideNodeStep>(&action)) {
    state_->hidden[hide->node] = state_->now + hide->duration;
    return absl::OkStatus();
  }
  if (const auto* delay = std::get_if<DelayBindsStep>(&action)) {
    state_->bind_delays[Key(delay->pod)] = state_->now + delay->duration;
    return absl::OkStatus();
  }
  const auto call = [this](const kube::Request& request) { return Call(request); };
  if (const auto* turn = std::get_if<ReconcileStep>(&action)) {
    return Reconcile(*turn, state_->scenario.options.scheduler_name, call, state_->now);
  }
  if (const auto* abandon = std::get_if<AbandonStep>(&action)) return Abandon(*abandon);
  absl::StatusOr<std::vector<kube::Request>> requests =
      RequestsOf(action, state_->scenario.options.scheduler_name);
  if (!requests.ok()) return requests.status();
  for (kube::Request& request : *requests) {
    if (absl::Status status = FillOwnerUids(&request, call); !status.ok()) return status;
    state_->FindWorkload(&request);
    const kube::Response response = state_->Handle(request);
    const bool namespace_exists = response.status == 409 && request.path == "/api/v1/namespaces";
    if (!response.ok() && !namespace_exists) return kube::ToStatus(response);
    state_->invariants.Note(request);
  }
  return absl::OkStatus();
}

absl::Status World::Abandon(const AbandonStep& step) {
  const std::string gang = step.name_space + "/" + step.name;
  std::vector<std::string> objects = {"podgroup/" + gang};
  for (int i = 0; i < step.members; ++i) {
    objects.push_back(fmt::format("pod/{}-{}", gang, i));
    const absl::StatusOr<std::string> path = ObjectPath(objects.back());
    if (!path.ok()) return path.status();
    kube::Request get;
    get.path = *path;
    const kube::Response pod = state_->server.Handle(get);
    // One that is gone had been there: the gang is over, or its user was here before.
    if (!pod.ok() || json::parse(pod.body).at("spec").contains("nodeName")) return absl::OkStatus();
  }
  for (std::string& object : objects) {
    if (absl::Status status = Perform(DeleteStep{std::move(object)}); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool World::RunUntil(absl::Time time, const std::function<bool()>& until) {
  State& s = *state_;
  for (;;) {
    s.Settle();
    if (s.options.observer != nullptr) s.options.observer->OnMoment(s.now);
    s.CheckInvariants();
    if (!s.broken.ok()) return false;
    if (until && until()) return true;
    if (s.now >= time) return until == nullptr;
    s.now = std::max(s.now + absl::Milliseconds(1), std::min(time, s.NextEvent()));
  }
}

absl::Status World::Check(const Expectation& expected) const {
  const State& s = *state_;
  Expectation want = expected;
  if (!s.engine->NeedsGate()) want.gated.reset();
  const std::string asked = absl::StrJoin(s.asked, ", ", absl::PairFormatter(" "));
  if (want.writes && *want.writes != asked)
    return absl::FailedPreconditionError("writes: " + asked);
  absl::Status status = Compare(want, Key(want.gang), state_->server, *s.engine);
  if (!status.ok() || !want.settled || s.now - s.missed_at > kMissed) return status;
  return absl::FailedPreconditionError("left over: what is gone is written to: " + s.missed);
}

namespace {

// What became of one step; nullopt if all is well.
std::optional<StepFailure> RunStep(World* world, const Step& step) {
  using Kind = StepFailure::Kind;
  const auto broken = [&] { return StepFailure{&step, Kind::kBroken, world->broken_invariant()}; };
  world->RunUntil(world->start() + step.at);
  if (!world->broken_invariant().ok()) return broken();
  const auto* want = std::get_if<Expectation>(&step.action);
  if (want == nullptr) {
    absl::Status status = world->Perform(step.action);
    if (status.ok() || step.may_be_refused) return std::nullopt;
    return StepFailure{&step, Kind::kRefused, std::move(status)};
  }
  if (want->within) {
    world->RunUntil(world->start() + step.at + *want->within,
                    [&] { return world->Check(*want).ok(); });
    if (!world->broken_invariant().ok()) return broken();
  }
  absl::Status status = world->Check(*want);
  if (status.ok()) return std::nullopt;
  return StepFailure{&step, Kind::kUnexpected, std::move(status)};
}

}  // namespace

void RunSteps(World* world, const Scenario& scenario, absl::Duration until,
              const std::function<bool(const StepFailure&)>& on_failure) {
  for (const Step& step : scenario.steps) {
    if (step.at > until) return;
    const std::optional<StepFailure> failure = RunStep(world, step);
    if (!failure) continue;
    if (!on_failure(*failure) || failure->kind != StepFailure::Kind::kUnexpected) return;
  }
}

absl::Status RunScenario(const Scenario& written, WorldOptions options) {
  const Scenario scenario = Drawn(written, options.seed);
  World world(scenario, std::move(options));
  absl::Status result;
  RunSteps(&world, scenario, absl::InfiniteDuration(), [&](const StepFailure& failure) {
    std::string text = fmt::format("{}:{}: {}", scenario.file, failure.step->line,
                                   std::string(failure.status.message()));
    for (const std::string& line : world.timeline()) text += "\n" + line;
    result = absl::FailedPreconditionError(text);
    return false;
  });
  return result;
}

}  // namespace muster::simulation
