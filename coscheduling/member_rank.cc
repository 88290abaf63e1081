#include "coscheduling/member_rank.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace muster::coscheduling {
namespace {

constexpr std::array<std::string_view, 3> kIndexLabels = {
    "jobset.sigs.k8s.io/job-global-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
};

int RoleOf(const kube::Pod& pod) {
  const std::string* type = pod.meta.Label("training.kubeflow.org/replica-type");
  if (type == nullptr) return 1;
  std::string lower(*type);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "master" || lower == "chief" || lower == "launcher" ? 0 : 1;
}

int64_t IndexOf(const kube::Pod& pod) {
  for (std::string_view label : kIndexLabels) {
    const std::string* text = pod.meta.Label(label);
    if (text == nullptr) continue;
    int64_t index = 0;
    auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), index);
    if (error == std::errc() && end == text->data() + text->size()) return index;
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

MemberRank RankOf(const kube::Pod& pod) {
  return {.role = RoleOf(pod), .index = IndexOf(pod), .name = NaturalKey(pod.meta.name)};
}

}  // namespace muster::coscheduling
