#include "lint/near.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "lint/text.h"

namespace muster::lint {
namespace {

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// Letters to add, leave out or change until one is the other, whatever their case.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = before + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      before = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// Labels of nodes: of Kubernetes, Karpenter v1.8 and AWS.
constexpr std::string_view kNodeKeys[] = {
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    "topology.k8s.aws/zone-id",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "karpenter.k8s.aws/ec2nodeclass",
    "karpenter.k8s.aws/capacity-reservation-id",
    "karpenter.k8s.aws/capacity-reservation-type",
    "karpenter.k8s.aws/instance-accelerator-count",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-name",
    "karpenter.k8s.aws/instance-capability-flex",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-cpu",
    "karpenter.k8s.aws/instance-cpu-manufacturer",
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    "karpenter.k8s.aws/instance-ebs-bandwidth",
    "karpenter.k8s.aws/instance-encryption-in-transit-supported",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-generation",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-hypervisor",
    "karpenter.k8s.aws/instance-local-nvme",
    "karpenter.k8s.aws/instance-memory",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "karpenter.k8s.aws/instance-size",
    "karpenter.k8s.aws/instance-tenancy",
};

// Labels and annotations of jobs, pods and queues.
constexpr std::string_view kObjectKeys[] = {
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "jobset.sigs.k8s.io/jobset-name",
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/discovery",
    "karpenter.sh/initialized",
    "karpenter.sh/registered",
    "kueue.x-k8s.io/job-completions-equal-parallelism",
    "kueue.x-k8s.io/job-min-parallelism",
    "kueue.x-k8s.io/job-owner-name",
    "kueue.x-k8s.io/managed",
    "kueue.x-k8s.io/max-exec-time-seconds",
    "kueue.x-k8s.io/pod-group-fast-admission",
    "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/pod-group-pod-index",
    "kueue.x-k8s.io/pod-group-pod-index-label",
    "kueue.x-k8s.io/pod-group-serving",
    "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/podset",
    "kueue.x-k8s.io/podset-group-name",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-size",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/prebuilt-workload-name",
    "kueue.x-k8s.io/priority-class",
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/retriable-in-group",
    "muster.dev/gang",
    "muster.dev/may-opt-out-up-to",
    "muster.dev/preemptible",
    "scheduling.x-k8s.io/pod-group",
    "trainer.kubeflow.org/framework",
    "trainer.kubeflow.org/trainjob-ancestor-step",
};

// Names of earlier days.
constexpr std::pair<std::string_view, std::string_view> kOldKeys[] = {
    {"karpenter.sh/provisioner-name", "karpenter.sh/nodepool"},
    {"karpenter.sh/do-not-evict", "karpenter.sh/do-not-disrupt"},
    {"karpenter.sh/do-not-consolidate", "karpenter.sh/do-not-disrupt"},
};

bool Holds(const auto& keys, std::string_view key) {
  return std::ranges::find(keys, key) != std::end(keys);
}

// Of domains that belong to one who gives their keys meaning.
bool IsRelated(std::string_view domain, std::string_view other) {
  for (const std::string_view word : {"karpenter", "kueue", "kubernetes.io", "k8s.aws"}) {
    if (domain.find(word) == std::string_view::npos) continue;
    return other.find(word) != std::string_view::npos || word == "karpenter";
  }
  return false;
}

}  // namespace

bool IsNear(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.size() >= 5 && b.starts_with(a)) return true;
  const size_t most = b.size() < 6 ? 1 : 2;
  return b.size() - a.size() <= most && Distance(a, b) <= most;
}

bool IsNearName(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  const size_t most = a.size() < 12 ? 2 : 3;
  if (a == b || a.size() < 3 || b.size() - a.size() > most || Distance(a, b) > most) return false;
  // What is between the beginning and the end that they share.
  size_t begin = 0;
  while (begin < a.size() && a[begin] == b[begin]) ++begin;
  size_t end = 0;
  while (end < a.size() - begin && a[a.size() - 1 - end] == b[b.size() - 1 - end]) ++end;
  const std::string_view in_a = a.substr(begin, a.size() - begin - end);
  const std::string_view in_b = b.substr(begin, b.size() - begin - end);
  const auto plain = [](char c) { return IsLetter(c) || c == '-' || c == '_' || c == '.'; };
  if (!std::ranges::all_of(in_a, plain) || !std::ranges::all_of(in_b, plain)) return false;
  // Another part, between dashes, makes another name.
  if (in_b.size() > 1 && in_b.find('-') != std::string_view::npos) return false;
  // A letter by itself between dashes is a name of its own.
  const size_t from = b.substr(0, begin).find_last_of("-_.") + 1;
  const size_t to = std::min(b.find_first_of("-_.", begin), b.size());
  if (in_b != "-" && to >= from && to - from < 3) return false;
  if (a.size() < 5 && in_a.size() + in_b.size() > 1) return false;
  // Swapped, added or left out; changed only within a longer word.
  return in_a.empty() || std::ranges::is_permutation(in_a, in_b) || to - from >= 5;
}

std::string_view Nearest(std::string_view name, const std::vector<std::string_view>& known) {
  std::string_view best;
  size_t least = name.size() + 1;
  for (const std::string_view each : known) {
    if (!IsNear(name, each)) continue;
    const size_t distance = Distance(name, each);
    if (distance >= least) continue;
    least = distance;
    best = each;
  }
  return best;
}

bool IsNodeKey(std::string_view key) { return Holds(kNodeKeys, key); }
bool IsKnownKey(std::string_view key) { return IsNodeKey(key) || Holds(kObjectKeys, key); }

std::string_view KeyMeant(std::string_view key) {
  const auto [domain, name] = SplitOnce(key, '/');
  if (name.empty() || IsKnownKey(key) || domain.find("beta") != std::string_view::npos) return "";
  for (const auto& [gone, now] : kOldKeys) {
    if (key == gone) return now;
  }
  std::string_view best;
  size_t least = name.size() < 6 ? 2 : 3;
  const auto look = [&](const auto& keys) {
    for (const std::string_view each : keys) {
      const auto [its_domain, its_name] = SplitOnce(each, '/');
      // "pod-group" is the beginning of several, "-name" being the likeliest.
      const bool longer =
          its_domain == domain && name.size() >= 5 && its_name.starts_with(Concat(name, "-"));
      const size_t distance = !longer                              ? Distance(key, each)
                              : its_name.size() == name.size() + 5 ? 1
                                                                   : 2;
      if (distance >= least) continue;
      least = distance;
      best = each;
    }
  };
  look(kNodeKeys);
  look(kObjectKeys);
  // "layer-4" is none of three, and means none of them.
  if (!best.empty() && best.back() != key.back() && std::isdigit(key.back()) != 0) return "";
  if (!best.empty()) return best;
  const auto elsewhere = [&](const auto& keys) {
    for (const std::string_view each : keys) {
      const auto [its_domain, its_name] = SplitOnce(each, '/');
      if (!best.empty() || !IsRelated(domain, its_domain)) continue;
      const bool part = domain.find("karpenter") != std::string_view::npos &&
                        its_name == Concat("instance-", name);
      if (its_name == name || part) best = each;
    }
  };
  elsewhere(kNodeKeys);
  elsewhere(kObjectKeys);
  return best;
}

}  // namespace muster::lint
