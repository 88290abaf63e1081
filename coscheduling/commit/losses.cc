// Members that a gang has lost, or is about to lose: what is noticed, and what is said about it.
// What is done is decided in decide.cc, by the counts that Refresh makes of it.

#include "coscheduling/commit/losses.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "coscheduling/engine_state.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

constexpr size_t kShown = 3;
// Of pods that are gone; more than that need not be told one by one.
constexpr size_t kRememberedLosses = 64;
// A pod may be seen bound before its node is seen at all.
constexpr absl::Duration kUnseenNode = absl::Seconds(5);

std::string FailureText(const kube::Pod& pod) {
  if (std::optional<std::string> fault = NodeFault(pod)) return *fault;
  std::string why = pod.status_reason;
  for (const std::string& more : {pod.status_message, pod.termination_message.substr(0, 200)}) {
    if (!more.empty()) why += (why.empty() ? "" : ": ") + more;
  }
  return why;
}

// What became of a member that ended or is being deleted.
std::string EndText(const kube::Pod& pod) {
  const std::string where = fmt::format("{} on {}", pod.meta.name, pod.node_name);
  if (pod.phase != kube::PodPhase::kFailed) return where + " is being deleted";
  const std::string why = FailureText(pod);
  return where + " failed" + (why.empty() ? "" : ": " + why);
}

}  // namespace

std::string LossesText(const Losses& losses) {
  std::vector<std::string> texts;
  for (const auto& [uid, loss] : losses) {
    if (!loss.over) texts.push_back(loss.text);
  }
  std::ranges::sort(texts);
  std::string text;
  for (size_t i = 0; i < texts.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : "; ") + texts[i];
  }
  if (texts.size() > kShown) text += fmt::format("; and {} more", texts.size() - kShown);
  return text;
}

// --- nodes ---

void Engine::State::NoteTrouble(const std::string& node) {
  const cluster::NodeInfo* info = snapshot.FindNode(node);
  const auto known = troubles.find(node);
  std::optional<NodeTrouble> before;
  if (known != troubles.end()) before = known->second;
  std::optional<NodeTrouble> trouble = TroubleOf(info, before, clock, options.node_grace);
  // Of a node that is gone only the members are left.
  const bool exists = info != nullptr && info->object != nullptr;
  if (!exists && !shown_on.contains(node)) trouble.reset();
  if (trouble == before) return;
  if (trouble) {
    troubles.insert_or_assign(node, *std::move(trouble));
  } else if (before) {
    troubles.erase(known);
  }
  MarkGangsOn(node);
}

void Engine::State::MarkGangsOn(const std::string& node) {
  const auto shown = shown_on.find(node);
  if (shown == shown_on.end()) return;
  for (Gang* gang : shown->second) gang->dirty = true;
}

void Engine::State::CheckTroubles(absl::Time now) {
  for (const std::string& node : std::exchange(changed_nodes, {})) NoteTrouble(node);
  std::erase_if(troubles, [this](const auto& entry) {
    const cluster::NodeInfo* info = snapshot.FindNode(entry.first);
    return (info == nullptr || info->object == nullptr) && !shown_on.contains(entry.first);
  });
  for (const auto& [node, trouble] : troubles) {
    if (trouble.lost_at > now) {
      if (trouble.lost_at != Never()) WakeAt(trouble.lost_at);
    } else if (trouble.lost_at > troubles_checked) {
      MarkGangsOn(node);
    }
  }
  troubles_checked = now;
}

const NodeTrouble* Engine::State::TroubleOn(const std::string& node) {
  if (const auto it = troubles.find(node); it != troubles.end()) return &it->second;
  const cluster::NodeInfo* info = snapshot.FindNode(node);
  if (info != nullptr && info->object != nullptr) return nullptr;
  NodeTrouble gone = *TroubleOf(nullptr, std::nullopt, clock, options.node_grace);
  gone.lost_at += kUnseenNode;
  WakeAt(gone.lost_at);
  return &troubles.emplace(node, std::move(gone)).first->second;
}

// --- members ---

void Engine::State::FindLosses(Gang& gang) {
  gang.lost.clear();
  Losses losses;
  for (const std::string& uid : gang.pods) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    if (pod == nullptr || !pod->IsBound() || pod->phase == kube::PodPhase::kSucceeded) continue;
    const auto before = gang.losses.find(uid);
    if (pod->IsTerminal() || pod->IsDeleting()) {
      losses[uid] = before != gang.losses.end() ? before->second : Loss{EndText(*pod)};
      continue;
    }
    const NodeTrouble* trouble = TroubleOn(pod->node_name);
    if (trouble == nullptr || clock < trouble->lost_at) continue;
    gang.lost.insert(uid);
    losses[uid] = {fmt::format("{} on {}, which {}", pod->meta.name, pod->node_name, trouble->what),
                   true};
  }
  for (const auto& [uid, loss] : gang.losses) {
    if (!loss.over && snapshot.FindPod(uid) == nullptr && losses.size() < kRememberedLosses) {
      losses.emplace(uid, loss);
    }
  }
  gang.losses = std::move(losses);
}

void Engine::State::NoteRemovedMember(const kube::Pod& pod) {
  const auto it = gang_of_pod.find(pod.meta.uid);
  if (it == gang_of_pod.end() || !pod.IsBound() || pod.phase == kube::PodPhase::kSucceeded) return;
  it->second->losses.try_emplace(
      pod.meta.uid, Loss{fmt::format("{} on {} was deleted", pod.meta.name, pod.node_name)});
}

