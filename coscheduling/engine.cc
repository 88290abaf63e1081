// The order of a step.

#include "coscheduling/engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "coscheduling/owners.h"
#include "muster/v1/admission.pb.h"
#include "quota/topology_levels.h"

namespace muster::coscheduling {
namespace {

// What one gang's decision says of another is followed up within the step, so often at most.
constexpr int kRounds = 4;

}  // namespace

Engine::Owners::Owners(EngineOptions engine_options)
    : options(std::move(engine_options)),
      outbox(&agenda),
      gangs(options, snapshot, &agenda, &outbox),
      records(&agenda, &outbox),
      attempts(
          options, records, [this](const Gang& gang) { return provisioning.DeadlineOf(gang); },
          [this](const Gang& gang) { return restarts.TriedBefore(gang); }, agenda),
      workloads(options, gangs, &agenda, &outbox),
      common(options, snapshot, gangs, records, &agenda, &outbox),
      quota(common, &records, &workloads, attempts),
      suspects(options.suspect_time),
      placeability(common, quota,
                   [this](const Gang& gang, const kube::ResourceFlavor& flavor) {
                     return attempts.TriedUntil(gang, flavor);
                   }),
      placement(
          common, &snapshot, &quota, suspects,
          [this](const Gang& gang) { return provisioning.CapacityOf(gang); },
          [this](const Gang& gang) { return provisioning.MayBuy(gang); }),
      provisioning(common, quota, placeability, &placement,
                   [this](const Gang& gang) { return restarts.MayUseAnotherFlavor(gang); }),
      holds(common, placement),
      commit(common, &placement),
      restarts(common, workloads, &quota, placement, &placeability, provisioning),
      job_starts(common, workloads, quota),
      repair(common, &restarts),
      suspect_marks(common, &suspects),
      report({options, snapshot, gangs, records, quota, placement, suspects, placeability,
              provisioning, holds, commit, repair, restarts, job_starts},
             &agenda, &outbox),
      queue_report(options, quota, report, &agenda, &outbox) {
  snapshot.SetProfile(options.profile);
}

void Engine::Owners::Refresh(const Gang& gang) {
  records.Read(gang);
  quota.Read(gang);
  gangs.Read(gang.id, records.WholeWith(gang));
  gangs.Lose(gang.id, repair.Find(gang));
  commit.Sync(gang);
  restarts.FindFallback(gang);
  Reason blocker = restarts.Blocker(gang);
  if (blocker.code == v1::REASON_UNSPECIFIED) {
    blocker = gangs.Blocker(gang, quota.AsksBySpec(gang),
                            quota::WhyNoLevel(quota.scheduler(), gang.topology));
  }
  if (blocker.code == v1::REASON_UNSPECIFIED) blocker = commit.Blocker(gang);
  gangs.Block(gang.id, std::move(blocker));
  GangFacts facts = gang.facts;
  const AdmissionRecord* record = records.CurrentOf(gang);
  const bool recorded = record != nullptr;
  facts.bound_before = recorded && record->bound_at;
  facts.backing_off = recorded && provisioning.BacksOff(gang);
  if (facts.backing_off) agenda.NoteAt(gang.id, provisioning.RetryAt(gang));
  const Eviction* eviction = quota.EvictionOf(gang);
  facts.evicting = eviction != nullptr && !eviction->surplus_only;
  facts.without_quota = !quota.IsUnderQuota(gang);
  const bool quota_there = !quota.IsUnderQuota(gang) || quota.Holds(gang) || !gang.bound.empty();
  facts.waits_for_room = quota.IsUnderQuota(gang) && quota.WaitsForRoom(gang);
  facts.admitted = recorded && !gang.unmade && !record->retry_after && !facts.evicting &&
                   !facts.waits_for_room && record->identity == options.identity && quota_there &&
                   !quota.IsOfQuotaBefore(gang, *record);
  gangs.Settle(gang.id, facts);
  if (facts.blocked || !facts.admitted) provisioning.Stop(gang);
  const bool under_way = commit.IsUnderWay(gang) || !placement.Of(gang).fixed.empty();
  facts.infeasible = placeability.Judge(gang, under_way);
  gangs.Settle(gang.id, facts);
}

bool Engine::Owners::IsUndecided(const Gang& gang) const {
  return gang.ours && !gang.facts.admitted && !gang.facts.blocked && !gang.facts.backing_off &&
         !gang.facts.waits_for_quota && !gang.facts.evicting && !gang.facts.infeasible &&
         !gang.unbound.empty();
}

void Engine::Owners::GiveUp(const Gang& gang, absl::Time retry_after, std::optional<Reason> why) {
  AdmissionRecord record =
      attempts.GiveUp(gang, retry_after, std::move(why), restarts.FailedWith(gang));
  restarts.NoteFallback(gang, &record);
  records.Write(gang, record);
  quota.GiveUp(gang);
}

void Engine::Owners::Enter(const Gang& gang) {
  const Places& places = placement.Of(gang);
  gangs.SettlePlaces(
      gang.id, static_cast<int64_t>(places.fixed.size()) >= std::max<int64_t>(1, gang.required()),
      commit.IsUnderWay(gang));
  const v1::GangState before = gang.state;
  gangs.Enter(gang.id, NextState(gang.facts));
  repair.Follow(gang, before);
  if (gang.state == v1::BOUND && before != v1::BOUND) {
    provisioning.Succeed(gang);
    commit.Sync(gang);
  }
  report.Tell(gang, before);
}

void Engine::Owners::Decide(const Gang& gang) {
  if (!gang.ours) return;
  GangFacts facts = gang.facts;
  facts.waits_for_quota = !facts.admitted && quota.IsAsked(gang);
  gangs.Settle(gang.id, facts);
  if (auto verdict = provisioning.DecideDeadline(gang, commit.IsPosted(gang))) {
    if (verdict->pause) {
      ++gave_up;
      GiveUp(gang, agenda.now() + *verdict->pause, std::move(verdict->why));
    } else {
      quota.ReleaseUntilRoom(gang);
    }
  }
  restarts.Evict(gang, commit.IsPosted(gang));
  placement.EvictSurplus(gang);
  restarts.Decide(gang);
  job_starts.Decide(gang);
  Enter(gang);
  quota.GiveFlavors(gang);
  const bool zoned = provisioning.GiveZone(gang);
  provisioning.Signal(gang, IsUndecided(gang) || !zoned);
  commit.Nominate(gang);
  commit.LiftGates(gang);
  commit.Answer(gang, report.ReasonOf(gang).message);
  commit.Advance(gang);
  repair.Decide(gang);
  Enter(gang);
  if (const auto record = repair.Remember(gang)) {
    const bool is_start = gang.state == v1::BOUND && !records.Of(gang)->repairing_since;
    is_start ? records.Note(gang, *record) : records.Write(gang, *record);
  }
  records.WriteNoted(gang);
  report.WriteStatus(gang);
  if (!options.standalone) report.AnswerFilters(gang);
  holds.Want(gang, IsUndecided(gang));
}

void Engine::Owners::ObserveJournal() {
  const cluster::Journal journal = snapshot.TakeJournal();
  // What some may have by their priority is offered to all.
  const cluster::NominationsFor counted(&snapshot, cluster::NominationsFor::kNone);
  if (!journal.empty()) {
    provisioning.Observe(journal);
    repair.Observe(journal);
    holds.Observe(journal);
    commit.Observe(journal);
    suspect_marks.Observe(journal);
    quota.Observe(journal);
    placeability.Observe(journal);
    placement.Observe(journal);
    report.Observe(journal);
  }
  for (const std::string& node : suspect_marks.Update()) {
    placement.Reconsider(node);
    report.NoteSuspect(node);
  }
}

void Engine::Owners::Step(StepOutput* out) {
  agenda.BeginStep();
  if (synced) ObserveJournal();
  if (!synced || !leading) {
    commit.AnswerAll(synced ? "muster is not leading" : "muster's caches have not synced");
    report.RetractAnswers();
    report.Fill(out);
    out->actions = outbox.Take();
    return;
  }
  gangs.Expire();
  const Placeability::Changes changes = placeability.Refresh();
  if (changes.flavors) quota.Invalidate();
  if (changes.pools) report.NotePools();
  for (GangId id : changes.gangs) {
    if (const Gang* gang = gangs.Find(id)) quota.Invalidate(*gang);
  }
  restarts.KeepGoing();

  // In order of their names, so that equal histories decide alike.
  std::map<GangKey, const Gang*> touched;
  const auto take = [&](const absl::flat_hash_set<GangId>& ids) {
    std::map<GangKey, const Gang*> taken;
    for (GangId id : ids) {
      if (const Gang* gang = gangs.Find(id)) taken.emplace(gang->key, gang);
    }
    touched.insert(taken.begin(), taken.end());
    return taken;
  };
  for (int round = 0; round < kRounds; ++round) {
    const auto taken = take(agenda.Take());
    if (taken.empty() && round > 0) break;
    for (const auto& [key, gang] : taken) {
      Refresh(*gang);
      quota.Sync(*gang, {.posted = commit.IsPosted(*gang),
                         .remade = restarts.WasRemade(*gang),
                         .fits_now = placement.Of(*gang).fits_now});
      gangs.KeepGroup(*gang);
      if (gang->facts.infeasible && gang->facts.admitted) GiveUp(*gang, agenda.now(), {});
      if (!restarts.AwaitsWorkload(*gang)) quota.Admit(*gang, placement.Of(*gang).fits_now);
    }
    quota.Schedule([this](const Gang& gang, const quota::Workload& workload,
                          const quota::PodSet& set, const kube::ResourceFlavor& flavor) {
      std::string why = placement.WhyNoRoom(gang);
      return why.empty() ? placeability.WhyNotPlaceable(gang, workload, set, flavor) : why;
    });
  }
  for (const auto& [key, gang] : touched) {
    if (placement.Sync(*gang)) continue;
    commit.Fail(*gang, "the plan no longer holds; a new one is being made");
  }
  placement.PlanWaiting();
  if (placement.TakeReservationsChanged()) report.NoteReservations();
  provisioning.CountOn(placement.TakePlanned());
  take(agenda.TakeNoted());
  for (const auto& [key, gang] : touched) Decide(*gang);
  holds.Reconcile();
  provisioning.WithdrawNodes();
  suspect_marks.Reconcile();
  for (GangId gang : placement.TakeFitting()) agenda.Note(gang);
  take(agenda.TakeShown());
  for (const auto& [key, gang] : touched) report.Show(*gang);
  out->queues_changed = quota.TakeQueuesChanged();
  queue_report.Write(out->queues_changed);
  report.Fill(out);
  outbox.EndStep();
  out->actions = outbox.Take();
}

Engine::Engine(EngineOptions options) : owners_(std::make_unique<Owners>(std::move(options))) {}
Engine::~Engine() = default;

void Engine::AdvanceTo(absl::Time now) { owners_->agenda.AdvanceTo(now); }

void Engine::SetSynced() { owners_->synced = true; }

void Engine::SetLeading(bool leading) {
  if (owners_->leading == leading) return;
  owners_->leading = leading;
  owners_->BeginTerm();
}

void Engine::Owners::BeginTerm() {
  workloads.BeginTerm();
  for (const auto& [key, gang] : gangs.all()) {
    // What was decided in an earlier term and isn't reserved is void.
    quota.Withdraw(gang.id);
    agenda.Note(gang.id);
  }
}

void Engine::SetGatingActive(bool active) {
  Owners& owners = *owners_;
  if (!owners.report.SetGatingActive(active)) return;
  for (const auto& [key, gang] : owners.gangs.all()) owners.agenda.Note(gang.id);
}

bool Engine::NeedsGate() const {
  const Owners& owners = *owners_;
  return !owners.options.standalone || !owners.synced || !owners.placeability.pools().empty();
}

void Engine::CloseQuota(quota::Wait why) {
  owners_->quota.Close(std::move(why));
  for (const auto& [key, gang] : owners_->gangs.all()) owners_->agenda.Note(gang.id);
}

void Engine::RequestBind(uint64_t request, std::string_view pod_uid, std::string_view node,
                         absl::Time now) {
  Owners& owners = *owners_;
  owners.agenda.AdvanceTo(now);
  const std::string uid(pod_uid);
  const Gang* gang = owners.gangs.OfPod(uid);
  if (gang == nullptr) {
    owners.outbox.Tell(AnswerBind{request, "pod " + uid + " is not known to muster yet"});
  } else {
    owners.commit.Request(request, *gang, uid, std::string(node));
  }
}

void Engine::RefusePlannedNode(std::string_view pod_uid, std::string_view node,
                               const std::vector<std::string>& offered, absl::Time now) {
  Owners& owners = *owners_;
  owners.agenda.AdvanceTo(now);
  const Gang* gang = owners.gangs.OfPod(std::string(pod_uid));
  if (gang == nullptr) return;
  owners.placement.Refuse(*gang, std::string(pod_uid), std::string(node), offered);
}

void Engine::Finish(uint64_t action_id, const absl::Status& status, absl::Time now) {
  owners_->agenda.AdvanceTo(now);
  owners_->outbox.Finish(action_id, status);
}

StepOutput Engine::Step(absl::Time now) {
  StepOutput output;
  owners_->agenda.AdvanceTo(now);
  if (owners_->workloads.MustBeginTerm()) owners_->BeginTerm();
  owners_->Step(&output);
  return output;
}

absl::Time Engine::NextWake() const {
  const Owners& owners = *owners_;
  return owners.synced && owners.leading ? owners.agenda.NextWake() : absl::InfiniteFuture();
}

bool Engine::Describe(const GangKey& key, v1::Gang* gang) const {
  const Gang* found = owners_->gangs.Find(key);
  if (found == nullptr || !found->ours) return false;
  owners_->report.Describe(*found, gang);
  return true;
}

std::vector<GangKey> Engine::Gangs() const {
  std::vector<GangKey> keys;
  for (const auto& [key, gang] : owners_->gangs.all()) {
    if (gang.ours) keys.push_back(key);
  }
  return keys;
}

void Engine::DescribeNodes(std::vector<v1::Node>* nodes) const {
  owners_->report.DescribeNodes(nodes);
}

void Engine::DescribeQueues(std::vector<v1::Queue>* queues) const {
  owners_->queue_report.DescribeQueues(queues);
}

void Engine::DescribeFlavors(std::vector<v1::Flavor>* flavors) const {
  owners_->queue_report.DescribeFlavors(flavors);
}

const cluster::Snapshot& Engine::snapshot() const { return owners_->snapshot; }

EngineStats Engine::TakeStats() {
  Owners& owners = *owners_;
  Report::Moments moments = owners.report.TakeMoments();
  return {.passes = owners.placement.passes(),
          .plans = owners.placement.plans(),
          .gangs_bound = owners.report.gangs_bound(),
          .gangs_backed_off = owners.gave_up,
          .gangs_restarted = owners.repair.evicted() + owners.restarts.restarted(),
          .gangs_preempted = owners.placement.preempted_gangs(),
          .surplus_preempted = owners.placement.preempted_surplus(),
          .reserved_idle_gpu_seconds =
              owners.placement.reservations().idle_gpu_seconds(owners.agenda.now()),
          .reservations = owners.placement.reservations().in_force(),
          .gangs = owners.gangs.all().size(),
          .in_flight = owners.outbox.in_flight(),
          .held_binds = owners.commit.held_binds(),
          .pod_refusals = owners.gangs.refusals().size(),
          .pod_refusals_dropped = owners.gangs.refusals().dropped(),
          .bind_latencies = std::move(moments.bind_latencies),
          .state_times = std::move(moments.state_times)};
}

}  // namespace muster::coscheduling
