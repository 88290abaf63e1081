// What went wrong with the nodes that gangs count on.
//
// Karpenter v1.8 (pkg/controllers/nodeclaim/lifecycle) tells it in three places. A NodeClaim that
// stands says in its conditions what it waits for. One for which there is no capacity is deleted at
// once, and only a Warning event InsufficientCapacityError about it says why; the event and the end
// of the claim come in either order. One that isn't launched within 5 min of its creation, or not
// registered within 15, is deleted without a word and made anew.
//
// So the table keeps, of each NodeClaim, how far it has come, since when, what it lacks, and who
// counts on it; and of each gang what befell the claims that it counted on in this attempt: equal
// setbacks (kind, NodePool, what was asked for) once, with how often and when. Pure: no clock, no
// I/O. Memory: the claims that exist, kRemembered that are gone, kKinds setbacks per gang.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cluster/claim_sight.h"
#include "coscheduling/gang_key.h"
#include "coscheduling/reason.h"
#include "kube/objects/event.h"
#include "muster/v1/states.pb.h"

namespace muster::coscheduling {

// How long one NodeClaim may take for each.
using StageLimits = std::array<absl::Duration, cluster::kBringUps>;

struct BringUpLimits {
  StageLimits stages;
  // How long after a launch was refused for insufficient capacity others may be tried in its place.
  absl::Duration refused;
};

struct Setback {
  v1::ReasonCode code = v1::REASON_UNSPECIFIED;
  cluster::ClaimSight claim;  // the latest one that it befell
  int64_t times = 1;
  absl::Time first;
  absl::Time last;      // of one that stands: since when
  bool stands = false;  // the claim is there and still lacks it
  // It stands, and is neither failing nor late: it may only need its time.
  bool early = false;
  // The gang got past it: other nodes came.
  bool overcome = false;
};

class Setbacks {
 public:
  static constexpr size_t kRemembered = 1'024;
  static constexpr size_t kKinds = 32;

  // --- NodeClaims ---
  bool Knows(const std::string& claim) const { return claims_.contains(claim); }
  // Those for which a claim seems to be made: they are told what befalls it before anybody was
  // given it in a plan.
  void MadeFor(const std::string& claim, std::set<GangKey> gangs) {
    claims_[claim].made_for = std::move(gangs);
  }
  // Each of these returns the gangs for which something changed, LastRefusal included.
  std::vector<GangKey> See(const cluster::ClaimSight& sight, absl::Time now);
  std::vector<GangKey> Gone(const std::string& claim, absl::Time now);
  // It is deleted because nobody needs it: its end is nobody's setback.
  void Withdraw(const std::string& claim);
  // Who counts on it, and for whom it seems to have been made.
  std::set<GangKey> Concerned(const std::string& claim) const;
  // From when on it isn't worth waiting for: it hasn't registered though half of that limit is
  // over, when it counts as late, or hasn't become usable within its limit. A launch that takes too
  // long Karpenter gives up itself.
  absl::Time OverdueFrom(const std::string& claim, const StageLimits& limits) const;
  // InsufficientCapacityError; any other event says nothing, nor does one older than kNews.
  std::vector<GangKey> Note(const kube::Event& event, absl::Time now);
  static constexpr absl::Duration kNews = absl::Minutes(10);

  // --- gangs ---
  // The NodeClaims that a gang's plan is on, in the attempt that began then. If the plan is
  // `complete`, it counts on nothing else, and what is behind all of them is overcome; else it
  // counts on them beside the earlier ones that no other gang's plan is on. Where capacity failed
  // the attempt before, the time for refusals (BringUpLimits) runs from the attempt's beginning:
  // what is still known to be sold out isn't even asked for. Returns those that counted on some of
  // them until now.
  std::vector<GangKey> CountOn(const GangKey& gang, absl::Time attempt,
                               const std::set<std::string>& claims, bool complete,
                               bool failed_before = false);
  // The attempt is over: what stands is kept as it is now, and nothing new befalls the gang.
  void Stop(const GangKey& gang, const BringUpLimits& limits, absl::Time now);
  void Forget(const GangKey& gang);

  // Worst first. What stands is listed once it is late, or whatever its age if `all`: last then,
  // what has stood for longest before the rest.
  std::vector<Setback> Of(const GangKey& gang, const BringUpLimits& limits, absl::Time now,
                          bool all = false) const;

