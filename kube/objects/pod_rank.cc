#include "kube/objects/pod_rank.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

namespace muster::kube {
namespace {

constexpr std::string_view kGlobalIndex = "jobset.sigs.k8s.io/job-global-index";
constexpr std::string_view kCompletionIndex = "batch.kubernetes.io/job-completion-index";
constexpr std::array<std::string_view, 4> kIndexLabels = {
    "training.kubeflow.org/replica-index",
    kCompletionIndex,
    "apps.kubernetes.io/pod-index",
    "kueue.x-k8s.io/pod-group-pod-index",
};

constexpr std::array<std::string_view, 3> kTypeLabels = {
    "training.kubeflow.org/replica-type", "training.kubeflow.org/job-role", "ray.io/node-type"};
constexpr std::array<std::string_view, 4> kFirstTypes = {"master", "chief", "launcher", "head"};

std::string TypeOf(const Pod& pod) {
  for (std::string_view label : kTypeLabels) {
    const std::string* type = pod.meta.Label(label);
    if (type == nullptr) continue;
    std::string lower(*type);
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return lower;
  }
  return "";
}

std::optional<int64_t> IndexIn(const Pod& pod, std::string_view label) {
  const std::string* text = pod.meta.Label(label);
  // The label came with Kubernetes 1.28, the annotation with Indexed jobs.
  if (text == nullptr && label == kCompletionIndex) text = pod.meta.Annotation(label);
  if (text == nullptr) return std::nullopt;
  int64_t index = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), index);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return index;
}

int64_t IndexOf(const Pod& pod) {
  for (std::string_view label : kIndexLabels) {
    if (const std::optional<int64_t> index = IndexIn(pod, label)) return *index;
  }
  return 0;
}

// Pod names are at most 253 characters, so 20 digits a number keep this short.
std::string NaturalKey(const std::string& name) {
  constexpr size_t kWidth = 20;
  std::string key;
  for (size_t i = 0; i < name.size();) {
    size_t digits = i;
    while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits]))) ++digits;
    if (digits == i) {
      key.push_back(name[i++]);
      continue;
    }
    const size_t length = digits - i;
    if (length < kWidth) key.append(kWidth - length, '0');
    key.append(name, i, length);
    i = digits;
  }
  return key;
}

}  // namespace

PodRank RankOf(const Pod& pod) {
  PodRank rank;
  rank.type = TypeOf(pod);
  rank.role = std::ranges::count(kFirstTypes, rank.type) > 0 ? 0 : 1;
  rank.name = NaturalKey(pod.meta.name);
  if (const std::optional<int64_t> job = IndexIn(pod, kGlobalIndex)) {
    rank.index = *job;
    rank.index_within = IndexOf(pod);
  } else {
    rank.index = IndexOf(pod);
  }
  return rank;
}

}  // namespace muster::kube
