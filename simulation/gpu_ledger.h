// What nodes cost and what they did for it: GPU-time bought, used, and wasted, and why.
//
// A node's GPUs are paid for from its launch (or from the start, if it was there) until it is gone.
// A GPU is used while a bound, not yet ended member of a whole gang has it: one of which at least
// minMember members are bound or have succeeded. All other time is wasted, for the first of these
// reasons that holds:
//
//   kInPart       a member has it whose gang lost others, and is whole no more
//   kComingUp     a gang waits for it; the node isn't usable yet       \
//   kNeverUsable  the same, of a node that was gone before it was       |  before a gang's
//   kWaiting      a gang waits for it, or has bound some members only   |  start
//   kInVain       the same, of a gang that then gave up, or was gone   /
//   kBeside       others of the node's GPUs are used
//   kEnded        the gang that used the node has ended
//   kGaveUp       a gang for which it was bought gave up, or is gone, before it started
//   kUnwanted     those for which it was bought started without it, or nobody asked for it
//
// "A gang waits for it": the node is held for a gang; or it has never been used and a gang that
// asked for nodes when this one was ordered still does; or a gang that asks could use it, whoever
// ordered it and whoever has used it: each takes as many idle GPUs as its unbound members ask for
// in the NodePool that they name, gangs in order of their first members, nodes that are held first,
// then those that it ordered, then usable ones. A gang asks while one of its members is signalled,
// or ungated and not bound, and while its PodGroup says that it is admitted and one isn't bound.
// All of it is read from objects that are there whoever schedules, so that policies can be
// compared.
//
// Exact: whole milliseconds times whole GPUs. Bought is used plus wasted, always. Pure: no clock,
// no I/O; the changes of one moment count as one, as of its end:
//
//   ledger.MoveTo(now); ledger.SetNode(...); ledger.SetMember(...); ledger.EndMoment();
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::simulation {

using Millis = int64_t;   // since the start of the world
using GpuTime = int64_t;  // GPU-milliseconds

// "12.345"
std::string Seconds(Millis time);

enum class Idle {
  kInPart,
  kComingUp,
  kNeverUsable,
  kWaiting,
  kInVain,
  kBeside,
  kEnded,
  kGaveUp,
  kUnwanted
};
inline constexpr size_t kIdleReasons = 9;
// Those before the start of a gang that waits for the node.
inline constexpr std::array kBeforeStart = {Idle::kComingUp, Idle::kNeverUsable, Idle::kWaiting,
                                            Idle::kInVain};
// Neither those nor after a give-up.
inline constexpr std::array kOtherwise = {Idle::kInPart, Idle::kBeside, Idle::kEnded,
                                          Idle::kUnwanted};

// "coming up", "after a give-up", ...
std::string_view IdleName(Idle reason);

struct GpuAccount {
  GpuTime bought = 0;
  GpuTime used = 0;
  std::array<GpuTime, kIdleReasons> idle{};  // by Idle

  GpuTime Of(Idle reason) const { return idle[static_cast<size_t>(reason)]; }
  // What was wasted: in all; before a gang's start; for the other reasons but kGaveUp.
  GpuTime Wasted() const;
  GpuTime BeforeStart() const;
  GpuTime Otherwise() const { return Wasted() - BeforeStart() - Of(Idle::kGaveUp); }
  void Add(const GpuAccount& other);
  bool operator==(const GpuAccount&) const = default;
};

// A node as it is now.
struct NodeFacts {
  std::string name{};  // empty until it has registered
  std::string type{};
  std::string pool{};
  bool bought = false;  // not there from the start
  bool paid = false;
  bool usable = false;  // Ready and with all of its devices
  bool held = false;
  int64_t gpus = 0;
  bool operator==(const NodeFacts&) const = default;
};

struct MemberFacts {
  std::string gang;
  std::string node{};  // empty: not bound
  std::string pool{};  // the NodePool that it asks for; empty: any
  int64_t gpus = 0;
  bool asks = false;  // unbound, and signalled or ungated
  bool live = true;   // neither ended nor being deleted
  bool succeeded = false;
  bool endless = false;  // runs until it is deleted
  bool operator==(const MemberFacts&) const = default;
};

struct NodeAccount {
  std::string id;
  NodeFacts facts;                // as they were last
  std::optional<Millis> from;     // when it was paid first
  std::optional<Millis> until{};  // when it was gone
  GpuAccount gpu;
};

struct GangAccount {
  std::string name;
  int64_t min_member = 1;
  int64_t members = 0;  // at most at once
  int64_t succeeded = 0;
  Millis created = 0;
  std::optional<Millis> started{};  // first whole
  std::optional<Millis> ended{};    // no member is left
  int64_t restarts = 0;             // whole again after it wasn't any more
  int64_t give_ups = 0;             // asked no longer, and hadn't started

  bool Completed() const { return succeeded >= min_member; }
};

class GpuLedger {
 public:
  // Never goes back.
  void MoveTo(Millis now) { now_ = now; }
  // All that changed at this moment is in. Costs something only if anything did.
  void EndMoment();

  // `id` is a node's for its whole life, from its order on.
  void SetNode(const std::string& id, NodeFacts facts);
  // False if there is no such node.
  bool RemoveNode(const std::string& id);
  void SetMember(const std::string& uid, MemberFacts facts);
  void RemoveMember(const std::string& uid);
  void SetGroup(const std::string& gang, int64_t min_member, bool admitted);

  // Nothing that is bought idles, and no gang waits or will end.
  bool AtRest() const;

  // In order of their orders; those never paid left out.
  std::vector<NodeAccount> Nodes() const;
  // In order of their first members.
  std::vector<GangAccount> Gangs() const;
  // Of nodes that were bought; of those there from the start.
  GpuAccount Total(bool bought) const;

 private:
  struct Gang {
    GangAccount account;
    size_t number = 0;
    std::set<std::string> members;  // UIDs
    bool asks = false, whole = false, any_live = false;
  };
  struct Node {
    NodeAccount account;
    std::set<std::string> wanted_by;  // gangs that asked when it was ordered
    bool used = false;                // ever
    bool was_usable = false;          // ever
    int64_t taken = 0;                // of its idle GPUs, by gangs that ask and could use them
    std::string waits_for;            // the first of these gangs; or one that has it in part
    // What was booked as kWaiting for gangs of which it isn't known yet whether they start.
    std::map<std::string, GpuTime> waited;
    GpuAccount rate;  // per millisecond, as things are
  };

  void Book();
  GpuAccount GpuOf(const Node& node) const;  // until now
  bool Asks(const Gang& gang) const;
  void RefreshGang(Gang* gang);
  // The gang has started, or won't in this attempt.
  void SettleWaiting(const std::string& gang, bool in_vain);
  void TakeIdle();
  std::vector<const MemberFacts*> StandingOn(const std::string& node) const;
  void RefreshRate(Node* node, const std::vector<const MemberFacts*>& members);
  bool IsWanted(const Node& node) const;
  Idle WhyIdle(const Node& node, bool wanted, bool partly_used) const;
  Gang& GangOf(const std::string& name);

  Millis now_ = 0;
  Millis booked_ = 0;
  bool changed_ = false;
  std::map<std::string, Gang> gangs_;
  struct Group {
    int64_t min_member = 1;
    bool admitted = false;
    bool operator==(const Group&) const = default;
  };
  std::map<std::string, Group> groups_;         // by gang
  std::map<std::string, MemberFacts> members_;  // by UID
  // Live ones that are bound, by node; and gangs about which something has changed.
  std::map<std::string, std::set<std::string>> standing_;
  std::set<std::string> changed_gangs_;
  std::map<std::string, size_t> current_;  // node id -> its place in nodes_
  std::vector<Node> nodes_;                // gone ones too
};

}  // namespace muster::simulation
