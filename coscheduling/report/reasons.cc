// Why each state: one function for each that has more than one reason.

#include <algorithm>

#include "cluster/zones.h"
#include "coscheduling/report/report.h"
#include "fmt/format.h"
#include "kube/objects/excerpt.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

constexpr size_t kShown = 3;
constexpr size_t kShownComing = 4;

// As it was written down, so that it stays as it is whatever happens meanwhile; only the next
// attempt comes later where others are refused the same.
Reason BackoffReason(const AdmissionRecord& record, absl::Time retry_at) {
  Reason why = record.given_up.value_or(Reason{v1::DEADLINE_EXCEEDED, "", ""});
  const absl::Duration waited = record.deadline - record.admitted_at;
  why.message = fmt::format(
      "nodes for all members didn't come within {} (attempt {}){}{}; next "
      "attempt at {}",
      absl::FormatDuration(absl::Trunc(waited + absl::Milliseconds(500), absl::Seconds(1))),
      record.attempt, why.message.empty() ? "" : ": ", why.message, kube::ClockText(retry_at));
  return why;
}

// `error`: the last refusal of its admission record.
Reason RecordReason(const std::string& error, std::string_view pending) {
  if (error.empty()) return {v1::RECORD_PENDING, std::string(pending), ""};
  return {v1::RECORD_FAILED, "the admission record is refused: " + error,
          "check muster's permission to patch podgroups"};
}

static_assert(static_cast<int>(quota::WaitCode::kQueueNotFound) == v1::QUEUE_NOT_FOUND &&
              static_cast<int>(quota::WaitCode::kAnotherKueue) == v1::ANOTHER_KUEUE);
v1::ReasonCode CodeOf(quota::WaitCode code) {
  if (code == quota::WaitCode::kNone) return v1::QUOTA_IN_USE;
  return static_cast<v1::ReasonCode>(code);
}

}  // namespace

Reason Report::ComingReason(const Gang& gang) const {
  const Places& places = from_.placement.Of(gang);
  std::set<std::string> nodes;
  for (const auto& [uid, place] : places.tentative) nodes.insert(place);
  size_t usable = 0;
  std::vector<std::string> waiting;
  for (const std::string& place : nodes) {
    const cluster::NodeInfo* info = from_.snapshot.FindNode(place);
    if (info == nullptr) continue;
    if (info->UsableNow()) {
      ++usable;
      continue;
    }
    const std::string& message = info->readiness.message;
    waiting.push_back(message.empty() ? info->name()
                                      : fmt::format("{} ({})", info->name(), message));
  }
  return {v1::NODES_COMING,
          fmt::format("{} of {} nodes usable; waiting for {}", usable, nodes.size(),
                      kube::FirstFew(waiting, kShownComing)),
          ""};
}

Reason Report::ProvisioningReason(const Gang& gang) const {
  const Places& places = from_.placement.Of(gang);
  if (from_.quota.Holds(gang)) {
    const auto lacking = std::ranges::count_if(gang.unbound, [&](const std::string& uid) {
      return !from_.quota.UncountedOf(gang).contains(uid) && !from_.quota.MayBePlaced(gang, uid);
    });
    const auto beyond = std::ranges::count_if(gang.unbound, [&](const std::string& uid) {
      return !from_.quota.UncountedOf(gang).contains(uid) &&
             from_.quota.GivenTo(gang, *from_.snapshot.FindPod(uid)) == nullptr;
    });
    if (beyond > 0) {
      return {v1::QUOTA_TOO_SMALL,
              fmt::format("{} members ask for more than was reserved for them by their templates, "
                          "by a LimitRange's defaults for example",
                          beyond),
              "write what they ask for into the job's pod templates"};
    }
    if (lacking > 0) {
      const std::string& error = from_.quota.FlavorsErrorOf(gang);
      return {v1::FLAVORS_PENDING,
              fmt::format("{} members are being given the nodeSelector and tolerations of their "
                          "flavors{}{}",
                          lacking, error.empty() ? "" : "; the last attempt failed: ", error),
              ""};
    }
    if (gang.facts.terminating && !from_.quota.UncountedOf(gang).empty()) {
      return {v1::QUOTA_IN_USE,
              fmt::format("{} members wait for those that are going away, which use the gang's "
                          "quota until they have ended",
                          from_.quota.UncountedOf(gang).size()),
              ""};
    }
  }
  if (places.min_resources_short) {
    return {v1::MIN_RESOURCES_SHORT,
            fmt::format("spec.minResources asks for {} to be free in the cluster",
                        gang.group->min_resources->ToString()),
            "lower spec.minResources, or wait for capacity"};
  }
  if (!places.awaits.empty()) {
    return {v1::PREEMPTING,
            "room for it is kept until those have gone who stand there: " + places.awaits, ""};
  }
  std::optional<Reason> setback = from_.provisioning.SetbackReason(gang, /*all=*/false);
  if (places.coming_suffices) return setback ? *std::move(setback) : ComingReason(gang);
  if (setback) return *std::move(setback);
  if (from_.provisioning.IsBeyondLimits(gang)) return from_.provisioning.LimitReason(gang);
  return CapacityReason(gang, from_.provisioning.IsSignalled(gang) ? "; nodes were asked for" : "");
}

