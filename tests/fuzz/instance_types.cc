// Tables of instance types that users add.
#include "cluster/instance_types.h"

#include <string>

#include "cluster/pool_types.h"
#include "kube/objects/resource_list.h"
#include "tests/fuzz/fuzz.h"

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  using muster::cluster::InstanceType;
  muster::cluster::InstanceTypes types;
  const absl::Status status = types.Add(input, "f.txt");
  if (!status.ok()) {
    RequireSayable(MessageOf(status));
    RequirePlace(MessageOf(status), "f.txt", input);
    Require(types.all().empty(), "a table with a mistake changes nothing");
    return;
  }
  for (const auto& [name, type] : types.all()) {
    Require(types.Find(name) == &type && types.KnowsFamily(type.Family()), "a type is found");
    RequireSayable(name);
    Require(type.cpu > 0 && type.memory > 0 && type.gpu >= 0 && type.neuron >= 0 && type.efa >= 0,
            "amounts make sense");
    for (const char* resource : {"cpu", "memory", "nvidia.com/gpu", "vpc.amazonaws.com/efa"}) {
      Require(muster::cluster::AmountOf(type, resource) >= 0, "amounts fit their units");
    }
    for (const char* label : {"instance-category", "instance-generation", "instance-memory"}) {
      (void)muster::cluster::InstanceTypeLabel(type, std::string("karpenter.k8s.aws/") + label);
    }
  }
}
