// The admission API's messages, from the engine's state.

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "absl/container/btree_set.h"
#include "absl/hash/hash.h"
#include "coscheduling/report/report.h"
#include "kube/objects/well_known.h"
#include "muster/v1/admission.pb.h"
#include "quota/pod_sets.h"

namespace muster::coscheduling {
namespace {

void SetTime(absl::Time time, google::protobuf::Timestamp* out) {
  *out = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(time));
}

// The proto's begins with what isn't said.
static_assert(static_cast<int>(cluster::NodeStage::kGoing) + 1 == v1::GOING);
v1::NodeStage StageOf(cluster::NodeStage stage) {
  return static_cast<v1::NodeStage>(static_cast<int>(stage) + 1);
}
static_assert(static_cast<int>(Feasibility::Verdict::kInfeasible) + 1 ==
              v1::Feasibility::INFEASIBLE);

v1::MemberState MemberStateOf(const kube::Pod& pod, bool gated) {
  if (pod.phase == kube::PodPhase::kSucceeded) return v1::SUCCEEDED;
  if (pod.phase == kube::PodPhase::kFailed) return v1::FAILED;
  if (pod.IsDeleting()) return v1::TERMINATING;
  if (pod.phase == kube::PodPhase::kRunning) return v1::RUNNING;
  if (pod.IsBound()) return v1::MEMBER_BOUND;
  if (!gated) return v1::UNGATED;
  return pod.scheduled_reason == "Unschedulable" ? v1::SIGNALLED : v1::GATED;
}

void DescribeFeasibility(const Feasibility& feasibility, v1::Feasibility* out) {
  constexpr int kShown = 50;
  out->set_verdict(
      static_cast<v1::Feasibility::Verdict>(static_cast<int>(feasibility.verdict) + 1));
  if (feasibility.refusal) Set(ReasonFor(*feasibility.refusal), out->mutable_reason());
  out->set_asked(feasibility.asked);
  out->set_held_by_nodes(feasibility.held);
  for (const cluster::PoolFinding& finding : feasibility.pools) {
    if (out->node_pools_size() == kShown) break;
    v1::NodePoolFinding* item = out->add_node_pools();
    item->set_node_pool(finding.pool);
    item->set_pods(finding.pods);
    if (finding.refusal) Set(ReasonFor(*finding.refusal), item);
  }
}

void DescribeSetback(const Setback& setback, v1::Setback* out) {
  out->set_code(setback.code);
  out->set_node_claim(setback.claim.name);
  out->set_node(setback.claim.node);
  out->set_node_pool(setback.claim.node_pool);
  out->set_instance_type(setback.claim.instance_type);
  out->set_zone(setback.claim.zone);
  out->set_message(setback.claim.words);
  out->set_times(setback.times);
  SetTime(setback.first, out->mutable_first());
  SetTime(setback.last, out->mutable_last());
  out->set_stands(setback.stands);
  out->set_overcome(setback.overcome);
}

void DescribeReservation(const cluster::Reservation& reservation, v1::Reservation* out) {
  for (const std::string& node : reservation.room.nodes) out->add_nodes(node);
  SetTime(reservation.since, out->mutable_since());
  const absl::Time by = std::max(reservation.room.free_by, reservation.since);
  if (by != absl::InfiniteFuture()) SetTime(by, out->mutable_free_by());
  const absl::Time expected = std::max(reservation.room.expected, reservation.since);
  if (expected != absl::InfiniteFuture()) SetTime(expected, out->mutable_expected());
  out->set_idle_gpus(reservation.room.idle_gpus);
}

// Equal messages have equal digests; never 0.
size_t DigestOf(const v1::Gang& gang) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    gang.SerializeToCodedStream(&coded);
  }
  return std::max<size_t>(1, absl::HashOf(bytes));
}

}  // namespace

