// The objects beside the jobs, as the scheduler reads them.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "kube/objects/decode.h"
#include "lint/field_reader.h"
#include "lint/json_tree.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using coscheduling::Observed;

template <typename Kind>
std::shared_ptr<const Observed> Decoded(const std::string& json, const std::string& name_space) {
  absl::StatusOr<Kind> object = kube::Decode<Kind>(json);
  // What can't be read is an error of its file already, or nothing that a gang depends on.
  if (!object.ok()) return nullptr;
  object->meta.resource_version = "1";
  object->meta.uid = Concat("given/", name_space, "/", object->meta.name);
  object->meta.name_space = name_space;
  return std::make_shared<const Observed>(*std::move(object));
}

struct Known {
  std::string_view group, kind;
  bool namespaced = false;
  std::shared_ptr<const Observed> (*decode)(const std::string&, const std::string&);
};

constexpr std::string_view kKueueGroup = "kueue.x-k8s.io";

constexpr Known kKnown[] = {
    {"karpenter.sh", "NodePool", false, Decoded<kube::NodePool>},
    {kKueueGroup, "ResourceFlavor", false, Decoded<kube::ResourceFlavor>},
    {kKueueGroup, "Topology", false, Decoded<kube::Topology>},
    {kKueueGroup, "ClusterQueue", false, Decoded<kube::ClusterQueue>},
    {kKueueGroup, "LocalQueue", true, Decoded<kube::LocalQueue>},
    {kKueueGroup, "Cohort", false, Decoded<kube::Cohort>},
    {kKueueGroup, "WorkloadPriorityClass", false, Decoded<kube::WorkloadPriorityClass>},
    {"scheduling.k8s.io", "PriorityClass", false, Decoded<kube::PriorityClass>},
    {"scheduling.x-k8s.io", "PodGroup", true, Decoded<kube::PodGroup>},
    {"", "Namespace", false, Decoded<kube::Namespace>},
    {"", "PersistentVolume", false, Decoded<kube::PersistentVolume>},
    {"", "PersistentVolumeClaim", true, Decoded<kube::PersistentVolumeClaim>},
    {"storage.k8s.io", "StorageClass", false, Decoded<kube::StorageClass>},
};

}  // namespace

void ReadGivenAs(std::string_view kind, const yaml::YamlValue& object, const std::string& file,
                 Manifests* out) {
  const auto* known = std::ranges::find(kKnown, kind, &Known::kind);
  if (known == std::end(kKnown)) return;
  auto decoded =
      known->decode(JsonOf(object).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                    known->namespaced ? NamespaceOf(object) : "");
  if (decoded != nullptr) out->given.push_back({file, object.line(), object, std::move(decoded)});
}

void ReadGiven(const yaml::YamlValue& object, const std::string& file, Manifests* out) {
  const auto* known = std::ranges::find(kKnown, object.Get("kind").Text(), &Known::kind);
  if (known == std::end(kKnown) || !IsKind(object, known->group, known->kind)) return;
  ReadGivenAs(known->kind, object, file, out);
}

}  // namespace muster::lint
