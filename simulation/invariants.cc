#include "simulation/invariants.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/watch_session.h"
#include "kube/objects/decode.h"
#include "muster/v1/admission.pb.h"
#include "simulation/line.h"
#include "simulation/manifests.h"
#include "simulation/observers.h"

namespace muster::simulation {
namespace {

using coscheduling::Engine;
using coscheduling::GangKey;
using kube::embedded::WatchItem;

// A commit that something cut off must be whole again, or undone, within this.
constexpr absl::Duration kPartialCommit = absl::Seconds(30);
// Longer where bindings get lost, which is known of each after ten seconds.
constexpr absl::Duration kLossyPartialCommit = absl::Minutes(1);
// How long a PodGroup's status may lag behind; longer where writes of it get lost.
constexpr absl::Duration kStatusLag = absl::Seconds(2);
constexpr absl::Duration kLossyStatusLag = absl::Minutes(2);
// Gangs that are checked at each moment though nothing was heard of them.
constexpr size_t kInTurn = 8;

std::vector<WatchItem> ReadAll(kube::embedded::WatchSession& session) {
  constexpr size_t kBatch = 256;
  std::vector<WatchItem> all;
  for (size_t before = 0;; before = all.size()) {
    session.Read(kBatch, &all);
    if (all.size() == before) return all;
  }
}

// "cpu=any,nvidia.com/gpu=spot"
std::map<std::string, std::string> FlavorsOf(const kube::Pod& pod) {
  std::map<std::string, std::string> flavors;
  const std::string* text = pod.meta.Annotation("muster.dev/flavors");
  if (text == nullptr) return flavors;
  for (absl::string_view pair : absl::StrSplit(*text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    flavors.insert(parts);
  }
  return flavors;
}

bool IsDeletion(const WatchItem& item) { return item.type == WatchItem::Type::kDeleted; }

}  // namespace

Invariants::Invariants(kube::embedded::ApiServer* server, bool undisturbed_commits,
                       absl::Duration lag)
    : undisturbed_commits_(undisturbed_commits),
      lag_(lag),
      pod_events_(OpenWatch(server, "/api/v1/pods")),
      node_events_(OpenWatch(server, "/api/v1/nodes")),
      group_events_(OpenWatch(server, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")),
      queue_events_(OpenWatch(server, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues")) {}

Invariants::~Invariants() = default;

void Invariants::Note(const kube::Request& request) {
  if (request.method == kube::Method::kPost) return;
  disturbed_ |= absl::StrContains(request.path, "/pods/");
}

void Invariants::Show(const coscheduling::StepOutput& output) {
  for (const auto& [key, gang] : output.changed_gangs) {
    touched_gangs_.insert(key.ToString());
    if (gang != nullptr) {
      shown_[key] = gang->SerializeAsString();
    } else {
      shown_.erase(key);
    }
  }
}

absl::Status Invariants::Check(const Engine& engine, absl::Time now) {
  now_ = now;
  ReadNodes();
  ReadGroups();
  if (absl::Status status = ReadPods(); !status.ok()) return status;
  ReadQueues();
  const bool places_changed = !touched_nodes_.empty();
  if (absl::Status status = CheckNodes(); !status.ok()) return status;
  if (places_changed && !queues_.empty()) {
    if (absl::Status status = CheckQuota(); !status.ok()) return status;
  }
  const std::set<std::string> touched = std::exchange(touched_gangs_, {});
  // It costs a look at each, so not at every moment at which nothing has happened.
  if (!touched.empty() || turn_ == 0) gangs_ = engine.Gangs();
  kept_before_ = kept_;
  entries_.clear();
  std::erase_if(kept_, [&](const auto& one) { return touched.contains(one.first); });
  for (const GangKey& key : Due(touched)) {
    const std::string name = key.ToString();
    v1::Gang gang;
    if (!engine.Describe(key, &gang)) continue;
    NoteGang(name, gang);
    if (gang.reason().message().empty()) {
      return absl::FailedPreconditionError(
          fmt::format("gang {} is {} without a reason", name, v1::GangState_Name(gang.state())));
    }
    if (gang.reason().code() == v1::NODES_COMING &&
        gang.reason().message().ends_with("waiting for ")) {
      return absl::FailedPreconditionError(
          fmt::format("gang {} waits for no node in particular", name));
    }
    if (absl::Status status = CheckShown(key, gang); !status.ok()) return status;
    if (key.is_pod) continue;
    const Counts counts = Count(name);
    if (absl::Status status = CheckWhole(gang, counts, now); !status.ok()) return status;
    if (absl::Status status = CheckStatus(key, counts, now); !status.ok()) return status;
  }
  return CheckEntries();
}

// Those about whom something is to be seen, and the next few in turn.
std::set<GangKey> Invariants::Due(const std::set<std::string>& touched) {
  std::set<GangKey> due;
  for (size_t i = 0; i < std::min(kInTurn, gangs_.size()); ++i) {
    due.insert(gangs_[(turn_ + i) % gangs_.size()]);
  }
  turn_ = gangs_.size() <= kInTurn ? 0 : (turn_ + kInTurn) % gangs_.size();
  const auto note = [&](const std::string& name) {
    const size_t slash = name.find('/');
    for (const bool is_pod : {false, true}) {
      const GangKey key = {name.substr(0, slash), name.substr(slash + 1), is_pod};
      if (std::ranges::binary_search(gangs_, key)) due.insert(key);
    }
  };
  for (const std::string& name : touched) note(name);
  for (const auto& [name, since] : partial_since_) note(name);
  for (const auto& [name, since] : status_wrong_since_) note(name);
  return due;
}

// --- following the API server ---

absl::Status Invariants::ReadPods() {
  for (const WatchItem& item : ReadAll(*pod_events_)) {
    if (item.object == nullptr) continue;
    const kube::Pod pod = kube::Decode<kube::Pod>(item.object->bytes()).value();
    if (absl::Status status = NotePod(IsDeletion(item), pod); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void Invariants::Forget(const std::string& uid) {
  auto it = members_.find(uid);
  if (it == members_.end()) return;
  touched_gangs_.insert(it->second.gang);
  pods_of_[it->second.gang].erase(uid);
  if (pods_on_[it->second.node].erase(uid) > 0) touched_nodes_.insert(it->second.node);
  members_.erase(it);
}

absl::Status Invariants::NotePod(bool deleted, const kube::Pod& pod) {
  const std::string& uid = pod.meta.uid;
  const std::string gang = GangOf(pod);
  const bool none_bound_before = Count(gang).bound == 0;
  const auto before = members_.find(uid);
  const bool was_live = before != members_.end() && before->second.live;
  // Its user may have had it go over to another gang since.
  const bool was_bound = before != members_.end() && !before->second.node.empty();
  if (was_live && (deleted || pod.IsTerminal() || pod.IsDeleting())) lost_member_at_[gang] = now_;
  Forget(uid);
  if (deleted) return absl::OkStatus();
  Member member{.gang = gang,
                .node = pod.node_name,
                .gated = pod.HasGate(coscheduling::kGate),
                .live = !pod.IsTerminal() && !pod.IsDeleting(),
                .running = pod.phase == kube::PodPhase::kRunning,
                .succeeded = pod.phase == kube::PodPhase::kSucceeded,
                .failed = pod.phase == kube::PodPhase::kFailed,
                .pod = std::make_shared<const kube::Pod>(pod),
                .requests = pod.spec->requests,
                .flavors = FlavorsOf(pod)};
  pods_of_[gang].insert(uid);
  touched_gangs_.insert(gang);
  const bool takes_room = member.live && !member.node.empty();
  if (takes_room) {
    pods_on_[member.node].insert(uid);
    touched_nodes_.insert(member.node);
  }
  members_.emplace(uid, std::move(member));
  auto group = groups_.find(gang);
  const bool is_first = takes_room && !was_bound && none_bound_before;
  if (!is_first || group == groups_.end() || group->second.edited) return absl::OkStatus();
  const Counts counts = Count(gang);
  if (counts.ungated + counts.succeeded >= group->second.min_member) return absl::OkStatus();
  const auto lost = lost_member_at_.find(gang);
  if (lost != lost_member_at_.end() && now_ - lost->second < lag_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} of gang {} is bound while {} of {} members have lost their gate",
                  pod.meta.name, gang, counts.ungated, group->second.min_member));
}

void Invariants::ReadNodes() {
  for (const WatchItem& item : ReadAll(*node_events_)) {
    if (item.object == nullptr) continue;
    const kube::Node node = kube::Decode<kube::Node>(item.object->bytes()).value();
    touched_nodes_.insert(node.meta.name);
    if (IsDeletion(item)) {
      allocatable_.erase(node.meta.name);
    } else {
      allocatable_[node.meta.name] = node.allocatable;
    }
  }
}

void Invariants::ReadGroups() {
  for (const WatchItem& item : ReadAll(*group_events_)) {
    if (item.object == nullptr) continue;
    const kube::PodGroup group = kube::Decode<kube::PodGroup>(item.object->bytes()).value();
    touched_gangs_.insert(group.meta.FullName());
    if (IsDeletion(item)) {
      groups_.erase(group.meta.FullName());
    } else {
      groups_[group.meta.FullName()] = {group.min_member, group.meta.generation > 1, group.status};
    }
  }
}

void Invariants::ReadQueues() {
  for (const WatchItem& item : ReadAll(*queue_events_)) {
    if (item.object == nullptr) continue;
    kube::ClusterQueue queue = kube::Decode<kube::ClusterQueue>(item.object->bytes()).value();
    if (IsDeletion(item)) {
      queues_.erase(queue.meta.name);
    } else {
      queues_.insert_or_assign(queue.meta.name, std::move(queue));
    }
  }
}

Invariants::Counts Invariants::Count(const std::string& gang) const {
  Counts counts;
  auto pods = pods_of_.find(gang);
  if (pods == pods_of_.end()) return counts;
  for (const std::string& uid : pods->second) {
    const Member& member = members_.at(uid);
    ++counts.pods;
    counts.bound += member.live && !member.node.empty();
    counts.ungated += member.live && !member.gated;
    counts.running += member.live && member.running;
    counts.succeeded += member.succeeded;
    counts.failed += member.failed;
  }
  return counts;
}

// --- what must hold ---

absl::Status Invariants::CheckNodes() {
  for (const std::string& name : std::exchange(touched_nodes_, {})) {
    auto node = allocatable_.find(name);
    if (node == allocatable_.end()) continue;
    kube::ResourceList used;
    for (const std::string& uid : pods_on_[name]) {
      if (absl::Status sum = used.Add(members_.at(uid).requests); !sum.ok()) return sum;
    }
    if (const auto* over = node->second.FirstShortage(used)) {
      return absl::FailedPreconditionError(fmt::format("node {} is overcommitted: {} of {} {}",
                                                       name, used.Get(over->first),
                                                       node->second.Get(over->first), over->first));
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckQuota() const {
  std::map<std::pair<std::string, std::string>, int64_t> left;  // (flavor, resource)
  for (const auto& [name, queue] : queues_) {
    for (const kube::ResourceGroup& group : queue.resource_groups) {
      for (const kube::FlavorQuotas& flavor : group.flavors) {
        for (const kube::ResourceQuota& quota : flavor.resources) {
          left[{flavor.flavor, quota.resource}] += quota.nominal;
        }
      }
    }
  }
  for (const auto& [node, uids] : pods_on_) {
    if (!allocatable_.contains(node)) continue;  // where nobody uses anything
    for (const std::string& uid : uids) {
      const Member& member = members_.at(uid);
      for (const auto& [resource, flavor] : member.flavors) {
        int64_t& rest = left[{flavor, resource}];
        rest -= member.requests.Get(resource);
        if (rest >= 0) continue;
        return absl::FailedPreconditionError(
            fmt::format("flavor {} is used {} {} beyond its quota, by gang {} among others", flavor,
                        -rest, resource, member.gang));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckWhole(const v1::Gang& gang, const Counts& counts, absl::Time now) {
  const std::string name = gang.namespace_() + "/" + gang.name();
  const bool partial = counts.bound > 0 && counts.bound < gang.min_member() &&
                       gang.state() != v1::BOUND && gang.state() != v1::REPAIRING;
  if (!partial) {
    partial_since_.erase(name);
    return absl::OkStatus();
  }
  const absl::Time since = partial_since_.try_emplace(name, now).first->second;
  const bool excused = !undisturbed_commits_ || disturbed_;
  const absl::Duration bound = undisturbed_commits_ ? kPartialCommit : kLossyPartialCommit;
  if (excused && now - since < bound) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "gang {} is bound in part since {}: {} of {}, {}", name, absl::FormatDuration(now - since),
      counts.bound, gang.min_member(), gang.reason().message()));
}

void Invariants::NoteGang(const std::string& name, const v1::Gang& gang) {
  if (gang.has_reservation()) {
    kept_[name] = gang;
  } else {
    kept_.erase(name);
  }
  std::set<std::string> places;
  for (const v1::Member& member : gang.members()) {
    const std::string& node = member.node().empty() ? member.planned_node() : member.node();
    if (!node.empty()) places.insert(node);
  }
  const auto [it, is_new] = seen_.try_emplace(name, Seen{{}, gang});
  Seen& before = it->second;
  for (const std::string& node : places) {
    if (!before.places.contains(node)) entries_.push_back({before.gang, node});
  }
  before = {std::move(places), gang};
}

absl::Status Invariants::CheckEntries() {
  for (const auto& [gang, node] : entries_) {
    const std::string name = gang.namespace_() + "/" + gang.name();
    std::vector<const kube::Pod*> unbound;
    for (const std::string& uid : pods_of_[name]) {
      const Member& member = members_.at(uid);
      if (member.live && member.node.empty()) unbound.push_back(member.pod.get());
    }
    for (const auto& [other, holder] : kept_) {
      const auto before = kept_before_.find(other);
      if (other == name || before == kept_before_.end()) continue;
      // Given up and made anew within a moment: who came in between was free to.
      const v1::Gang& held = before->second;
      if (TimeOf(held.reservation().since()) != TimeOf(holder.reservation().since())) continue;
      // Of equal priority those of whom members stand may have come first for a moment.
      if (gang.priority() == holder.priority() && Stands(gang)) continue;
      if (!IsKeptFrom(gang, unbound, holder, node, now_) ||
          !IsKeptFrom(gang, unbound, held, node, now_)) {
        continue;
      }
      return absl::FailedPreconditionError(
          fmt::format("gang {} has a place on {}, which is kept for {}", name, node, other));
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckShown(const GangKey& key, const v1::Gang& gang) const {
  v1::Gang shown;
  if (auto it = shown_.find(key); it != shown_.end()) {
    if (it->second == gang.SerializeAsString()) return absl::OkStatus();
    shown.ParseFromString(it->second);
  }
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  if (differencer.Compare(shown, gang)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("queries show an older gang {}: {}", key.ToString(), difference));
}

absl::Status Invariants::CheckStatus(const GangKey& key, const Counts& counts, absl::Time now) {
  const std::string name = key.ToString();
  auto group = groups_.find(name);
  if (group == groups_.end() || counts.pods == 0) return absl::OkStatus();
  const kube::PodGroup::Status& status = group->second.status;
  Counts want = counts;
  // What a gang came to stays when its pods are collected.
  if (counts.succeeded + counts.failed == counts.pods &&
      (status.phase == "Finished" || status.phase == "Failed")) {
    want.succeeded = std::max(counts.succeeded, status.succeeded);
    want.failed = std::max(counts.failed, status.failed);
  }
  if (status.scheduled == want.bound + want.succeeded && status.running == want.running &&
      status.succeeded == want.succeeded && status.failed == want.failed) {
    status_wrong_since_.erase(name);
    return absl::OkStatus();
  }
  const absl::Time since = status_wrong_since_.try_emplace(name, now).first->second;
  if (now - since <= (undisturbed_commits_ ? kStatusLag : kLossyStatusLag)) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the status of PodGroup {} is wrong since {}: scheduled {} (is {}), running {} (is {}), "
      "succeeded {} (is {}), failed {} (is {})",
      name, absl::FormatDuration(now - since), status.scheduled, want.bound + want.succeeded,
      status.running, want.running, status.succeeded, want.succeeded, status.failed, want.failed));
}

}  // namespace muster::simulation
