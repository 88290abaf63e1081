#include "coscheduling/provisioning/setbacks.h"

#include <algorithm>
#include <utility>

namespace muster::coscheduling {
namespace {

using cluster::BringUp;
using cluster::ClaimSight;

constexpr std::string_view kRefused = "InsufficientCapacityError";

size_t IndexOf(BringUp stage) { return static_cast<size_t>(stage); }

// Of a Setbacks::Claim: neither told as failed nor done.
bool IsComing(const auto& claim) { return !claim.failed && claim.sight.stage != BringUp::kDone; }

// From when on a stage that isn't passed is worth telling.
absl::Time LateFrom(const auto& claim, const StageLimits& limits) {
  return claim.since + limits[IndexOf(claim.sight.stage)] / 2;
}

// What keeps the claim in its stage, INSUFFICIENT_CAPACITY apart.
v1::ReasonCode CodeOfLack(const ClaimSight& sight) {
  if (sight.stage == BringUp::kLaunch) return v1::LAUNCH_FAILED;
  if (sight.stage == BringUp::kRegistration) return v1::NODE_NOT_REGISTERED;
  if (sight.startup_taint) return v1::STARTUP_TAINT_STAYS;
  return sight.incomplete ? v1::NODES_INCOMPLETE : v1::NODE_NOT_INITIALIZED;
}

// What it was that a claim that went had before it. One that Karpenter removes because it was of no
// use is told by what it lacked.
v1::ReasonCode CodeOfEnd(const ClaimSight& sight) {
  const bool was_up = sight.stage > BringUp::kRegistration;
  return was_up && !sight.startup_taint && !sight.incomplete ? v1::NODE_TAKEN_BACK
                                                             : CodeOfLack(sight);
}

}  // namespace

Setbacks::Kind Setbacks::KindOf(v1::ReasonCode code, const ClaimSight& claim) {
  return {code, claim.node_pool, claim.instance_type, claim.zone};
}

const Setbacks::GangEntry& Setbacks::EntryOf(const GangKey& gang) const {
  static const GangEntry kNew;
  const auto it = gangs_.find(gang);
  return it == gangs_.end() ? kNew : it->second;
}

Setback Setbacks::Standing(const Claim& claim, const BringUpLimits& limits, absl::Time now) {
  return {.code = CodeOfLack(claim.sight),
          .claim = claim.sight,
          .first = claim.since,
          .last = claim.since,
          .stands = true,
          .early = !claim.sight.failing && now < LateFrom(claim, limits.stages)};
}

void Setbacks::Add(GangEntry* gang, const Setback& setback) {
  auto [it, added] = gang->met.try_emplace(KindOf(setback.code, setback.claim), setback);
  if (!added) {
    Setback& known = it->second;
    const int64_t times = known.times + 1;
    const absl::Time first = known.first;
    known = setback;
    known.times = times;
    known.first = first;
  }
  if (gang->met.size() <= kKinds) return;
  gang->met.erase(
      std::ranges::min_element(gang->met, {}, [](const auto& entry) { return entry.second.last; }));
}

std::vector<GangKey> Setbacks::Fail(Claim* claim, v1::ReasonCode code, const std::string& words,
                                    absl::Time now) {
  if (claim->failed) return {};
  claim->failed = true;
  std::vector<GangKey> told;
  for (const GangKey& key : claim->counted_by.empty() ? claim->made_for : claim->counted_by) {
    auto it = gangs_.find(key);
    if (it == gangs_.end() || it->second.stopped) continue;
    GangEntry& gang = it->second;
    Setback setback = {.code = code, .claim = claim->sight, .first = now, .last = now};
    if (!words.empty()) setback.claim.words = words;
    Add(&gang, setback);
    if (claim->sight.stage != BringUp::kDone) {
      absl::Time& since = gang.failing_since[IndexOf(claim->sight.stage)];
      since = std::min(since, StageBegan(gang, *claim));
      if (code == v1::INSUFFICIENT_CAPACITY) gang.refused_since = std::min(gang.refused_since, now);
    }
    told.push_back(key);
  }
  return told;
}

// Why the claim goes, or went: its end alone didn't say so.
std::vector<GangKey> Setbacks::Refuse(Claim* claim, const std::string& words, absl::Time now) {
  if (claim->refused || claim->sight.stage != BringUp::kLaunch) return {};
  claim->refused = true;
  const Kind kind = KindOf(v1::INSUFFICIENT_CAPACITY, claim->sight);
  refused_last_[kind] = {now, StandingIn(claim->sight.node_pool, claim->sight.zone)};
  if (refused_last_.size() > kKinds) {
    refused_last_.erase(std::ranges::min_element(
        refused_last_, {}, [](const auto& entry) { return entry.second.at; }));
  }
  if (claim->failed) {
    const Kind unexplained = KindOf(v1::LAUNCH_FAILED, claim->sight);
    for (const GangKey& key : claim->counted_by.empty() ? claim->made_for : claim->counted_by) {
      auto it = gangs_.find(key);
      if (it == gangs_.end() || it->second.stopped) continue;
      auto met = it->second.met.find(unexplained);
      if (met != it->second.met.end() && --met->second.times == 0) it->second.met.erase(met);
    }
    claim->failed = false;
  }
  std::vector<GangKey> told = Fail(claim, v1::INSUFFICIENT_CAPACITY, words, now);
  // They try again later for it.
  for (const auto& [key, gang] : gangs_) {
    if (gang.stopped && gang.met.contains(kind)) told.push_back(key);
  }
  return told;
}

std::vector<GangKey> Setbacks::See(const ClaimSight& sight, absl::Time now) {
  Claim& claim = claims_[sight.name];
  const bool first = claim.sight.name.empty();
  const BringUp before = claim.sight.stage;
  const BringUp stage = sight.going && !first ? before : sight.stage;
  if (first || stage > before) {
    claim.since = std::max(claim.since, std::min(sight.since, now));
  } else if (stage < before) {
    claim.since = now;
  }
  ClaimSight seen = sight;
  seen.stage = stage;
  if (sight.going && !first) {
    seen.startup_taint = claim.sight.startup_taint;
    seen.incomplete = claim.sight.incomplete;
    // What it lacked is what its gang waits for; Karpenter's reason to remove it only follows.
    const bool lacked = CodeOfEnd(claim.sight) != v1::NODE_TAKEN_BACK && !claim.sight.words.empty();
    if (lacked || seen.words.empty()) seen.words = claim.sight.words;
  }
  claim.sight = std::move(seen);
  if (stage > BringUp::kLaunch && !claim.counted_in) {
    claim.counted_in.emplace(claim.sight.node_pool, claim.sight.zone);
    ++launched_[*claim.counted_in];
  }
  if (auto early = refused_early_.find(sight.name); early != refused_early_.end()) {
    const std::string words = std::move(early->second.words);
    refused_early_.erase(early);
    return Refuse(&claim, words, now);
  }
  // One that isn't launched is awaited to its end: it says more, or the event does.
  if (!sight.going || stage == BringUp::kLaunch) return {};
  return Fail(&claim, CodeOfEnd(claim.sight), "", now);
}

std::vector<GangKey> Setbacks::Gone(const std::string& claim, absl::Time now) {
  auto it = claims_.find(claim);
  if (it == claims_.end() || it->second.gone) return {};
  Claim& known = it->second;
  known.gone = true;
  if (known.counted_in) {
    auto standing = launched_.find(*known.counted_in);
    if (--standing->second == 0) launched_.erase(standing);
    known.counted_in.reset();
  }
  std::vector<GangKey> told = Fail(&known, CodeOfEnd(known.sight), "", now);
  for (const GangKey& key : known.counted_by) gangs_.at(key).claims.erase(claim);
  gone_.push_back(claim);
  if (gone_.size() > kRemembered) {
    claims_.erase(gone_.front());
    gone_.pop_front();
  }
  return told;
}

void Setbacks::Withdraw(const std::string& claim) {
  if (auto it = claims_.find(claim); it != claims_.end()) it->second.failed = true;
}

std::set<GangKey> Setbacks::Concerned(const std::string& claim) const {
  auto it = claims_.find(claim);
  if (it == claims_.end()) return {};
  std::set<GangKey> concerned = it->second.made_for;
  concerned.insert(it->second.counted_by.begin(), it->second.counted_by.end());
  return concerned;
}

absl::Time Setbacks::OverdueFrom(const std::string& claim, const StageLimits& limits) const {
  auto it = claims_.find(claim);
  if (it == claims_.end() || !IsComing(it->second)) return absl::InfiniteFuture();
  const Claim& known = it->second;
  switch (known.sight.stage) {
    case BringUp::kRegistration:
      return LateFrom(known, limits);
    case BringUp::kInitialization:
      return known.since + limits[IndexOf(BringUp::kInitialization)];
    default:
      return absl::InfiniteFuture();
  }
}

std::vector<GangKey> Setbacks::Note(const kube::Event& event, absl::Time now) {
  // One that lies in a user's namespace can't be Karpenter's: a NodeClaim has none.
  if (event.type != "Warning" || event.reason != kRefused || event.about.kind != "NodeClaim" ||
      !event.about.name_space.empty() || event.last + kNews < now) {
    return {};
  }
  auto it = claims_.find(event.about.name);
  if (it != claims_.end() && !it->second.sight.name.empty()) {
    return Refuse(&it->second, cluster::WordsOf(event), now);
  }
  if (refused_early_.try_emplace(event.about.name, EarlyRefusal{cluster::WordsOf(event), now})
          .second) {
    early_order_.push_back(event.about.name);
  }
  while (!early_order_.empty()) {
    auto oldest = refused_early_.find(early_order_.front());
    const bool known = oldest != refused_early_.end();
    if (known && early_order_.size() <= kRemembered && now < oldest->second.at + kNews) break;
    if (known) refused_early_.erase(oldest);
    early_order_.pop_front();
  }
  return {};
}

void Setbacks::Release(const GangKey& gang, GangEntry* entry) {
  for (const std::string& name : entry->claims) {
    auto it = claims_.find(name);
    if (it != claims_.end()) it->second.counted_by.erase(gang);
  }
  entry->claims.clear();
}

std::vector<GangKey> Setbacks::CountOn(const GangKey& gang, absl::Time attempt,
                                       const std::set<std::string>& claims, bool complete,
                                       bool failed_before) {
  std::vector<GangKey> others;
  auto [it, added] = gangs_.try_emplace(gang);
  GangEntry& entry = it->second;
  if (added || entry.attempt != attempt) {
    Release(gang, &entry);
    entry = GangEntry();
    entry.attempt = attempt;
    if (failed_before) entry.refused_since = attempt;
  }
  entry.stopped = false;
  if (complete) Release(gang, &entry);
  BringUp behind = BringUp::kDone;
  for (const std::string& name : claims) {
    auto found = claims_.find(name);
    if (found == claims_.end() || found->second.gone) continue;
    Claim& claim = found->second;
    behind = std::min(behind, claim.sight.stage);
    // Whoever had its eye on it before has no right to it now.
    for (const GangKey& other : claim.counted_by) {
      if (other == gang) continue;
      gangs_.at(other).claims.erase(name);
      others.push_back(other);
    }
    claim.counted_by = {gang};
    entry.claims.insert(name);
  }
  if (!complete) return others;
  for (size_t stage = 0; stage < IndexOf(behind); ++stage) {
    entry.failing_since[stage] = absl::InfiniteFuture();
  }
  if (behind > BringUp::kLaunch) entry.refused_since = absl::InfiniteFuture();
  for (auto& [kind, setback] : entry.met)
    setback.overcome |= coscheduling::KindOf(setback.code).behind < behind;
  return others;
}

void Setbacks::Stop(const GangKey& gang, const BringUpLimits& limits, absl::Time now) {
  auto it = gangs_.find(gang);
  if (it == gangs_.end() || it->second.stopped) return;
  GangEntry& entry = it->second;
  for (const std::string& name : entry.claims) {
    const Claim& claim = claims_.at(name);
    if (!IsComing(claim)) continue;
    Add(&entry, Standing(claim, limits, now));
  }
  Release(gang, &entry);
  entry.stopped = true;
}

void Setbacks::Forget(const GangKey& gang) {
  auto it = gangs_.find(gang);
  if (it == gangs_.end()) return;
  Release(gang, &it->second);
  gangs_.erase(it);
}

std::vector<Setback> Setbacks::Of(const GangKey& gang, const BringUpLimits& limits, absl::Time now,
                                  bool all) const {
  std::vector<Setback> list;
  const GangEntry& entry = EntryOf(gang);
  for (const auto& [kind, setback] : entry.met) list.push_back(setback);
  for (const std::string& name : entry.claims) {
    const Claim& claim = claims_.at(name);
    if (!IsComing(claim)) continue;
    Setback setback = Standing(claim, limits, now);
    if (all || !setback.early) list.push_back(std::move(setback));
  }
  std::ranges::stable_sort(list, {}, [](const Setback& setback) {
    return std::tuple(
        setback.overcome, setback.early, setback.early ? setback.last : absl::InfinitePast(),
        &coscheduling::KindOf(setback.code), absl::UnixEpoch() - setback.last, setback.claim.name);
  });
  return list;
}

absl::Time Setbacks::LastRefusal(const GangKey& gang) const {
  absl::Time last = absl::InfinitePast();
  for (const auto& [kind, setback] : EntryOf(gang).met) {
    auto refused = refused_last_.find(kind);
    if (refused != refused_last_.end()) last = std::max(last, refused->second.at);
  }
  return last;
}

absl::Time Setbacks::LastRefusalIn(std::string_view zone) const {
  absl::Time last = absl::InfinitePast();
  for (const auto& [kind, refusal] : refused_last_) {
    if (std::get<3>(kind) == zone) last = std::max(last, refusal.at);
  }
  return last;
}

int64_t Setbacks::RoomSinceRefusal(const GangKey& gang) const {
  int64_t room = 0;
  for (const auto& [kind, setback] : EntryOf(gang).met) {
    auto refused = refused_last_.find(kind);
    if (refused == refused_last_.end()) continue;
    room = std::max(
        room, refused->second.standing - StandingIn(setback.claim.node_pool, setback.claim.zone));
  }
  return room;
}

int64_t Setbacks::StandingIn(const std::string& node_pool, const std::string& zone) const {
  if (auto it = launched_.find({node_pool, zone}); it != launched_.end()) return it->second;
  int64_t standing = 0;
  for (auto it = launched_.lower_bound({node_pool, ""});
       it != launched_.end() && it->first.first == node_pool; ++it) {
    standing += it->second;
  }
  return standing;
}

// A claim that was there before the attempt has its time anew.
absl::Time Setbacks::StageBegan(const GangEntry& gang, const Claim& claim) {
  return std::max(claim.since, gang.attempt);
}

Setbacks::Limit Setbacks::NextLimit(const GangKey& gang, const BringUpLimits& limits) const {
  Limit next;
  const GangEntry& entry = EntryOf(gang);
  if (entry.stopped) return next;
  auto consider = [&](absl::Time since, BringUp stage, absl::Duration length) {
    if (since + length < next.at) next = {since + length, stage, length};
  };
  for (size_t stage = 0; stage < cluster::kBringUps; ++stage) {
    consider(entry.failing_since[stage], static_cast<BringUp>(stage), limits.stages[stage]);
  }
  consider(entry.refused_since, BringUp::kLaunch, limits.refused);
  for (const std::string& name : entry.claims) {
    const Claim& claim = claims_.at(name);
    if (!IsComing(claim)) continue;
    consider(StageBegan(entry, claim), claim.sight.stage,
             limits.stages[IndexOf(claim.sight.stage)]);
  }
  return next;
}

absl::Time Setbacks::NextLate(const GangKey& gang, const BringUpLimits& limits,
                              absl::Time now) const {
  absl::Time next = absl::InfiniteFuture();
  for (const std::string& name : EntryOf(gang).claims) {
    const Claim& claim = claims_.at(name);
    if (!IsComing(claim)) continue;
    const absl::Time late = LateFrom(claim, limits.stages);
    if (late > now) next = std::min(next, late);
  }
  return next;
}

}  // namespace muster::coscheduling
