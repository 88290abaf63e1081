#include "simulation/gpu_ledger.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fmt/format.h"

namespace muster::simulation {
namespace {

void Move(Idle from, Idle to, GpuTime time, GpuAccount* gpu) {
  gpu->idle[static_cast<size_t>(from)] -= time;
  gpu->idle[static_cast<size_t>(to)] += time;
}

}  // namespace

std::string Seconds(Millis time) { return fmt::format("{}.{:03}", time / 1'000, time % 1'000); }

std::string_view IdleName(Idle reason) {
  switch (reason) {
    case Idle::kInPart:
      return "gang not whole";
    case Idle::kComingUp:
      return "coming up";
    case Idle::kNeverUsable:
      return "never usable";
    case Idle::kWaiting:
      return "waiting for a start";
    case Idle::kInVain:
      return "waiting in vain";
    case Idle::kBeside:
      return "beside a gang";
    case Idle::kEnded:
      return "after a gang's end";
    case Idle::kGaveUp:
      return "after a give-up";
    case Idle::kUnwanted:
      return "unwanted";
  }
  return "";
}

GpuTime GpuAccount::Wasted() const { return std::accumulate(idle.begin(), idle.end(), GpuTime{0}); }

GpuTime GpuAccount::BeforeStart() const {
  return std::accumulate(kBeforeStart.begin(), kBeforeStart.end(), GpuTime{0},
                         [this](GpuTime sum, Idle reason) { return sum + Of(reason); });
}

void GpuAccount::Add(const GpuAccount& other) {
  bought += other.bought;
  used += other.used;
  for (size_t i = 0; i < kIdleReasons; ++i) idle[i] += other.idle[i];
}

// Rates change in EndMoment only, so what is used and idles is booked no more often than that.
void GpuLedger::Book() {
  const Millis passed = now_ - booked_;
  if (passed == 0) return;
  for (const auto& [id, place] : current_) {
    Node& node = nodes_[place];
    node.account.gpu = GpuOf(node);
    const GpuTime waited = node.rate.Of(Idle::kWaiting) * passed;
    if (waited > 0 && !node.waits_for.empty()) node.waited[node.waits_for] += waited;
  }
  booked_ = now_;
}

GpuAccount GpuLedger::GpuOf(const Node& node) const {
  GpuAccount gpu = node.account.gpu;
  if (node.account.until) return gpu;
  const Millis passed = now_ - booked_;
  gpu.bought += node.rate.bought * passed;
  gpu.used += node.rate.used * passed;
  for (size_t i = 0; i < kIdleReasons; ++i) gpu.idle[i] += node.rate.idle[i] * passed;
  return gpu;
}

void GpuLedger::SetNode(const std::string& id, NodeFacts facts) {
  auto [it, is_new] = current_.try_emplace(id, nodes_.size());
  if (!is_new && nodes_[it->second].account.facts == facts) return;
  changed_ = true;
  if (is_new) {
    Node& ordered = nodes_.emplace_back();
    ordered.account.id = id;
    for (const auto& [name, gang] : gangs_) {
      if (Asks(gang)) ordered.wanted_by.insert(name);
    }
  }
  Node& node = nodes_[it->second];
  NodeAccount& account = node.account;
  if (facts.paid && !account.from) account.from = now_;
  node.was_usable |= facts.usable;
  account.facts = std::move(facts);
}

bool GpuLedger::RemoveNode(const std::string& id) {
  const auto it = current_.find(id);
  if (it == current_.end()) return false;
  Book();
  changed_ = true;
  Node& node = nodes_[it->second];
  node.account.until = now_;
  if (!node.was_usable) {
    GpuAccount& gpu = node.account.gpu;
    Move(Idle::kComingUp, Idle::kNeverUsable, gpu.Of(Idle::kComingUp), &gpu);
  }
  current_.erase(it);
  return true;
}

GpuLedger::Gang& GpuLedger::GangOf(const std::string& name) {
  auto [it, is_new] = gangs_.try_emplace(name);
  if (is_new) {
    it->second.account.name = name;
    it->second.account.created = now_;
    it->second.number = gangs_.size();
  }
  return it->second;
}

void GpuLedger::SetMember(const std::string& uid, MemberFacts facts) {
  const auto known = members_.find(uid);
  if (known != members_.end() && known->second == facts) return;
  if (known != members_.end()) RemoveMember(uid);
  changed_ = true;
  GangOf(facts.gang).members.insert(uid);
  changed_gangs_.insert(facts.gang);
  if (facts.live && !facts.node.empty()) standing_[facts.node].insert(uid);
  members_[uid] = std::move(facts);
}

void GpuLedger::RemoveMember(const std::string& uid) {
  const auto it = members_.find(uid);
  if (it == members_.end()) return;
  changed_ = true;
  const MemberFacts& facts = it->second;
  gangs_.at(facts.gang).members.erase(uid);
  changed_gangs_.insert(facts.gang);
  const auto node = standing_.find(facts.node);
  if (node != standing_.end() && node->second.erase(uid) > 0 && node->second.empty()) {
    standing_.erase(node);
  }
  members_.erase(it);
}

void GpuLedger::SetGroup(const std::string& gang, int64_t min_member, bool admitted) {
  const Group group{min_member, admitted};
  const auto [it, is_new] = groups_.try_emplace(gang, group);
  if (!is_new && it->second == group) return;
  changed_ = true;
  changed_gangs_.insert(gang);
  it->second = group;
}

bool GpuLedger::Asks(const Gang& gang) const {
  const auto group = groups_.find(gang.account.name);
  const bool admitted = group != groups_.end() && group->second.admitted;
  return std::ranges::any_of(gang.members, [&](const std::string& uid) {
    const MemberFacts& member = members_.at(uid);
    return member.live && member.node.empty() && (member.asks || admitted);
  });
}

void GpuLedger::RefreshGang(Gang* gang) {
  const bool was_whole = gang->whole;
  const bool asked = gang->asks;
  int64_t live = 0;
  int64_t placed = 0;
  int64_t succeeded = 0;
  for (const std::string& uid : gang->members) {
    const MemberFacts& member = members_.at(uid);
    live += member.live;
    succeeded += member.succeeded;
    placed += member.succeeded || (member.live && !member.node.empty());
  }
  GangAccount& account = gang->account;
  const auto group = groups_.find(account.name);
  if (group != groups_.end()) account.min_member = group->second.min_member;
  account.members = std::max(account.members, live);
  account.succeeded = std::max(account.succeeded, succeeded);
  gang->any_live = live > 0;
  gang->asks = Asks(*gang);
  gang->whole = placed >= account.min_member && placed > 0;
  if (gang->whole && !was_whole && account.started && gang->any_live) ++account.restarts;
  if (gang->whole && !account.started) {
    account.started = now_;
    SettleWaiting(account.name, /*in_vain=*/false);
  }
  if (asked && !gang->asks && !account.started) {
    account.give_ups += gang->any_live;
    SettleWaiting(account.name, /*in_vain=*/true);
  }
  if (gang->any_live) {
    account.ended.reset();
  } else if (!account.ended) {
    account.ended = now_;
  }
}

void GpuLedger::SettleWaiting(const std::string& gang, bool in_vain) {
  for (Node& node : nodes_) {
    const auto it = node.waited.find(gang);
    if (it == node.waited.end()) continue;
    if (in_vain) Move(Idle::kWaiting, Idle::kInVain, it->second, &node.account.gpu);
    node.waited.erase(it);
  }
}

void GpuLedger::TakeIdle() {
  struct Idling {
    Node* node;
    int64_t gpus;
    int rank = 0;
  };
  std::vector<Idling> idling;
  for (const auto& [id, place] : current_) {
    Node& node = nodes_[place];
    node.taken = 0;
    node.waits_for.clear();
    const NodeFacts& facts = node.account.facts;
    int64_t left = facts.gpus;
    for (const MemberFacts* member : StandingOn(facts.name)) left -= member->gpus;
    if (facts.paid && left > 0) idling.push_back({&node, left});
  }
  std::vector<const Gang*> asking;
  for (const auto& [name, gang] : gangs_) {
    if (gang.asks) asking.push_back(&gang);
  }
  std::ranges::sort(asking, {}, &Gang::number);
  // First come, first served.
  for (const Gang* gang : asking) {
    const std::string& name = gang->account.name;
    for (Idling& one : idling) {
      const NodeFacts& facts = one.node->account.facts;
      const bool wanted = one.node->wanted_by.contains(name);
      one.rank = (facts.held ? 0 : 4) + (wanted ? 0 : 2) + (facts.usable ? 0 : 1);
    }
    if (!std::ranges::is_sorted(idling, {}, &Idling::rank)) {
      std::ranges::stable_sort(idling, {}, &Idling::rank);
    }
    for (const std::string& uid : gang->members) {
      const MemberFacts& member = members_.at(uid);
      if (!member.live || !member.node.empty() || member.gpus == 0) continue;
      const auto room = std::ranges::find_if(idling, [&](const Idling& one) {
        return one.gpus >= member.gpus &&
               (member.pool.empty() || member.pool == one.node->account.facts.pool);
      });
      if (room == idling.end()) continue;
      room->gpus -= member.gpus;
      room->node->taken += member.gpus;
      if (room->node->waits_for.empty()) room->node->waits_for = name;
    }
  }
}

void GpuLedger::EndMoment() {
  if (!std::exchange(changed_, false)) return;
  Book();
  for (const std::string& name : std::exchange(changed_gangs_, {})) {
    // What is known of a group may come before its members.
    const auto gang = gangs_.find(name);
    if (gang != gangs_.end()) RefreshGang(&gang->second);
  }
  TakeIdle();
  for (const auto& [id, place] : current_) {
    Node& node = nodes_[place];
    RefreshRate(&node, StandingOn(node.account.facts.name));
  }
}

std::vector<const MemberFacts*> GpuLedger::StandingOn(const std::string& node) const {
  std::vector<const MemberFacts*> members;
  const auto standing = standing_.find(node);
  if (standing == standing_.end()) return members;
  for (const std::string& uid : standing->second) members.push_back(&members_.at(uid));
  return members;
}

void GpuLedger::RefreshRate(Node* node, const std::vector<const MemberFacts*>& members) {
  node->rate = GpuAccount{};
  const NodeFacts& facts = node->account.facts;
  if (!facts.paid) return;
  GpuAccount& rate = node->rate;
  const auto idles = [&](Idle why, GpuTime gpus) { rate.idle[static_cast<size_t>(why)] += gpus; };
  rate.bought = facts.gpus;
  GpuTime left = facts.gpus;
  for (const MemberFacts* member : members) {
    const GpuTime gpus = std::min(member->gpus, left);
    left -= gpus;
    const Gang& gang = gangs_.at(member->gang);
    if (gang.whole) {
      rate.used += gpus;
      node->used |= gpus > 0;
    } else {
      idles(gang.account.started ? Idle::kInPart : Idle::kWaiting, gpus);
      if (!gang.account.started && node->waits_for.empty()) node->waits_for = member->gang;
    }
  }
  const bool partly_used = rate.used > 0;
  const GpuTime wanted = IsWanted(*node) ? left : std::min<GpuTime>(node->taken, left);
  idles(WhyIdle(*node, /*wanted=*/true, partly_used), wanted);
  idles(WhyIdle(*node, /*wanted=*/false, partly_used), left - wanted);
}

bool GpuLedger::IsWanted(const Node& node) const {
  return node.account.facts.held ||
         (!node.used && std::ranges::any_of(node.wanted_by, [&](const std::string& name) {
           return gangs_.at(name).asks;
         }));
}

Idle GpuLedger::WhyIdle(const Node& node, bool wanted, bool partly_used) const {
  if (wanted) return node.account.facts.usable ? Idle::kWaiting : Idle::kComingUp;
  if (partly_used) return Idle::kBeside;
  if (node.used) return Idle::kEnded;
  const bool given_up = std::ranges::any_of(node.wanted_by, [&](const std::string& name) {
    const Gang& gang = gangs_.at(name);
    return !gang.account.started && !gang.asks;
  });
  return given_up ? Idle::kGaveUp : Idle::kUnwanted;
}

bool GpuLedger::AtRest() const {
  for (const auto& [name, gang] : gangs_) {
    if (gang.any_live && !gang.whole) return false;
    for (const std::string& uid : gang.members) {
      const MemberFacts& member = members_.at(uid);
      if (member.live && !member.endless) return false;
    }
  }
  return std::ranges::all_of(current_, [this](const auto& entry) {
    const Node& node = nodes_[entry.second];
    return !node.account.facts.bought || node.rate.used > 0;
  });
}

std::vector<NodeAccount> GpuLedger::Nodes() const {
  std::vector<NodeAccount> accounts;
  for (const Node& node : nodes_) {
    if (!node.account.from) continue;
    accounts.push_back(node.account);
    accounts.back().gpu = GpuOf(node);
  }
  return accounts;
}

std::vector<GangAccount> GpuLedger::Gangs() const {
  std::vector<const Gang*> gangs;
  for (const auto& [name, gang] : gangs_) gangs.push_back(&gang);
  std::ranges::sort(gangs, {}, &Gang::number);
  std::vector<GangAccount> accounts;
  for (const Gang* gang : gangs) accounts.push_back(gang->account);
  return accounts;
}

GpuAccount GpuLedger::Total(bool bought) const {
  GpuAccount total;
  for (const Node& node : nodes_) {
    if (node.account.facts.bought == bought) total.Add(GpuOf(node));
  }
  return total;
}

}  // namespace muster::simulation