std::string Report::WhereText(const Gang& gang) const {
  if (from_.placement.Of(gang).shortfall.required.empty()) return "";
  return fmt::format(" in one {}, which {} requires", gang.topology.required,
                     gang.topology.because);
}

std::string Report::ReservationText(const Gang& gang) const {
  std::string text;
  const cluster::Reservation* own = from_.placement.ReservedFor(gang);
  if (own != nullptr) text = "; " + own->ToString();
  for (const cluster::Reservation* one : from_.placement.KeptFrom(gang)) {
    text += "; " + one->ToStringForOthers();
  }
  return text;
}

Reason Report::CapacityReason(const Gang& gang, std::string_view meanwhile) const {
  const PlanShortfall& shortfall = from_.placement.Of(gang).shortfall;
  const bool first = from_.placement.ReservedFor(gang) != nullptr;
  Reason reason = {first ? v1::NODES_RESERVED : v1::CAPACITY_SHORT,
                   fmt::format("{} of {} members have room{}{}: {}{}", shortfall.placeable,
                               gang.unbound.size(), WhereText(gang),
                               std::string(meanwhile) +
                                   cluster::NodeSourcesText(from_.restarts.NodeSourcesOf(gang)),
                               ShortfallText(shortfall), ReservationText(gang)),
                   ""};
  AddSuspects(gang, &reason);
  if (!shortfall.contradiction.empty()) {
    reason.message += "; the nodes' labels form no tree: " + shortfall.contradiction;
    reason.fix = "correct the labels of these nodes";
  }
  const Feasibility* feasibility = from_.placeability.Of(gang);
  if (feasibility != nullptr && feasibility->refusal) {
    reason.message += "; as far as is known, " + feasibility->refusal->why;
    reason.fix = feasibility->refusal->fix;
  }
  return reason;
}

Reason Report::ReadyReason(const Gang& gang) const {
  const Places& places = from_.placement.Of(gang);
  size_t gated = 0;
  for (const auto& [uid, node] : places.fixed) gated += IsGatedByUs(*from_.snapshot.FindPod(uid));
  const std::string all =
      fmt::format("{} members have places on usable nodes", places.fixed.size());
  if (gated > 0) {
    return {v1::GATES_LIFTING, fmt::format("{}; {} gates are being lifted", all, gated), ""};
  }
  if (from_.commit.AwaitsPreBind(gang)) {
    return {v1::WAITING_FOR_VOLUMES,
            fmt::format("{}; waiting for {}", all,
                        from_.options.standalone ? "volumes to be made on their nodes"
                                                 : "kube-scheduler to bind volumes"),
            ""};
  }
  if (!from_.placement.RefusedBy(gang).left_out().empty()) {
    return {v1::PLAN_REFUSED,
            fmt::format("{}; kube-scheduler refused {}", all,
                        from_.placement.RefusedBy(gang).left_out().begin()->first),
            ""};
  }
  if (const std::string& error = from_.commit.ErrorOf(gang); from_.options.standalone) {
    if (error.empty()) return {v1::GATES_LIFTING, all + "; their bindings are next", ""};
    return {v1::PLAN_REFUSED, fmt::format("{}; {}", all, error), ""};
  }
  return {v1::WAITING_FOR_SCHEDULER, all + "; waiting for kube-scheduler to ask for the bindings",
          ""};
}

