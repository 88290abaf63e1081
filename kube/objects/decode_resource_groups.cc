#include "kube/objects/decode_resource_groups.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <utility>

#include "kube/objects/decode_parts.h"
#include "kube/objects/names.h"

namespace muster::kube {
namespace {

// The API's maxima (apis/kueue/v1beta2/clusterqueue_types.go and pkg/webhooks v0.15.2).
constexpr size_t kMaxGroups = 16;
constexpr size_t kMaxPerGroup = 64;
constexpr size_t kMaxPerQueue = 256;
constexpr size_t kMaxAmountsPerGroup = 512;

class GroupReader {
 public:
  explicit GroupReader(const ResourceGroupRules& rules) : rules_(rules) {}

  std::vector<ResourceGroup> Read(const JsonValue& groups) {
    CheckCount(groups, kMaxGroups);
    std::vector<ResourceGroup> result;
    groups.ForEach([&](const JsonValue& value) { result.push_back(ReadGroup(value)); });
    CheckTotals(groups, result);
    return result;
  }

 private:
  ResourceGroup ReadGroup(const JsonValue& value) {
    ResourceGroup group;
    const JsonValue covered = value.Get("coveredResources");
    CheckPresence(covered);
    covered.ForEach([&](const JsonValue& name) {
      group.covered_resources.push_back(name.String());
      if (!IsQualifiedName(name.View())) {
        name.RejectValue(fmt::format("\"{}\" is not a resource's name", name.View()));
      } else if (!resources_.insert(name.View()).second) {
        name.RejectValue(fmt::format("{} is covered already", name.View()));
      }
    });
    const JsonValue flavors = value.Get("flavors");
    CheckPresence(flavors);
    flavors.ForEach([&](const JsonValue& flavor) {
      group.flavors.push_back(ReadFlavor(flavor, group.covered_resources));
    });
    return group;
  }

  FlavorQuotas ReadFlavor(const JsonValue& value, const std::vector<std::string>& covered) {
    FlavorQuotas quotas;
    const JsonValue name = value.Get("name");
    quotas.flavor = name.String();
    if (!IsDnsSubdomain(name.View())) {
      name.RejectValue(fmt::format("\"{}\" can't be a flavor's name", name.View()));
    } else if (!flavors_.insert(name.View()).second) {
      name.RejectValue(fmt::format("{} is listed already", name.View()));
    }
    const JsonValue resources = value.Get("resources");
    resources.ForEach([&](const JsonValue& resource) {
      const size_t index = quotas.resources.size();
      quotas.resources.push_back(ReadResource(resource));
      if (index < covered.size() && quotas.resources.back().resource != covered[index]) {
        const JsonValue got = resource.Get("name");
        got.RejectValue(fmt::format("\"{}\" must be {}, as in coveredResources[{}]", got.View(),
                                    covered[index], index));
      }
    });
    if (quotas.resources.size() != covered.size()) {
      const bool lacks = quotas.resources.size() < covered.size();
      const std::string& first =
          lacks ? covered[quotas.resources.size()] : quotas.resources[covered.size()].resource;
      resources.RejectValue(fmt::format(
          "{} entries, must be as many as coveredResources: {} ({} {})", quotas.resources.size(),
          covered.size(), first, lacks ? "is missing" : "isn't among those"));
    }
    return quotas;
  }

  ResourceQuota ReadResource(const JsonValue& value) const {
    ResourceQuota quota;
    quota.resource = value.Get("name").String();
    const QuantityUnit unit = UnitOf(quota.resource);
    const JsonValue nominal = value.Get("nominalQuota");
    if (nominal.present()) {
      quota.nominal = ReadAmount(nominal, unit);
    } else {
      nominal.RejectValue("missing");
    }
    quota.borrowing_limit = ReadLimit(value.Get("borrowingLimit"), unit);
    const JsonValue lending = value.Get("lendingLimit");
    quota.lending_limit = ReadLimit(lending, unit);
    if (rules_.lending_within_nominal && quota.lending_limit.value_or(0) > quota.nominal) {
      lending.RejectValue(fmt::format("{} is above nominalQuota {}",
                                      FormatQuantity(*quota.lending_limit, unit),
                                      FormatQuantity(quota.nominal, unit)));
    }
    return quota;
  }

  std::optional<int64_t> ReadLimit(const JsonValue& limit, QuantityUnit unit) const {
    if (!limit.present()) return std::nullopt;
    const int64_t amount = ReadAmount(limit, unit);
    if (!rules_.has_parent) {
      limit.RejectValue(fmt::format("{} without a cohort to borrow from or lend to",
                                    FormatQuantity(amount, unit)));
    }
    return amount;
  }

  static void CheckPresence(const JsonValue& list) {
    bool empty = true;
    list.ForEach([&](const JsonValue&) { empty = false; });
    if (empty) list.RejectValue("must not be empty");
    CheckCount(list, kMaxPerGroup);
  }

  void CheckTotals(const JsonValue& groups, const std::vector<ResourceGroup>& result) const {
    if (!rules_.bounded_totals) return;
    size_t flavors = 0;
    size_t resources = 0;
    size_t index = 0;
    groups.ForEach([&](const JsonValue& group) {
      const ResourceGroup& read = result[index++];
      flavors += read.flavors.size();
      resources += read.covered_resources.size();
      size_t amounts = 0;
      for (const FlavorQuotas& flavor : read.flavors) amounts += flavor.resources.size();
      if (amounts > kMaxAmountsPerGroup) {
        group.RejectValue(fmt::format("{} amounts (flavors times resources), at most {}", amounts,
                                      kMaxAmountsPerGroup));
      }
    });
    if (flavors > kMaxPerQueue) {
      groups.RejectValue(fmt::format("{} flavors in all, at most {}", flavors, kMaxPerQueue));
    }
    if (resources > kMaxPerQueue) {
      groups.RejectValue(
          fmt::format("{} covered resources in all, at most {}", resources, kMaxPerQueue));
    }
  }

  const ResourceGroupRules rules_;
  std::set<std::string_view> resources_;
  std::set<std::string_view> flavors_;
};

}  // namespace

void CheckCount(const JsonValue& array, size_t most) {
  size_t count = 0;
  array.ForEach([&](const JsonValue&) { ++count; });
  if (count > most) array.RejectValue(fmt::format("{} entries, at most {}", count, most));
}

std::vector<ResourceGroup> ReadResourceGroups(const JsonValue& groups,
                                              const ResourceGroupRules& rules) {
  return GroupReader(rules).Read(groups);
}

}  // namespace muster::kube
