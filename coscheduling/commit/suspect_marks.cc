#include "coscheduling/commit/suspect_marks.h"

#include <optional>

#include "cluster/node_faults.h"

namespace muster::coscheduling {

void SuspectMarks::Observe(const kube::Pod& pod, const GangKey& gang) {
  const kube::Pod* known = snapshot_.FindPod(pod.meta.uid);
  if (pod.IsBound() && known != nullptr && !known->IsBound()) bound_.insert(pod.meta.uid);
  if (!all_read_ || !cluster::NodeFault(pod)) return;
  const bool ended_before =
      known != nullptr && cluster::NodeFault(*known) && known->ended_at == pod.ended_at;
  if (!ended_before) failed_pods_.emplace_back(pod, gang);
}

void SuspectMarks::NoteRemoved(const kube::Pod& pod) {
  bound_.erase(pod.meta.uid);
  if (pod.IsBound() && !pod.IsTerminal()) vanished_[pod.node_name] = agenda_->now();
}

bool SuspectMarks::SpeaksForAll(const kube::Pod& pod) const {
  const auto vanished = vanished_.find(pod.node_name);
  return cluster::KubeletRejection(pod) && bound_.contains(pod.meta.uid) &&
         (vanished == vanished_.end() || vanished->second + options_.suspect_time < agenda_->now());
}

void SuspectMarks::Report(const kube::Pod& pod, const GangKey& gang) {
  const std::optional<std::string> fault = cluster::NodeFault(pod);
  if (!fault) return;
  const cluster::NodeInfo* info = snapshot_.FindNode(pod.node_name);
  const bool taken = info == nullptr || cluster::IsTakenByOthers(pod, *info);
  if (taken && cluster::KubeletRejection(pod)) return;
  if (!suspects_->Report(pod, gang.ToString(), *fault, SpeaksForAll(pod), agenda_->now())) return;
  candidates_.insert(pod.node_name);
  changed_.insert(pod.node_name);
}

void SuspectMarks::Observe(const cluster::Journal& journal) {
  for (const auto& [name, entry] : journal.nodes) {
    if (!entry.observed.HasAny(cluster::kOfObjects)) continue;
    const kube::Node* node = snapshot_.FindNodeObject(name);
    if (node == nullptr) {
      vanished_.erase(name);
      if (annotated_.erase(name) > 0 || suspects_->Find(name) != nullptr) suspects_->Forget(name);
      continue;
    }
    const std::string* annotation = node->meta.Annotation(cluster::kSuspectAnnotation);
    if (annotation != nullptr) {
      annotated_.insert(name);
      const bool known = suspects_->Find(name) != nullptr;
      suspects_->Restore(name, *annotation);
      if (!known) changed_.insert(name);
    } else if (annotated_.erase(name) > 0) {
      suspects_->Forget(name);  // somebody took it away
      changed_.insert(name);
    }
    if (annotation != nullptr || cluster::FindSuspectTaint(*node)) candidates_.insert(name);
  }
}

std::vector<std::string> SuspectMarks::Update() {
  for (const auto& [pod, gang] : std::exchange(failed_pods_, {})) Report(pod, gang);
  if (!all_read_) {
    // What happened before this process began counts once it knows all that the Nodes say.
    all_read_ = true;
    for (const auto& [key, gang] : gangs_.all()) {
      for (const kube::Pod* pod : gangs_.PodsOf(gang)) Report(*pod, key);
    }
  }
  for (std::string& node : suspects_->Expire(agenda_->now())) changed_.insert(std::move(node));
  agenda_->WakeAt(suspects_->NextExpiry());
  std::vector<std::string> changed(changed_.begin(), changed_.end());
  changed_.clear();
  return changed;
}

void SuspectMarks::Reconcile() {
  for (auto it = candidates_.begin(); it != candidates_.end();) {
    const kube::Node* node = snapshot_.FindNodeObject(*it);
    const bool settled = node == nullptr || Mark(*node);
    const bool keep = !settled || suspects_->Find(*it) != nullptr;
    it = keep ? std::next(it) : candidates_.erase(it);
  }
}

// True if the Node says of itself what it should.
bool SuspectMarks::Mark(const kube::Node& node) {
  const cluster::SuspectNodes::Entry* entry = suspects_->Find(node.meta.name);
  if (entry != nullptr && entry->turned_away.empty()) entry = nullptr;
  const std::string target = "node/" + node.meta.name;
  std::optional<std::string> want, have;
  if (entry != nullptr) want = cluster::SuspectAnnotationOf(*entry);
  if (const std::string* text = node.meta.Annotation(cluster::kSuspectAnnotation)) have = *text;
  if (want != have) {
    outbox_->Act(target, AnnotateNode{node.meta.name,
                                      node.meta.resource_version,
                                      {{std::string(cluster::kSuspectAnnotation), want}}});
    return false;
  }
  TaintNode taint;
  taint.node = node.meta.name;
  taint.resource_version = node.meta.resource_version;
  taint.key = std::string(cluster::kSuspectTaint);
  const std::optional<size_t> at = cluster::FindSuspectTaint(node);
  std::string value;
  if (entry != nullptr && options_.taint_suspects) value = cluster::SuspectTaintValueOf(*entry);
  if ((at ? node.taints[*at].value : "") == value && at.has_value() == !value.empty()) return true;
  taint.remove = at;
  taint.none_there = node.taints.empty();
  if (!value.empty()) {
    taint.add =
        kube::Taint{std::string(cluster::kSuspectTaint), value, kube::TaintEffect::kNoSchedule};
  }
  outbox_->Act(target, std::move(taint));
  return false;
}

}  // namespace muster::coscheduling
