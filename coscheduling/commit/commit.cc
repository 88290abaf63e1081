#include "coscheduling/commit/commit.h"

#include <algorithm>
#include <utility>

#include "cluster/alone.h"
#include "cluster/made_volumes.h"
#include "cluster/volumes.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

// A binding that was accepted and isn't seen after this is asked for again; the API server's answer
// then says where the pod stands.
constexpr absl::Duration kReadBack = absl::Seconds(5);
// A node on which this many bindings in a row failed is left out for the gang.
constexpr int kBindingAttempts = 5;
// Standalone, a plan that follows one that didn't hold isn't committed before; else
// kube-scheduler's own pauses are between them.
constexpr absl::Duration kBrokenPause = absl::Milliseconds(200);
// kube-scheduler goes through pods one by one: it schedules some 100 a second where an extender is
// asked, and half of that is left to API servers that are slow to bind volumes.
constexpr int64_t kBindCallsPerSecond = 50;
// What kube-scheduler hasn't tried yet is in its queue, and touched so many times more seldom.
constexpr int kUntriedWakes = 12;

}  // namespace

bool Commit::IsUnderWay(const Gang& gang) const {
  return placement_->Of(gang).committing || IsPosted(gang);
}

bool Commit::NeedsEveryCall(const Gang& gang) const {
  return !options_.standalone && std::ranges::any_of(gang.unbound, [&](const std::string& uid) {
    const kube::PodSpec& spec = *snapshot_.FindPod(uid)->spec;
    return spec.uses_resource_claims || !spec.persistent_volume_claims.empty();
  });
}

Reason Commit::Blocker(const Gang& gang) {
  if (auto why = cluster::WhyUnstartable(snapshot_, gang.unbound, options_.standalone)) {
    if (why->of_claim) await_volumes_.insert(gang.id);
    return {why->in_use ? v1::VOLUME_IN_USE : v1::MEMBER_NOT_SUPPORTED, std::move(why->what),
            std::move(why->fix)};
  }
  if (options_.standalone) return {};
  const int64_t most =
      std::max<int64_t>(1, kBindCallsPerSecond * absl::ToInt64Seconds(options_.bind_wait));
  if (!gang.bound.empty() || gang.required() <= most || !NeedsEveryCall(gang)) return {};
  return {
      v1::BIND_ROUND_TOO_LARGE,
      fmt::format("members have volumes or resource claims, so {} members are to be bound "
                  "together, and {} can be called within {}",
                  gang.required(), most, absl::FormatDuration(options_.bind_wait)),
      "raise extender.httpTimeout, half of which is that time, or do without volumes and claims"};
}

bool Commit::AwaitsPreBind(const Gang& gang) const {
  if (options_.standalone) {
    return std::ranges::any_of(placement_->Of(gang).fixed, [&](const auto& place) {
      return !cluster::UnboundClaims(snapshot_, *snapshot_.FindPod(place.first)).empty();
    });
  }
  return NeedsEveryCall(gang) &&
         std::ranges::any_of(placement_->Of(gang).fixed, [&](const auto& place) {
           return !held_.contains(place.first) && !placement_->IsPinned(gang, place.first);
         });
}

void Commit::Request(uint64_t request, const Gang& gang, const std::string& pod, std::string node) {
  AnswerHeld(pod, "the pod is called again");
  held_[pod] = {request, std::move(node), agenda_->now() + options_.bind_wait};
  agenda_->Note(gang.id);
}

void Commit::AnswerAll(const std::string& error) {
  for (const auto& [uid, call] : held_) outbox_->Tell(AnswerBind{call.request, error});
  held_.clear();
}

void Commit::AnswerHeld(const std::string& pod, const std::string& error) {
  const auto it = held_.find(pod);
  if (it == held_.end()) return;
  outbox_->Tell(AnswerBind{it->second.request, error});
  held_.erase(it);
}

void Commit::Fail(const Gang& gang, const std::string& error) {
  if (held_.empty()) return;
  for (const std::string& uid : gang.pods) {
    if (!placement_->IsPinned(gang, uid)) AnswerHeld(uid, error);
  }
}

