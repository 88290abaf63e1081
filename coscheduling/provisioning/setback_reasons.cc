#include "coscheduling/provisioning/setback_reasons.h"

#include <string_view>

#include "absl/time/time.h"
#include "coscheduling/reason.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

// Karpenter cuts its own words at 300 characters.
constexpr size_t kMostWords = 300;

// "p4d.24xlarge in us-west-2a (NodePool gpu-efa)"
std::string Wanted(const Setback& setback) {
  return fmt::format("{}{}{} (NodePool {})",
                     setback.instance_type.empty() ? "a node" : setback.instance_type,
                     setback.zone.empty() ? "" : " in ", setback.zone, setback.node_pool);
}

// "node ip-10-0-1-7 (p4d.24xlarge in us-west-2a, NodePool gpu-efa)", or by the claim.
std::string Named(const Setback& setback) {
  const std::string name =
      setback.node.empty() ? "nodeclaim/" + setback.claim : "node " + setback.node;
  if (setback.instance_type.empty()) {
    return fmt::format("{} (NodePool {})", name, setback.node_pool);
  }
  return fmt::format("{} ({}{}{}, NodePool {})", name, setback.instance_type,
                     setback.zone.empty() ? "" : " in ", setback.zone, setback.node_pool);
}

std::string WordsAfter(std::string_view separator, const std::string& words) {
  if (words.empty()) return "";
  if (words.size() <= kMostWords) return fmt::format("{}{}", separator, words);
  size_t end = kMostWords;
  while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xC0) == 0x80) --end;
  return fmt::format("{}{}...", separator, words.substr(0, end));
}

std::string Times(const Setback& setback) {
  if (setback.times == 1) return fmt::format(" at {}", kube::ClockText(setback.last));
  return fmt::format(" {} times, last at {}", setback.times, kube::ClockText(setback.last));
}

// What became of claims that went.
std::string EndOf(const Setback& setback, std::string_view what) {
  const std::string many =
      setback.times == 1
          ? ""
          : fmt::format("{} NodeClaims were {}, the last of them ", setback.times, what);
  const std::string one = setback.times == 1 ? fmt::format(" was {}", what) : ",";
  return fmt::format("{}{}{} at {}{}", many, Named(setback), one, kube::ClockText(setback.last),
                     WordsAfter(": ", setback.words));
}

std::string StandingSentence(const Setback& setback) {
  const std::string since = kube::ClockText(setback.last);
  switch (setback.code) {
    case v1::LAUNCH_FAILED:
      return fmt::format("{} was made at {} and isn't launched{}", Named(setback), since,
                         WordsAfter(": ", setback.words));
    case v1::NODE_NOT_REGISTERED:
      return fmt::format("{} was launched at {} and isn't registered{}", Named(setback), since,
                         WordsAfter(": ", setback.words));
    case v1::NODES_INCOMPLETE:
      return fmt::format("{} was registered at {} and lacks devices{}", Named(setback), since,
                         WordsAfter(": ", setback.words));
    case v1::STARTUP_TAINT_STAYS:
      return fmt::format("{} was registered at {} and keeps {}", Named(setback), since,
                         setback.words);
    default:
      return fmt::format("{} was registered at {} and isn't initialized{}", Named(setback), since,
                         WordsAfter(": ", setback.words));
  }
}

std::string FixOf(const Setback& setback) {
  switch (setback.code) {
    case v1::INSUFFICIENT_CAPACITY:
      return fmt::format(
          "wait for capacity, or let NodePool {} take more instance types, zones or capacity types",
          setback.node_pool);
    case v1::LAUNCH_FAILED:
      return fmt::format(
          "see what the cloud answers: the NodeClaim's condition Launched, the node class of "
          "NodePool {}, the account's limits",
          setback.node_pool);
    case v1::NODE_NOT_REGISTERED:
      return "see the instance's console output for why its kubelet doesn't join: user data, role, "
             "security groups, image";
    case v1::NODES_INCOMPLETE:
      return "check the device plugin on the node that lacks devices";
    case v1::STARTUP_TAINT_STAYS:
      return "check the agent that is to take the taint away, on that node";
    case v1::NODE_NOT_INITIALIZED:
      return "check the kubelet, the network plugin and the device plugin on that node";
    case v1::NODE_TAKEN_BACK:
      return "if it was a spot instance, take capacity type on-demand, which isn't interrupted";
    default:
      return "";
  }
}

}  // namespace

std::string SentenceOf(const Setback& setback) {
  if (setback.stands) return StandingSentence(setback);
  switch (setback.code) {
    case v1::INSUFFICIENT_CAPACITY:
      return fmt::format("{} was refused for insufficient capacity{}{}", Wanted(setback),
                         Times(setback), WordsAfter(": ", setback.words));
    case v1::LAUNCH_FAILED:
      return EndOf(setback, "deleted unlaunched");
    case v1::NODE_NOT_REGISTERED:
      return EndOf(setback, "deleted unregistered");
    case v1::NODE_TAKEN_BACK:
      return EndOf(setback, "taken back");
    default:
      return EndOf(setback, "deleted without having been whole");
  }
}

Reason ReasonOf(const Setback& setback, const std::string& before) {
  return {setback.code, before + SentenceOf(setback), FixOf(setback)};
}

}  // namespace muster::coscheduling
