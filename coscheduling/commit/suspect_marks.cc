// Suspect nodes as the engine learns of them, and the marks that it puts on their Node objects.

#include <algorithm>
#include <utility>

#include "coscheduling/engine_state.h"

namespace muster::coscheduling {
namespace {

std::optional<size_t> FindSuspectTaint(const kube::Node& node) {
  const auto it = std::ranges::find(node.taints, kSuspectTaint, &kube::Taint::key);
  if (it == node.taints.end()) return std::nullopt;
  return static_cast<size_t>(it - node.taints.begin());
}

}  // namespace

void Engine::State::ReportFault(const kube::Pod& pod, const GangKey& key) {
  const std::optional<std::string> fault = NodeFault(pod);
  if (!fault || !suspects.Report(pod, key.ToString(), *fault, clock)) return;
  needs_pass = nodes_changed = true;
  suspect_candidates.insert(pod.node_name);
  NotePlace(pod.node_name);
}

// What happened before this process began counts once it knows all that the Nodes say.
void Engine::State::ReadFaults() {
  for (const auto& [pod, key] : std::exchange(failed_pods, {})) ReportFault(pod, key);
  if (faults_read) return;
  faults_read = true;
  for (const auto& [key, gang] : gangs) {
    for (const std::string& uid : gang.pods) {
      if (const kube::Pod* pod = snapshot.FindPod(uid)) ReportFault(*pod, key);
    }
  }
}

void Engine::State::NoteSuspectMarks(const kube::Node& node, bool had_annotation) {
  const std::string& name = node.meta.name;
  const std::string* annotation = node.meta.Annotation(kSuspectAnnotation);
  if (annotation != nullptr) {
    suspects.Restore(name, *annotation);
  } else if (had_annotation) {
    suspects.Forget(name);  // somebody took it away
  }
  if (annotation != nullptr || FindSuspectTaint(node)) suspect_candidates.insert(name);
}

void Engine::State::MarkSuspects(absl::Time now) {
  for (auto it = suspect_candidates.begin(); it != suspect_candidates.end();) {
    const cluster::NodeInfo* info = snapshot.FindNode(*it);
    const bool settled =
        info == nullptr || info->object == nullptr || MarkSuspect(*info->object, now);
    const bool keep = !settled || suspects.Find(*it) != nullptr;
    it = keep ? std::next(it) : suspect_candidates.erase(it);
  }
}

bool Engine::State::MarkSuspect(const kube::Node& node, absl::Time now) {
  const SuspectNodes::Entry* entry = suspects.Find(node.meta.name);
  const std::string target = "node/" + node.meta.name;
  std::optional<std::string> want;
  if (entry != nullptr) want = SuspectAnnotationOf(*entry);
  std::optional<std::string> have;
  if (const std::string* text = node.meta.Annotation(kSuspectAnnotation)) have = *text;
  if (want != have) {
    Act(target, now,
        AnnotateNode{
            node.meta.name, node.meta.resource_version, {{std::string(kSuspectAnnotation), want}}});
    return false;
  }
  TaintNode taint;
  taint.node = node.meta.name;
  taint.resource_version = node.meta.resource_version;
  taint.key = std::string(kSuspectTaint);
  const std::optional<size_t> at = FindSuspectTaint(node);
  std::string value;
  if (entry != nullptr && options.taint_suspects) value = SuspectTaintValueOf(*entry);
  if ((at ? node.taints[*at].value : "") == value && at.has_value() == !value.empty()) return true;
  taint.remove = at;
  taint.none_there = node.taints.empty();
  if (!value.empty()) {
    taint.add = kube::Taint{std::string(kSuspectTaint), value, kube::TaintEffect::kNoSchedule};
  }
  Act(target, now, std::move(taint));
  return false;
}

}  // namespace muster::coscheduling