void Report::DescribeNode(const cluster::NodeInfo& info, v1::Node* out) const {
  const kube::ObjectMeta& meta = info.node->meta;
  const std::string name = info.object == nullptr ? "" : info.object->meta.name;
  out->set_name(name);
  if (info.claim != nullptr) out->set_node_claim(info.claim->meta.name);
  out->set_node_pool(meta.LabelText(kube::kNodePoolLabel));
  out->set_instance_type(meta.LabelText(kube::kInstanceTypeLabel));
  out->set_zone(meta.LabelText(kube::kZoneLabel));
  const cluster::NodeReadiness& readiness = info.readiness;
  out->set_stage(StageOf(readiness.stage));
  out->set_message(readiness.message);
  for (const cluster::DeviceShortage& shortage : readiness.shortages) {
    v1::DeviceShortage* item = out->add_shortages();
    item->set_resource(shortage.resource);
    item->set_have(shortage.have);
    item->set_want(shortage.want);
  }
  const auto usable = usable_since_.find(name);
  const absl::Time* since = usable == usable_since_.end() ? nullptr : &usable->second;
  for (const cluster::NodeStep& step : cluster::StepsOf(info, since)) {
    out->add_steps()->set_stage(StageOf(step.stage));
    SetTime(step.at, out->mutable_steps()->rbegin()->mutable_at());
  }
  for (const auto& [uid, until] : from_.holds.On(name)) {
    SetTime(until, &(*out->mutable_holds())[uid]);
  }
  // What a gang alone minds is in that gang's reason.
  const cluster::SuspectNodes::Entry* suspect = from_.suspects.Find(name);
  if (suspect != nullptr && !suspect->turned_away.empty()) {
    out->set_suspect(true);
    out->set_suspect_reason(suspect->rejection.fault);
    SetTime(suspect->rejection.until, out->mutable_suspect_until());
  }
}

void Report::Describe(const Gang& gang, v1::Gang* out) const {
  out->set_namespace_(gang.key.name_space);
  out->set_name(gang.key.name);
  const bool is_job = gang.unmade && gang.group == nullptr;
  out->set_uid(is_job ? gang.derived->owner.uid : gang.uid());
  out->set_kind(is_job ? gang.derived->owner.kind : gang.key.is_pod ? "Pod" : "PodGroup");
  out->set_state(gang.state);
  Set(ReasonOf(gang), out->mutable_reason());
  SetTime(gang.state_since, out->mutable_state_since());
  out->set_min_member(gang.facts.min_member);
  out->set_priority(gang.priority);
  out->set_queue(from_.quota.IsUnderQuota(gang) ? from_.quota.QueueOf(gang) : gang.queue_name);
  out->set_revision(parts_.Of(gang.id).revision);
  SetTime(gang.created, out->mutable_created_at());
  if (const AdmissionRecord* record = from_.records.Of(gang)) {
    out->set_attempt(static_cast<int32_t>(record->attempt));
    SetTime(record->admitted_at, out->mutable_admitted_at());
    SetTime(record->deadline, out->mutable_deadline());
    if (record->retry_after) SetTime(from_.provisioning.RetryAt(gang), out->mutable_retry_at());
  }
  if (const quota::Admission* held = from_.quota.HeldBy(gang)) {
    out->set_cluster_queue(held->cluster_queue);
    for (const std::string& name : from_.quota.FlavorsOf(gang)) out->add_flavors(name);
  }
  if (const std::optional<absl::Time>& at = parts_.Of(gang.id).bound_at) {
    SetTime(*at, out->mutable_bound_at());
  }

  const bool waits = gang.state == v1::INFEASIBLE || gang.state == v1::PROVISIONING ||
                     gang.state == v1::WAITING_FOR_QUOTA || gang.state == v1::BACKING_OFF;
  if (const Feasibility* feasibility = from_.placeability.Of(gang);
      waits && feasibility != nullptr) {
    DescribeFeasibility(*feasibility, out->mutable_feasibility());
  }
  if (gang.state == v1::PROVISIONING || gang.state == v1::BACKING_OFF) {
    for (const Setback& setback : from_.provisioning.SetbacksOf(gang)) {
      DescribeSetback(setback, out->add_setbacks());
    }
    for (const cluster::NodeSource& source : from_.restarts.NodeSourcesOf(gang)) {
      v1::NodeSource* told = out->add_node_sources();
      told->set_zone(source.zone);
      told->set_flavor(source.flavor);
      told->set_lacking(source.lacking);
    }
  }

  if (const cluster::Reservation* reservation = from_.placement.ReservedFor(gang)) {
    DescribeReservation(*reservation, out->mutable_reservation());
  }
  const Places& planned = from_.placement.Of(gang);
  const Losses& losses = from_.repair.LossesOf(gang);
  absl::btree_set<std::string_view> places;
  std::vector<const kube::Pod*> members = from_.gangs.LiveOf(gang);
  for (const kube::Pod* pod : from_.gangs.PodsOf(gang)) {
    if (!IsLive(*pod)) members.push_back(pod);
  }
  int64_t counted = 0;
  for (const kube::Pod* pod : members) {
    const std::string& uid = pod->meta.uid;
    v1::Member* member = out->add_members();
    member->set_name(pod->meta.name);
    member->set_uid(uid);
    member->set_state(MemberStateOf(*pod, IsGatedByUs(*pod)));
    member->set_node(pod->node_name);
    SetTime(pod->meta.creation_time, member->mutable_created_at());
    member->set_surplus(!pod->IsTerminal() && ++counted > gang.facts.min_member);
    member->set_message(pod->status_message);
    if (const auto loss = losses.find(uid); loss != losses.end() && loss->second.by_node) {
      member->set_message(loss->second.text);
    }
    if (pod->IsBound()) {
      places.insert(pod->node_name);
      continue;
    }
    for (const auto* plan : {&planned.fixed, &planned.tentative}) {
      auto place = plan->find(uid);
      if (place == plan->end()) continue;
      member->set_planned_node(place->second);
      places.insert(place->second);
    }
  }
  for (const std::string_view place : places) {
    const cluster::NodeInfo* info = from_.snapshot.FindNode(place);
    if (info != nullptr) DescribeNode(*info, out->add_nodes());
  }
}

