#include "kube/objects/kueue_pod_group.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

constexpr std::string_view kFastAdmissionAnnotation = "kueue.x-k8s.io/pod-group-fast-admission";
constexpr int64_t kMaxTotal = std::numeric_limits<int32_t>::max();

std::string AnnotationOf(const ObjectMeta& meta, std::string_view key) {
  const std::string* value = meta.Annotation(key);
  return value == nullptr ? "" : *value;
}

}  // namespace

std::optional<KueuePodGroup> KueuePodGroupOf(const Pod& pod) {
  const std::string* name = pod.meta.Label(kKueueGroupLabel);
  if (name == nullptr || name->empty()) return std::nullopt;
  if (AnnotationOf(pod.meta, kFastAdmissionAnnotation) == "true") return std::nullopt;
  KueuePodGroup group = {*name, 1, ""};
  const std::string count = AnnotationOf(pod.meta, kKueueTotalCountAnnotation);
  int64_t total = 0;
  const char* const end = count.data() + count.size();
  const auto [parsed, error] = std::from_chars(count.data(), end, total);
  if (error == std::errc() && parsed == end && total >= 1 && total <= kMaxTotal) {
    group.total = total;
  } else {
    group.fault = fmt::format("annotation {} of {} is \"{}\", must be an integer from 1 to {}",
                              kKueueTotalCountAnnotation, pod.meta.name, count, kMaxTotal);
  }
  return group;
}

}  // namespace muster::kube
