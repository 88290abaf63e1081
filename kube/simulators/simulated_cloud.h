// The cloud provider under the Karpenter simulator: what can be bought, at what price, when it
// arrives, and when it is sold out.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/objects/meta.h"
#include "kube/objects/resource_list.h"
#include "kube/simulators/label_requirements.h"

namespace muster::kube::simulators {

// Where an instance type is sold. Prices are only compared; any unit.
struct Offering {
  std::string zone;
  std::string capacity_type = "on-demand";
  int64_t price = 0;
  bool available = true;
};

struct InstanceType {
  std::string name;
  ResourceList capacity;
  ResourceList allocatable;  // where it differs from capacity
  StringMap labels;          // beside those that every node gets
  std::vector<Offering> offerings;

  ResourceList Allocatable() const;
};

// How one launch goes. Each delay starts where the one before it ends.
struct LaunchBehavior {
  absl::Duration launch;          // from the NodeClaim's creation until the instance is bought
  absl::Duration registration;    // until its node has registered
  absl::Duration initialization;  // until the kubelet is ready
  // Until then allocatable (and capacity) has the amounts of devices_before for the resources that
  // it names, and nothing of other devices (resources with a domain) if it is empty.
  absl::Duration devices;
  ResourceList devices_before;
  bool never_registers = false;
  bool insufficient_capacity = false;  // the cheapest offering turns out to be sold out
};

// Nothing can be bought there between two times. An empty name stands for all.
struct CapacityOutage {
  std::string instance_type;
  std::string zone;
  absl::Time from = absl::InfinitePast();
  absl::Time until = absl::InfiniteFuture();
};

// There are no more instances than these at a time. An empty zone stands for each by itself.
struct CapacityStock {
  std::string instance_type;
  std::string zone;
  int64_t most = 0;
};

class SimulatedCloud {
 public:
  struct Instance {
    const InstanceType* type = nullptr;
    Offering offering;
    std::string provider_id;
    std::string node_name;  // never the NodeClaim's
    std::string address;
    std::string image;
  };

  // `launches` has the behaviour of the n-th launch per NodePool; the last entry goes for the rest.
  SimulatedCloud(std::vector<InstanceType> types,
                 std::map<std::string, std::vector<LaunchBehavior>> launches,
                 LaunchBehavior default_launch, uint64_t seed);

  const std::vector<InstanceType>& types() const { return types_; }

  void AddOutage(CapacityOutage outage);
  void AddStock(CapacityStock stock);

  // How the NodePool's next launch will go.
  LaunchBehavior NextLaunch(const std::string& node_pool);

  // False for what isn't sold and, for 3 minutes, for what turned out to be sold out.
  bool IsOffered(const InstanceType& type, const Offering& offering, absl::Time now) const;

  // Buys the cheapest offering that the NodeClaim's requirements allow and that has room for its
  // requests. ResourceExhausted if there is none, or if it is to `fail`; the offerings that were
  // tried count as sold out from then on.
  absl::StatusOr<Instance> Buy(const LabelRequirements& requirements, const ResourceList& requests,
                               bool fail, absl::Time now);

  // It is gone, and can be bought again.
  void Terminate(const Instance& instance);

  // Labels that an instance's node gets from the cloud.
  static StringMap LabelsOf(const Instance& instance);

  // The end of a generated name, as the API server makes them.
  std::string RandomSuffix();

 private:
  using OfferingKey = std::tuple<std::string, std::string, std::string>;
  bool IsOut(const InstanceType& type, const Offering& offering, absl::Time now) const;
  std::string UnusedAddress();

  const std::vector<InstanceType> types_;
  const std::map<std::string, std::vector<LaunchBehavior>> launches_;
  const LaunchBehavior default_launch_;
  std::map<std::string, size_t> launch_counts_;
  std::vector<CapacityOutage> outages_;
  std::vector<CapacityStock> stocks_;
  std::map<std::pair<std::string, std::string>, int64_t> sold_;  // by type and zone
  std::map<OfferingKey, absl::Time> sold_out_until_;
  std::set<std::string> addresses_;
  std::mt19937_64 random_;
};

// What of an instance type's labels and offerings a requirement can be about.
LabelRequirements RequirementsOf(const InstanceType& type);
LabelRequirements RequirementsOf(const Offering& offering);

}  // namespace muster::kube::simulators