void Commit::Answer(const Gang& gang, const std::string& why) {
  if (held_.empty()) return;
  const Part& part = parts_.Of(gang.id);
  const Places& places = placement_->Of(gang);
  const bool together = NeedsEveryCall(gang) && !places.committing;
  bool late = false;
  for (const std::string& uid : gang.pods) {
    const auto it = held_.find(uid);
    if (it == held_.end()) continue;
    const HeldBind& call = it->second;
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    const auto planned = places.fixed.find(uid);
    std::string place = pod.node_name;
    if (!pod.IsBound() && planned != places.fixed.end()) place = planned->second;
    const bool done = pod.IsBound() || part.posted.contains(uid);
    std::string error;
    if (place.empty()) {
      error = fmt::format("gang {} has no plan in force: {}", gang.key.ToString(), why);
    } else if (place != call.node) {
      error = fmt::format("{} is {} {}, not {}", pod.meta.name, done ? "bound to" : "planned on",
                          place, call.node);
    } else if (!done && agenda_->now() < call.until) {
      agenda_->NoteAt(gang.id, call.until);
      continue;
    } else if (!done) {
      late = true;
      error = fmt::format("gang {} was not committed within {}: {}", gang.key.ToString(),
                          absl::FormatDuration(options_.bind_wait), why);
    }
    AnswerHeld(uid, error);
  }
  if (late && together) {
    Fail(gang, fmt::format("not every member of gang {} was called within {}; all are to be called "
                           "again",
                           gang.key.ToString(), absl::FormatDuration(options_.bind_wait)));
  }
}

void Commit::Sync(const Gang& gang) {
  if (placement_->HasPins(gang)) {
    for (const std::string& uid : gang.pods) {
      const kube::Pod& pod = *snapshot_.FindPod(uid);
      if (pod.IsBound() || pod.IsTerminal()) placement_->Unpin(gang.id, uid);
    }
  }
  Part* part = parts_.Find(gang.id);
  if (part == nullptr) return;
  std::erase_if(part->posted,
                [this](const auto& posted) { return snapshot_.FindPod(posted.first)->IsBound(); });
  if (gang.state == v1::BOUND) part->error.clear();
}

void Commit::Leave(GangId gang, const std::string& pod) {
  if (Part* part = parts_.Find(gang)) part->posted.erase(pod);
}

void Commit::Nominate(const Gang& gang) {
  const bool planned = gang.facts.planned && !options_.standalone;
  const PlaceMap& fixed = placement_->Of(gang).fixed;
  for (const std::string& uid : gang.pods) {
    const kube::Pod& pod = *snapshot_.FindPod(uid);
    if (pod.IsBound() || pod.IsTerminal()) continue;
    const auto place = fixed.find(uid);
    const std::string node = planned && place != fixed.end() ? place->second : "";
    // What kube-scheduler took back itself isn't told again.
    if (node == pod.told_node_name || (pod.told_node_name.empty() && !IsGatedByUs(pod))) continue;
    outbox_->Act(gang.id, "nominate/" + uid, NominatePod{RefOf(pod), node});
  }
}

void Commit::LiftGates(const Gang& gang) {
  if (!gang.facts.planned && gang.required() > 0) return;
  for (const auto& [uid, node] : placement_->Of(gang).fixed) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    if (IsGatedByUs(*pod) && !outbox_->IsUnderWay("nominate/" + uid)) {
      outbox_->Act(gang.id, "lift/" + uid, LiftGate{RefOf(*pod)});
    }
  }
}

bool Commit::StandsInEpoch(const Gang& gang, const kube::Pod& pod) const {
  const AdmissionRecord* record = records_.Of(gang);
  if (record == nullptr || record->epoch <= 1) return true;
  const std::string* epoch = pod.meta.Annotation(kEpochAnnotation);
  return epoch != nullptr && *epoch == std::to_string(record->epoch);
}

void Commit::Observe(const cluster::Journal& journal) {
  if (journal.volume_claims.empty()) return;
  for (GangId gang : std::exchange(await_volumes_, {})) agenda_->Note(gang);
}

void Commit::SelectNodes(const Gang& gang) {
  await_volumes_.insert(gang.id);
  for (const auto& [uid, node] : placement_->Of(gang).fixed) {
    for (SelectNode& select : cluster::SelectionsFor(snapshot_, uid, node)) {
      const std::string target = "volume-node/" + select.claim.uid;
      outbox_->Act(gang.id, target, std::move(select));
    }
  }
}