  // When a launch like one that was refused to this gang in its latest attempt was refused to
  // anybody last; InfinitePast if none was.
  absl::Time LastRefusal(const GangKey& gang) const;
  // When a launch in the zone was refused to anybody last; InfinitePast if none was.
  absl::Time LastRefusalIn(std::string_view zone) const;
  // How many nodes fewer stand of that kind now than at that moment: so many there is capacity for
  // again, unless others took it, and more if it grew. 0 if none was refused.
  int64_t RoomSinceRefusal(const GangKey& gang) const;

  struct Limit {
    absl::Time at = absl::InfiniteFuture();  // when it is reached; never
    cluster::BringUp stage = cluster::BringUp::kDone;
    absl::Duration length;  // which it is
  };
  // When the gang has waited for one stage of its nodes for as long as it may. A claim that is made
  // in place of one that failed goes on with its time.
  Limit NextLimit(const GangKey& gang, const BringUpLimits& limits) const;
  // When Of has more to tell though nothing happens.
  absl::Time NextLate(const GangKey& gang, const BringUpLimits& limits, absl::Time now) const;

  size_t size() const { return claims_.size() + refused_early_.size(); }

 private:
  struct Claim {
    cluster::ClaimSight sight;
    absl::Time since;  // of the stage, as it was seen
    std::set<GangKey> counted_by;
    std::set<GangKey> made_for;
    bool failed = false;   // told to its gangs
    bool refused = false;  // for insufficient capacity
    bool gone = false;
    // Where it counts in launched_, once it was launched and until it goes.
    std::optional<std::pair<std::string, std::string>> counted_in;
  };
  using Kind = std::tuple<v1::ReasonCode, std::string, std::string, std::string>;
  struct GangEntry {
    absl::Time attempt;
    bool stopped = false;
    std::set<std::string> claims;
    std::map<Kind, Setback> met;
    // Since when a stage isn't passed, by the claims that failed in it.
    std::array<absl::Time, cluster::kBringUps> failing_since;
    absl::Time refused_since = absl::InfiniteFuture();
    GangEntry() { failing_since.fill(absl::InfiniteFuture()); }
  };
  struct EarlyRefusal {
    std::string words;
    absl::Time at;
  };

  static Kind KindOf(v1::ReasonCode code, const cluster::ClaimSight& claim);
  // What a claim that is coming lacks now.
  static Setback Standing(const Claim& claim, const BringUpLimits& limits, absl::Time now);
  static void Add(GangEntry* gang, const Setback& setback);
  std::vector<GangKey> Fail(Claim* claim, v1::ReasonCode code, const std::string& words,
                            absl::Time now);
  std::vector<GangKey> Refuse(Claim* claim, const std::string& words, absl::Time now);
  // As a new one if nothing is known of it.
  const GangEntry& EntryOf(const GangKey& gang) const;
  void Release(const GangKey& gang, GangEntry* entry);
  static absl::Time StageBegan(const GangEntry& gang, const Claim& claim);

  std::map<std::string, Claim> claims_;
  std::map<GangKey, GangEntry> gangs_;
  std::deque<std::string> gone_;  // oldest first
  std::map<std::string, EarlyRefusal> refused_early_;
  std::deque<std::string> early_order_;
  struct Refusal {
    absl::Time at;
    int64_t standing = 0;  // nodes of that kind that stood then
  };
  // How many nodes that were launched stand, of a NodePool in a zone; all of its zones if `zone`
  // isn't one of them.
  int64_t StandingIn(const std::string& node_pool, const std::string& zone) const;

  // By what was asked for, for anybody; kKinds at most.
  std::map<Kind, Refusal> refused_last_;
  std::map<std::pair<std::string, std::string>, int64_t> launched_;  // by NodePool and zone
};

// --- what setbacks there are, each in one sentence, and what can be done about it
// (setback_reasons.cc) ---

struct SetbackKind {
  v1::ReasonCode code;
  cluster::BringUp behind;  // overcome once this is behind all nodes
  std::string_view since;   // of one that stands: what had been done with it
  std::string_view lacks;
  std::string_view end;  // of claims that went so
  std::string_view fix;  // with the NodePool's name
};

// They lie in one table, worst first: what money can't mend at once, what somebody must put right,
// what may only be slow. For any other code that of NODE_TAKEN_BACK, the last.
const SetbackKind& KindOf(v1::ReasonCode code);

// "p4d.24xlarge in us-west-2a (NodePool gpu-efa) was refused for insufficient capacity 5 times,
// last at 12:04:31Z: WORDS". Says when, never for how long, so that it changes only with what it
// tells.
std::string SentenceOf(const Setback& setback);

// The sentence as a reason, after what is to be said before it.
Reason ReasonOf(const Setback& setback, const std::string& before);

}  // namespace muster::coscheduling
