#include "quota/resource_rules.h"

#include <algorithm>
#include <utility>

#include "kube/objects/quantity.h"
#include "quota/amount.h"

namespace muster::quota {
namespace {

// Sums are kept in units of 10^-15: thousandths of the input and of what it is multiplied by, times
// billionths of an output.
constexpr int64_t kMilli = 1000;
constexpr Amount kScale = Amount(int64_t{1'000'000'000'000'000});
constexpr Amount kBeyond = Amount(1) << 124;  // of which a few can be added

Amount Milli(const std::string& resource, int64_t amount) {
  const bool is_milli = kube::UnitOf(resource) == kube::QuantityUnit::kMilli;
  return is_milli ? Amount(amount) : Amount(amount) * kMilli;
}

// `a` isn't negative.
Amount Product(const Amount& a, const Amount& b) {
  if (a == 0 || b == 0) return 0;
  const Amount size = b < 0 ? -b : b;
  if (size > kBeyond / a) return b < 0 ? -kBeyond : kBeyond;
  return a * b;
}

// To the resource's base unit.
int64_t RoundedUp(const std::string& resource, const Amount& sum) {
  if (sum <= 0) return 0;
  if (sum >= kBeyond) return kBeyondAnyQuota;
  const bool is_milli = kube::UnitOf(resource) == kube::QuantityUnit::kMilli;
  const Amount unit = is_milli ? kScale / kMilli : kScale;
  return Saturate(sum / unit + (sum % unit == 0 ? 0 : 1));
}

}  // namespace

ResourceRules::ResourceRules(std::vector<std::string> excluded_prefixes,
                             std::vector<ResourceTransformation> transformations)
    : excluded_prefixes_(std::move(excluded_prefixes)) {
  for (ResourceTransformation& each : transformations) {
    std::string input = each.input;
    transformations_.emplace(std::move(input), std::move(each));
  }
}

kube::ResourceList ResourceRules::Count(const kube::ResourceList& requests) const {
  if (empty()) return requests;
  const auto excluded = [this](const std::string& resource) {
    return resource != kube::kPods &&
           std::ranges::any_of(excluded_prefixes_, [&](const std::string& prefix) {
             return resource.starts_with(prefix);
           });
  };
  kube::ResourceList counted;
  std::map<std::string, Amount> generated;
  for (const auto& [resource, amount] : requests.entries()) {
    if (excluded(resource)) continue;
    const auto found = transformations_.find(resource);
    if (resource == kube::kPods || found == transformations_.end()) {
      counted.Set(resource, amount);
      continue;
    }
    const ResourceTransformation& rule = found->second;
    if (rule.retain) counted.Set(resource, amount);
    const bool multiplied = !rule.multiply_by.empty() && rule.multiply_by != kube::kPods &&
                            requests.Has(rule.multiply_by) && !excluded(rule.multiply_by);
    const Amount times =
        multiplied ? Milli(rule.multiply_by, requests.Get(rule.multiply_by)) : Amount(kMilli);
    const Amount input = Product(Milli(resource, amount), times);
    for (const auto& [output, factor] : rule.outputs) {
      Amount& sum = generated[output];
      sum = std::clamp(sum + Product(input, factor), -kBeyond, kBeyond);
    }
  }
  for (const auto& [resource, sum] : generated) {
    if (resource == kube::kPods) continue;
    counted.Set(resource, Saturate(Amount(counted.Get(resource)) + RoundedUp(resource, sum)));
  }
  return counted;
}

}  // namespace muster::quota
