#include <algorithm>
#include <array>

#include "absl/time/time.h"
#include "coscheduling/provisioning/setbacks.h"
#include "fmt/format.h"
#include "kube/objects/excerpt.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

// Karpenter cuts its own words at 300 characters.
constexpr size_t kMostWords = 300;

std::string WordsAfter(std::string_view separator, const std::string& words) {
  return words.empty() ? "" : fmt::format("{}{}", separator, kube::Excerpt(words, kMostWords));
}

std::string Times(const Setback& setback) {
  if (setback.times == 1) return fmt::format(" at {}", kube::ClockText(setback.last));
  return fmt::format(" {} times, last at {}", setback.times, kube::ClockText(setback.last));
}

// Ends of nodes that were registered.
constexpr std::string_view kNeverWhole = "deleted without having been whole";

constexpr std::array<SetbackKind, 7> kKinds = {{
    {v1::INSUFFICIENT_CAPACITY, cluster::BringUp::kLaunch, "", "", "",
     "wait for capacity, or let NodePool {} take more instance types, zones or capacity types"},
    {v1::LAUNCH_FAILED, cluster::BringUp::kLaunch, "made", "isn't launched", "deleted unlaunched",
     "see what the cloud answers: the NodeClaim's condition Launched, the node class of NodePool "
     "{}, the account's limits"},
    {v1::NODES_INCOMPLETE, cluster::BringUp::kInitialization, "registered", "lacks devices",
     kNeverWhole, "check the device plugin on the node that lacks devices"},
    {v1::STARTUP_TAINT_STAYS, cluster::BringUp::kInitialization, "registered", "keeps", kNeverWhole,
     "check the agent that is to take the taint away, on that node"},
    {v1::NODE_NOT_INITIALIZED, cluster::BringUp::kInitialization, "registered", "isn't initialized",
     kNeverWhole, "check the kubelet, the network plugin and the device plugin on that node"},
    {v1::NODE_NOT_REGISTERED, cluster::BringUp::kRegistration, "launched", "isn't registered",
     "deleted unregistered",
     "see the instance's console output for why its kubelet doesn't join: user data, role, "
     "security groups, image"},
    {v1::NODE_TAKEN_BACK, cluster::BringUp::kLaunch, "", "", "taken back",
     "if it was a spot instance, take capacity type on-demand, which isn't interrupted"},
}};

// What became of claims that went.
std::string EndOf(const Setback& setback, std::string_view what) {
  const std::string many =
      setback.times == 1
          ? ""
          : fmt::format("{} NodeClaims were {}, the last of them ", setback.times, what);
  const std::string one = setback.times == 1 ? fmt::format(" was {}", what) : ",";
  return fmt::format("{}{}{} at {}{}", many, setback.claim.Title(), one,
                     kube::ClockText(setback.last), WordsAfter(": ", setback.claim.words));
}

}  // namespace

const SetbackKind& KindOf(v1::ReasonCode code) {
  const auto* kind = std::ranges::find(kKinds, code, &SetbackKind::code);
  return kind == kKinds.end() ? kKinds.back() : *kind;
}

std::string SentenceOf(const Setback& setback) {
  const SetbackKind& kind = KindOf(setback.code);
  if (setback.stands) {
    const bool taint = setback.code == v1::STARTUP_TAINT_STAYS;
    return fmt::format("{} was {} at {} and {}{}", setback.claim.Title(), kind.since,
                       kube::ClockText(setback.last), kind.lacks,
                       WordsAfter(taint ? " " : ": ", setback.claim.words));
  }
  if (setback.code == v1::INSUFFICIENT_CAPACITY) {
    return fmt::format("{} was refused for insufficient capacity{}{}", setback.claim.Wanted(),
                       Times(setback), WordsAfter(": ", setback.claim.words));
  }
  return EndOf(setback, kind.end);
}

Reason ReasonOf(const Setback& setback, const std::string& before) {
  return {setback.code, before + SentenceOf(setback),
          fmt::format(fmt::runtime(KindOf(setback.code).fix), setback.claim.node_pool)};
}

}  // namespace muster::coscheduling