void Report::Show(const Gang& gang) {
  Part& part = parts_[gang.id];
  if (!gang.ours) {
    if (part.shown_digest != 0) changed_gangs_[gang.key] = nullptr;
    Unshow(gang.id, &part);
    return;
  }
  google::protobuf::Arena arena;
  v1::Gang& message = *google::protobuf::Arena::CreateMessage<v1::Gang>(&arena);
  Describe(gang, &message);
  message.clear_revision();
  const size_t digest = DigestOf(message);
  if (digest == part.shown_digest) return;
  Unshow(gang.id, &part);
  part.shown_digest = digest;
  part.revision = next_revision_++;
  for (const v1::Member& member : message.members()) {
    const std::string& place = member.node().empty() ? member.planned_node() : member.node();
    if (part.shown_places.insert(place).second) shown_on_[place].insert(gang.id);
  }
  message.set_revision(part.revision);
  changed_gangs_[gang.key] = std::make_shared<const v1::Gang>(message);
}

void Report::Unshow(GangId gang, Part* part) {
  for (const std::string& place : part->shown_places) {
    const auto shown = shown_on_.find(place);
    shown->second.erase(gang);
    if (shown->second.empty()) shown_on_.erase(shown);
  }
  part->shown_places.clear();
  part->shown_digest = 0;
}

void Report::ShowAgain(const std::string& place) {
  const auto note = [this](const std::string& name) {
    const auto it = shown_on_.find(name);
    if (it == shown_on_.end()) return;
    for (GangId gang : it->second) agenda_->Show(gang);
  };
  note(place);
  const cluster::NodeInfo* info = from_.snapshot.FindNode(place);
  if (info != nullptr && info->claim) note(cluster::VirtualName(info->claim->meta.name));
}

void Report::DescribeNodes(std::vector<v1::Node>* nodes) const {
  for (const auto& [name, info] : from_.snapshot.nodes()) {
    v1::Node& node = nodes->emplace_back();
    DescribeNode(info, &node);
    for (const auto& [resource, amount] : info.node->allocatable.entries()) {
      (*node.mutable_allocatable())[resource] = amount;
      (*node.mutable_free())[resource] = info.Free(resource);
    }
    if (const cluster::Reservation* kept = from_.placement.reservations().KeepsOn(name)) {
      node.set_reserved_for(kept->holder.name);
    }
    auto& expected = *node.mutable_expected_for();
    for (GangId id : from_.placement.GangsOn(name)) {
      *expected.Add() = from_.gangs.Find(id)->key.ToString();
    }
    std::sort(expected.begin(), expected.end());
  }
}

}  // namespace muster::coscheduling
