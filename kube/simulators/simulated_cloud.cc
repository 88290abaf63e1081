#include "kube/simulators/simulated_cloud.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"

namespace muster::kube::simulators {
namespace {

// pkg/cache/cache.go of the AWS provider: UnavailableOfferingsTTL.
constexpr absl::Duration kSoldOutFor = absl::Minutes(3);
constexpr int kAddressesPerByte = 254;

std::string RegionOf(const std::string& zone) {
  return zone.empty() ? zone : zone.substr(0, zone.size() - 1);
}

}  // namespace

ResourceList InstanceType::Allocatable() const {
  ResourceList result = capacity;
  for (const auto& [name, amount] : allocatable.entries()) result.Set(name, amount);
  return result;
}

LabelRequirements RequirementsOf(const InstanceType& type) {
  LabelRequirements requirements = LabelRequirements::FromLabels(type.labels);
  requirements.Add("node.kubernetes.io/instance-type", ValueSet::In({type.name}));
  if (!type.labels.contains("kubernetes.io/arch")) {
    requirements.Add("kubernetes.io/arch", ValueSet::In({"amd64"}));
  }
  requirements.Add("kubernetes.io/os", ValueSet::In({"linux"}));
  std::vector<std::string> zones;
  std::vector<std::string> regions;
  std::vector<std::string> capacity_types;
  for (const Offering& offering : type.offerings) {
    zones.push_back(offering.zone);
    regions.push_back(RegionOf(offering.zone));
    capacity_types.push_back(offering.capacity_type);
  }
  requirements.Add("topology.kubernetes.io/zone", ValueSet::In(std::move(zones)));
  requirements.Add("topology.kubernetes.io/region", ValueSet::In(std::move(regions)));
  requirements.Add("karpenter.sh/capacity-type", ValueSet::In(std::move(capacity_types)));
  return requirements;
}

LabelRequirements RequirementsOf(const Offering& offering) {
  LabelRequirements requirements;
  requirements.Add("topology.kubernetes.io/zone", ValueSet::In({offering.zone}));
  requirements.Add("karpenter.sh/capacity-type", ValueSet::In({offering.capacity_type}));
  return requirements;
}

SimulatedCloud::SimulatedCloud(std::vector<InstanceType> types,
                               std::map<std::string, std::vector<LaunchBehavior>> launches,
                               LaunchBehavior default_launch, uint64_t seed)
    : types_(std::move(types)),
      launches_(std::move(launches)),
      default_launch_(std::move(default_launch)),
      random_(seed) {}

void SimulatedCloud::AddOutage(CapacityOutage outage) { outages_.push_back(std::move(outage)); }

void SimulatedCloud::AddStock(CapacityStock stock) { stocks_.push_back(std::move(stock)); }

void SimulatedCloud::Terminate(const Instance& instance) {
  --sold_[{instance.type->name, instance.offering.zone}];
}

LaunchBehavior SimulatedCloud::NextLaunch(const std::string& node_pool) {
  size_t count = launch_counts_[node_pool]++;
  auto it = launches_.find(node_pool);
  if (it == launches_.end() || it->second.empty()) return default_launch_;
  return it->second[std::min(count, it->second.size() - 1)];
}

bool SimulatedCloud::IsOffered(const InstanceType& type, const Offering& offering,
                               absl::Time now) const {
  if (!offering.available) return false;
  auto it = sold_out_until_.find({type.name, offering.zone, offering.capacity_type});
  return it == sold_out_until_.end() || it->second <= now;
}

bool SimulatedCloud::IsOut(const InstanceType& type, const Offering& offering,
                           absl::Time now) const {
  const auto sold = sold_.find({type.name, offering.zone});
  const int64_t there = sold == sold_.end() ? 0 : sold->second;
  const bool none_left =
      std::any_of(stocks_.begin(), stocks_.end(), [&](const CapacityStock& stock) {
        return stock.instance_type == type.name &&
               (stock.zone.empty() || stock.zone == offering.zone) && there >= stock.most;
      });
  if (none_left) return true;
  return std::any_of(outages_.begin(), outages_.end(), [&](const CapacityOutage& outage) {
    return (outage.instance_type.empty() || outage.instance_type == type.name) &&
           (outage.zone.empty() || outage.zone == offering.zone) && outage.from <= now &&
           now < outage.until;
  });
}

absl::StatusOr<SimulatedCloud::Instance> SimulatedCloud::Buy(const LabelRequirements& requirements,
                                                             const ResourceList& requests,
                                                             bool fail, absl::Time now) {
  std::vector<std::pair<const InstanceType*, const Offering*>> candidates;
  for (const InstanceType& type : types_) {
    if (!type.Allocatable().Covers(requests)) continue;
    if (!requirements.WhyDisjoint(RequirementsOf(type)).empty()) continue;
    for (const Offering& offering : type.offerings) {
      if (!IsOffered(type, offering, now)) continue;
      if (!requirements.WhyDisjoint(RequirementsOf(offering)).empty()) continue;
      candidates.emplace_back(&type, &offering);
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.second->price < b.second->price; });
  for (const auto& [type, offering] : candidates) {
    if (fail || IsOut(*type, *offering, now)) {
      sold_out_until_[{type->name, offering->zone, offering->capacity_type}] = now + kSoldOutFor;
      if (fail) break;
      continue;
    }
    ++sold_[{type->name, offering->zone}];
    Instance instance;
    instance.type = type;
    instance.offering = *offering;
    instance.address = UnusedAddress();
    std::string dashed = instance.address;
    std::replace(dashed.begin(), dashed.end(), '.', '-');
    instance.node_name = fmt::format("ip-{}.{}.compute.internal", dashed, RegionOf(offering->zone));
    instance.provider_id = fmt::format("aws:///{}/i-{:017x}", offering->zone, random_());
    instance.image = "ami-0c0ffee0123456789";
    return instance;
  }
  return absl::ResourceExhaustedError(
      "insufficient capacity, all requested instance types were unavailable during launch");
}

StringMap SimulatedCloud::LabelsOf(const Instance& instance) {
  StringMap labels = instance.type->labels;
  labels.emplace("kubernetes.io/arch", "amd64");
  labels["kubernetes.io/os"] = "linux";
  labels["node.kubernetes.io/instance-type"] = instance.type->name;
  labels["topology.kubernetes.io/zone"] = instance.offering.zone;
  labels["topology.kubernetes.io/region"] = RegionOf(instance.offering.zone);
  labels["karpenter.sh/capacity-type"] = instance.offering.capacity_type;
  return labels;
}

std::string SimulatedCloud::RandomSuffix() {
  constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  std::string suffix;
  for (int i = 0; i < 5; ++i) suffix += kAlphabet[random_() % kAlphabet.size()];
  return suffix;
}

std::string SimulatedCloud::UnusedAddress() {
  // A /8 of private addresses: never anywhere near exhausted by instances that are counted in
  // thousands.
  std::string address;
  do {
    std::array<int, 3> bytes;
    for (int& byte : bytes) byte = 1 + static_cast<int>(random_() % kAddressesPerByte);
    address = fmt::format("10.{}.{}.{}", bytes[0], bytes[1], bytes[2]);
  } while (!addresses_.insert(address).second);
  return address;
}

}  // namespace muster::kube::simulators
