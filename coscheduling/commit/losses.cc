#include "coscheduling/commit/losses.h"

#include <algorithm>
#include <vector>

#include "cluster/node_faults.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

constexpr size_t kShown = 3;

std::string FailureText(const kube::Pod& pod) {
  if (std::optional<std::string> fault = cluster::NodeFault(pod)) return *fault;
  std::string why = pod.status_reason;
  for (const std::string& more : {pod.status_message, pod.termination_message.substr(0, 200)}) {
    if (!more.empty()) why += (why.empty() ? "" : ": ") + more;
  }
  return why;
}

}  // namespace

std::string EndText(const kube::Pod& pod) {
  const std::string where = fmt::format("{} on {}", pod.meta.name, pod.node_name);
  if (pod.phase != kube::PodPhase::kFailed) return where + " is being deleted";
  const std::string why = FailureText(pod);
  return where + " failed" + (why.empty() ? "" : ": " + why);
}

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

}  // namespace muster::coscheduling