void Commit::WakeMembers(const Gang& gang) {
  const absl::Time now = agenda_->now();
  Part& part = parts_[gang.id];
  const absl::Time due = std::max(gang.state_since, part.woken_at) + options_.wake_interval;
  if (now < due) {
    agenda_->NoteAt(gang.id, due);
    return;
  }
  part.woken_at = now;
  agenda_->NoteAt(gang.id, now + options_.wake_interval);
  const bool untried_too = now >= gang.state_since + kUntriedWakes * options_.wake_interval;
  for (const auto& [uid, node] : placement_->Of(gang).fixed) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    if (IsGatedByUs(*pod) || placement_->IsPinned(gang, uid)) continue;
    if (!untried_too && pod->scheduled_reason == kube::kSchedulingGated) continue;
    outbox_->Act(gang.id, "wake/" + uid,
                 AnnotatePod{RefOf(*pod), {{std::string(kWakeAnnotation), kube::TimeText(now)}}});
  }
}

bool Commit::Begin(const Gang& gang) {
  const PlaceMap& fixed = placement_->Of(gang).fixed;
  const int64_t still_required = gang.required();
  // A gate that can't be lifted must not leave a gang bound in part.
  const auto ungated = std::ranges::count_if(
      fixed, [&](const auto& place) { return !IsGatedByUs(*snapshot_.FindPod(place.first)); });
  if (ungated < still_required) return false;
  if (options_.standalone && AwaitsPreBind(gang)) {
    SelectNodes(gang);
    return false;
  }
  const bool asked = options_.standalone || std::ranges::any_of(fixed, [&](const auto& place) {
                       return held_.contains(place.first);
                     });
  // A commit that was cut off goes on by itself.
  const bool resumes = !gang.bound.empty() && !gang.facts.bound_before && still_required > 0;
  if ((!asked && !resumes) || AwaitsPreBind(gang)) {
    WakeMembers(gang);
    return false;
  }
  Part& part = parts_[gang.id];
  if (options_.standalone && agenda_->now() < part.broken_at + kBrokenPause) {
    agenda_->NoteAt(gang.id, part.broken_at + kBrokenPause);
    return false;
  }
  if (std::string broken = placement_->Recheck(gang); !broken.empty()) {
    part.error = broken;
    part.broken_at = agenda_->now();
    Fail(gang, "the plan no longer holds: " + broken);
    return false;
  }
  placement_->SetCommitting(gang.id, true);
  return true;
}

void Commit::Advance(const Gang& gang) {
  const Places& places = placement_->Of(gang);
  if (places.fixed.empty()) {
    if (places.committing) placement_->SetCommitting(gang.id, false);
    return;
  }
  if (static_cast<int64_t>(places.fixed.size()) < gang.required()) return;
  if (!places.committing && !Begin(gang)) return;
  const absl::Time now = agenda_->now();
  Part& part = parts_[gang.id];
  for (const auto& [uid, node] : placement_->Of(gang).fixed) {
    const auto posted = part.posted.find(uid);
    if (posted != part.posted.end()) {
      if (now < posted->second + kReadBack) {
        agenda_->NoteAt(gang.id, posted->second + kReadBack);
        continue;
      }
      part.posted.erase(posted);
    }
    const kube::Pod* pod = snapshot_.FindPod(uid);
    if (IsGatedByUs(*pod)) continue;  // its gate is being lifted
    if (!StandsInEpoch(gang, *pod)) {
      outbox_->Act(
          gang.id, "epoch/" + uid,
          AnnotatePod{RefOf(*pod),
                      {{std::string(kEpochAnnotation), std::to_string(records_.Of(gang)->epoch)}}});
      continue;
    }
    PostBinding(gang, *pod, node);
  }
}

void Commit::PostBinding(const Gang& gang, const kube::Pod& pod, const std::string& node) {
  const std::string uid = pod.meta.uid;
  const std::string target = "bind/" + uid;
  const bool started = outbox_->Act(
      gang.id, target, BindPod{RefOf(pod), node},
      [this, id = gang.id, uid, node, target](const absl::Status& status, absl::Time at) {
        const Gang* bound = gangs_.Find(id);
        if (bound == nullptr) return;
        Part& part = parts_[id];
        if (status.ok()) {
          if (placement_->Of(*bound).fixed.contains(uid)) part.posted[uid] = at;
          return;
        }
        placement_->Unpin(id, uid);
        part.error = std::string(status.message());
        if (outbox_->Failures(target) >= kBindingAttempts) placement_->LeaveOut(*bound, node);
      });
  if (started) {
    placement_->Pin(gang.id, uid);
  } else if (!outbox_->IsUnderWay(target)) {
    placement_->Unpin(gang.id, uid);
  }
}

}  // namespace muster::coscheduling