void Engine::State::ForgetLosses(Gang& gang) {
  std::erase_if(gang.losses,
                [this](const auto& loss) { return snapshot.FindPod(loss.first) == nullptr; });
  for (auto& [uid, loss] : gang.losses) loss.over = true;
}

// --- what is said ---

absl::Time Engine::State::RepairDue(const Gang& gang) const {
  return gang.repairing_since + options.repair_deadline;
}

Reason Engine::State::RepairReason(const Gang& gang) const {
  const int64_t standing = gang.facts.bound + gang.facts.succeeded;
  const int64_t min = gang.facts.min_member;
  std::string lost = LossesText(gang.losses);
  if (!lost.empty()) lost = ": " + lost;
  if (RepairDue(gang) <= clock && gang.facts.bound > 0) {
    const Restarter restarter = RestarterOf(gang);
    const JobGangs::KnownJob* job = restarter.workload == nullptr ? restarter.job : nullptr;
    return {
        v1::RESTARTING_WHOLE,
        fmt::format(
            "{} of {} members were left for {} without the rest; {}{}", standing, min,
            absl::FormatDuration(options.repair_deadline),
            job == nullptr ? "they are evicted" : job->Title() + " is suspended and resumed", lost),
        ""};
  }
  std::string replacements = "replacements have places";
  if (gang.facts.blocked) {
    replacements = gang.blocker.message;
  } else if (gang.unbound.empty()) {
    replacements = "no replacement exists yet";
  } else if (gang.fixed.empty()) {
    replacements = "replacements wait for room: " + ShortfallText(gang) + SuspectText(gang);
  }
  const std::string end =
      gang.facts.bound == 0
          ? "nothing of it is left that would have to be restarted"
          : fmt::format("if it isn't whole by {}, all of it is restarted", Clock(RepairDue(gang)));
  const bool by_node = std::ranges::any_of(
      gang.losses, [](const auto& loss) { return loss.second.by_node && !loss.second.over; });
  return {by_node ? v1::NODE_LOST : v1::MEMBERS_LOST,
          fmt::format("{} of {} members are {}{}; {}; {}", standing, min,
                      gang.facts.bound_before ? "left" : "bound", lost, replacements, end),
          ""};
}

std::optional<Reason> Engine::State::RiskReason(const Gang& gang) const {
  std::map<std::string, size_t> members;  // by node
  for (const std::string& uid : gang.bound) {
    const std::string& node = snapshot.FindPod(uid)->node_name;
    if (troubles.contains(node)) ++members[node];
  }
  if (members.empty()) return std::nullopt;
  Reason reason = {v1::NODE_GOING,
                   fmt::format("{} of {} members bound", gang.facts.bound + gang.facts.succeeded,
                               gang.facts.min_member),
                   ""};
  size_t shown = 0;
  for (const auto& [node, count] : members) {
    const NodeTrouble& trouble = troubles.find(node)->second;
    if (trouble.kind != NodeTrouble::Kind::kGoing) reason.code = v1::NODE_NOT_READY;
    if (++shown > kShown) continue;
    reason.message += fmt::format("; {} {}; ", node, trouble.what);
    if (trouble.kind == NodeTrouble::Kind::kGoing) {
      reason.message +=
          fmt::format("{} member(s) run on there until they end or are evicted", count);
    } else {
      reason.message +=
          fmt::format("{} member(s) there count as lost from {} on", count, Clock(trouble.lost_at));
    }
  }
  if (shown > kShown) reason.message += fmt::format("; and {} more nodes", shown - kShown);
  return reason;
}

std::string Engine::State::SuspectText(const Gang& gang) const {
  std::string text;
  size_t shown = 0;
  for (const auto& [node, entry] : suspects.nodes()) {
    if (!suspects.IsSuspectFor(node, gang.key.ToString())) continue;
    const cluster::NodeInfo* info = snapshot.FindNode(node);
    if (info == nullptr || !info->UsableNow()) continue;
    if (++shown > kShown) continue;
    text += fmt::format("; {} is left out until {}: {}", node, Clock(entry.until), entry.fault);
  }
  if (shown > kShown) text += fmt::format("; and {} more suspect nodes", shown - kShown);
  return text;
}

void Engine::State::AddSuspects(const Gang& gang, Reason* reason) const {
  const std::string text = SuspectText(gang);
  if (text.empty()) return;
  reason->message += text;
  const bool only = gang.refused_nodes.left_out().empty() && gang.shortfall.causes.size() == 1 &&
                    gang.shortfall.causes[0].code == cluster::RejectionCode::kExcluded;
  if (!only) return;
  reason->code = v1::NODES_SUSPECT;
  reason->fix = fmt::format(
      "repair or delete the nodes, or, if they are whole, remove annotation {} from them",
      kSuspectAnnotation);
}

// --- what is remembered ---

// Since when it is being repaired is noted in the record, so that a process that starts meanwhile
// doesn't begin to wait anew.
void Engine::State::NoteRepair(Gang& gang, absl::Time now) {
  if (!gang.record || gang.record->uid != gang.uid()) return;
  AdmissionRecord record = *gang.record;
  const bool waits = gang.state == v1::REPAIRING && gang.facts.bound_before && gang.facts.bound > 0;
  if (waits && !record.repairing_since) {
    record.repairing_since = gang.repairing_since;
  } else if ((gang.state == v1::BOUND || gang.state == v1::REPAIRING) && !waits &&
             record.repairing_since) {
    record.repairing_since.reset();
  } else {
    return;
  }
  WriteRecord(gang, record, now);
}

}  // namespace muster::coscheduling