Reason Report::FindReason(const Gang& gang) const {
  const int64_t standing = gang.facts.bound + gang.facts.succeeded;
  const int64_t min = gang.facts.min_member;
  switch (gang.state) {
    case v1::WAITING_FOR_MEMBERS: {
      if (gang.facts.evicting) return EvictionReason(gang);
      if (!gang.facts.blocked) {
        return RecordReason(from_.records.ErrorOf(gang), "the admission record is being written");
      }
      Reason reason = gang.blocker;
      const bool ungated = std::ranges::any_of(gang.unbound, [&](const std::string& uid) {
        return !IsGatedByUs(*from_.snapshot.FindPod(uid));
      });
      if (ungated && !gating_active_) {
        reason.message +=
            "; members are not gated, because the admission webhook isn't in place, so a "
            "provisioner may act on them already";
      }
      return reason;
    }
    case v1::WAITING_FOR_QUOTA:
      return QuotaReason(gang);
    case v1::INFEASIBLE:
      return ReasonFor(*from_.placeability.Of(gang)->refusal);
    case v1::PROVISIONING:
      return ProvisioningReason(gang);
    case v1::READY:
      return ReadyReason(gang);
    case v1::BINDING:
      return {
          from_.commit.ErrorOf(gang).empty() ? v1::BINDINGS_POSTED : v1::BINDING_FAILED,
          fmt::format("{} of {} members bound{}{}", standing, min,
                      from_.commit.ErrorOf(gang).empty() ? "" : "; ", from_.commit.ErrorOf(gang)),
          ""};
    case v1::BOUND: {
      if (std::optional<Reason> risk = RiskReason(gang)) return *std::move(risk);
      std::string raised;
      if (gang.group != nullptr && !gang.derived && gang.group->min_member > min) {
        raised = fmt::format("; spec.minMember is {} since, which counts once the gang starts anew",
                             gang.group->min_member);
      }
      if (!gang.unbound.empty()) {
        return {v1::SURPLUS_WAITING,
                fmt::format("{} members bound (spec.minMember {}); {} more wait for {}{}", standing,
                            min, gang.unbound.size(),
                            from_.quota.UncountedOf(gang).empty() ? "room" : "quota", raised),
                ""};
      }
      return {v1::ALL_BOUND, fmt::format("{} of {} members bound{}", standing, min, raised), ""};
    }
    case v1::REPAIRING:
      return RepairReason(gang);
    case v1::BACKING_OFF: {
      Reason reason = from_.restarts.WithFallback(
          gang, BackoffReason(*from_.records.Of(gang), from_.provisioning.RetryAt(gang)));
      reason.message += ReservationText(gang);
      return reason;
    }
    case v1::FINISHED: {
      const bool succeeded = gang.facts.succeeded >= min;
      return {
          succeeded ? v1::GANG_SUCCEEDED : v1::GANG_FAILED,
          fmt::format("{} members succeeded, {} failed", gang.facts.succeeded, gang.facts.failed),
          ""};
    }
    default:
      return {};
  }
}

Reason Report::EvictionReason(const Gang& gang) const {
  return {v1::PREEMPTED,
          fmt::format("{} of {} members are to go: {}",
                      gang.facts.bound + (gang.facts.terminating ? 1 : 0), gang.facts.min_member,
                      from_.quota.EvictionOf(gang)->why),
          ""};
}

Reason Report::QuotaReason(const Gang& gang) const {
  if (gang.facts.evicting) return EvictionReason(gang);
  if (const std::string& error = from_.quota.WorkloadErrorOf(gang); !error.empty()) {
    return {v1::RECORD_FAILED, "its Workload can't be written: " + error,
            "install Kueue's Workload CRD, and let muster write workloads and their status"};
  }
  if (from_.quota.IsDeactivated(gang)) {
    return {v1::QUEUE_STOPPED, "spec.active of its Workload is false", "set it to true"};
  }
  if (Reason fault = from_.quota.LabelFault(gang); fault.code != v1::REASON_UNSPECIFIED) {
    return fault;
  }
  if (from_.job_starts.IsStarting(gang)) {
    const std::string& error = from_.job_starts.ErrorOf(gang);
    return {
        error.empty() ? v1::RECORD_PENDING : v1::RECORD_FAILED,
        fmt::format("quota is reserved; {} is being resumed{}{}", gang.derived->maker,
                    error.empty() ? "" : ", which the API server refuses: ", error),
        error.empty() ? "" : "let muster patch this kind of job (deploy/base/rbac-muster.yaml)"};
  }
  if (from_.quota.IsGranted(gang)) {
    return {v1::RECORD_PENDING, "quota is granted; its Workload is being written", ""};
  }
  const quota::Wait wait = from_.quota.scheduler().WhyWaiting(from_.quota.IdOf(gang));
  if (gang.facts.waits_for_room &&
      (wait.code == quota::WaitCode::kNone || wait.code == quota::WaitCode::kNotPlaceable)) {
    return CapacityReason(gang, "; its quota is given back until there is room");
  }
  const bool asks = from_.quota.Waits(gang) || wait.code != quota::WaitCode::kNone;
  if (!asks) return {v1::RECORD_PENDING, "its Workload is being written", ""};
  return {CodeOf(wait.code), wait.message, wait.fix};
}

Reason Report::RepairReason(const Gang& gang) const {
  const Places& places = from_.placement.Of(gang);
  const int64_t standing = gang.facts.bound + gang.facts.succeeded;
  const int64_t min = gang.facts.min_member;
  std::string lost = LossesText(from_.repair.LossesOf(gang));
  if (!lost.empty()) lost = ": " + lost;
  if (from_.repair.DueOf(gang) <= agenda_->now() && gang.facts.bound > 0) {
    const Restarter restarter = from_.restarts.RestarterOf(gang);
    const kube::AnyJob* job = restarter.workload == nullptr ? restarter.job : nullptr;
    return {
        v1::RESTARTING_WHOLE,
        fmt::format(
            "{} of {} members were left for {} without the rest; {}{}", standing, min,
            absl::FormatDuration(from_.options.repair_deadline),
            job == nullptr ? "they are evicted" : job->Title() + " is suspended and resumed", lost),
        ""};
  }
  std::string replacements = "replacements have places";
  if (gang.facts.blocked) {
    replacements = gang.blocker.message;
  } else if (gang.unbound.empty()) {
    replacements = "no replacement exists yet";
  } else if (from_.quota.UncountedOf(gang).size() == gang.unbound.size()) {
    replacements = "replacements wait for quota";
  } else if (places.fixed.empty()) {
    replacements = "replacements wait for room: " + ShortfallText(places.shortfall) +
                   SuspectText(gang) + ReservationText(gang);
  }
  const std::string end = gang.facts.bound == 0
                              ? "nothing of it is left that would have to be restarted"
                              : fmt::format("if it isn't whole by {}, all of it is restarted",
                                            kube::ClockText(from_.repair.DueOf(gang)));
  const bool by_node = std::ranges::any_of(from_.repair.LossesOf(gang), [](const auto& loss) {
    return loss.second.by_node && !loss.second.over;
  });
  return {by_node ? v1::NODE_LOST : v1::MEMBERS_LOST,
          fmt::format("{} of {} members are {}{}; {}; {}", standing, min,
                      gang.facts.bound_before ? "left" : "bound", lost, replacements, end),
          ""};
}

std::optional<Reason> Report::RiskReason(const Gang& gang) const {
  std::map<std::string, size_t> members;  // by node
  for (const std::string& uid : gang.bound) {
    const std::string& node = from_.snapshot.FindPod(uid)->node_name;
    if (from_.repair.TroubleOn(node) != nullptr) ++members[node];
  }
  if (members.empty()) return std::nullopt;
  Reason reason = {v1::NODE_GOING,
                   fmt::format("{} of {} members bound", gang.facts.bound + gang.facts.succeeded,
                               gang.facts.min_member),
                   ""};
  std::vector<std::string> risks;
  for (const auto& [node, count] : members) {
    const cluster::NodeTrouble& trouble = *from_.repair.TroubleOn(node);
    if (trouble.kind != cluster::NodeTrouble::Kind::kGoing) reason.code = v1::NODE_NOT_READY;
    const std::string what =
        trouble.kind == cluster::NodeTrouble::Kind::kGoing
            ? "run on there until they end or are evicted"
            : fmt::format("there count as lost from {} on", kube::ClockText(trouble.lost_at));
    risks.push_back(fmt::format("{} {}; {} member(s) {}", node, trouble.what, count, what));
  }
  reason.message += "; " + kube::FirstFew(risks, kShown);
  return reason;
}

std::string Report::SuspectText(const Gang& gang) const {
  std::vector<std::string> texts;
  for (const auto& [node, entry] : from_.suspects.nodes()) {
    const cluster::SuspectNodes::Sighting* why =
        from_.suspects.WhyLeftOut(node, gang.key.ToString());
    if (why == nullptr) continue;
    const cluster::NodeInfo* info = from_.snapshot.FindNode(node);
    if (info == nullptr || !info->UsableNow()) continue;
    texts.push_back(
        fmt::format("{} is left out until {}: {}", node, kube::ClockText(why->until), why->fault));
  }
  return (texts.empty() ? "" : "; ") + kube::FirstFew(texts, kShown);
}

void Report::AddSuspects(const Gang& gang, Reason* reason) const {
  const Places& places = from_.placement.Of(gang);
  const std::string text = SuspectText(gang);
  if (text.empty()) return;
  reason->message += text;
  const bool only = from_.placement.RefusedBy(gang).left_out().empty() &&
                    places.shortfall.causes.size() == 1 &&
                    places.shortfall.causes[0].code == cluster::RejectionCode::kExcluded;
  if (!only) return;
  reason->code = v1::NODES_SUSPECT;
  reason->fix = fmt::format(
      "repair or delete the nodes, or, if they are whole, remove annotation {} from them",
      cluster::kSuspectAnnotation);
}

}  // namespace muster::coscheduling
