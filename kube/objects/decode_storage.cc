#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/decode_parts.h"
#include "kube/objects/well_known.h"

namespace muster::kube {
namespace {

constexpr std::string_view kBetaStorageClass = "volume.beta.kubernetes.io/storage-class";
constexpr std::string_view kBetaZoneLabel = "failure-domain.beta.kubernetes.io/zone";

// k8s.io/csi-translation-lib v0.37 plugins/, as far as kube-scheduler counts their volumes
// (nodevolumelimits/utils.go).
struct Moved {
  std::string_view provisioner;
  std::string_view driver;
  std::string_view source;  // in a PersistentVolume's spec
  std::string_view id;      // in the source
};
constexpr std::array<Moved, 5> kMoved = {{
    {"kubernetes.io/aws-ebs", "ebs.csi.aws.com", "awsElasticBlockStore", "volumeID"},
    {"kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gcePersistentDisk", "pdName"},
    {"kubernetes.io/azure-disk", "disk.csi.azure.com", "azureDisk", "diskURI"},
    {"kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", "volumeID"},
    {"kubernetes.io/portworx-volume", "pxd.portworx.com", "portworxVolume", "volumeID"},
}};
constexpr std::array<std::string_view, 2> kCountForNobody = {"kubernetes.io/azure-file",
                                                             "kubernetes.io/vsphere-volume"};

// The annotation is older and still wins (component-helpers/storage/volume/helpers.go v0.34).
std::string StorageClassOf(const ObjectMeta& meta, const JsonValue& spec) {
  if (const std::string* beta = meta.Annotation(kBetaStorageClass)) return *beta;
  return spec.Get("storageClassName").String();
}

uint8_t ReadAccessModes(const JsonValue& modes) {
  static constexpr std::array<std::pair<std::string_view, AccessMode>, 4> kModes = {{
      {"ReadWriteOnce", kReadWriteOnce},
      {"ReadOnlyMany", kReadOnlyMany},
      {"ReadWriteMany", kReadWriteMany},
      {"ReadWriteOncePod", kReadWriteOncePod},
  }};
  uint8_t bits = 0;
  modes.ForEach([&](const JsonValue& mode) {
    for (const auto& [name, bit] : kModes) {
      if (mode.View() == name) bits |= bit;
    }
  });
  return bits;
}

VolumeTraits ReadTraits(const JsonValue& spec, const JsonValue& amounts) {
  VolumeTraits traits;
  const JsonValue storage = amounts.Get("storage");
  if (storage.present()) traits.bytes = ReadAmount(storage, QuantityUnit::kWhole);
  traits.access_modes = ReadAccessModes(spec.Get("accessModes"));
  traits.block = spec.Get("volumeMode").View() == "Block";
  traits.attributes_class = spec.Get("volumeAttributesClassName").String();
  return traits;
}

// "vol-1" of "aws://us-west-2a/vol-1" too; "" of what is neither.
std::string EbsVolume(std::string_view id) {
  constexpr std::string_view kScheme = "aws://";
  if (!id.starts_with(kScheme)) return std::string(id);
  id.remove_prefix(kScheme.size());
  id.remove_prefix(std::min(id.size(), id.find('/')));
  while (id.starts_with('/')) id.remove_prefix(1);
  while (id.ends_with('/')) id.remove_suffix(1);
  return id.starts_with("vol-") && id.find('/') == id.npos ? std::string(id) : "";
}

// A disk's name is one in its zone.
std::string PersistentDisk(const ObjectMeta& meta, std::string_view name) {
  const std::string* zone = meta.Label(kBetaZoneLabel);
  if (zone == nullptr || zone->empty()) zone = meta.Label(kZoneLabel);
  return fmt::format("zones/{}/disks/{}", zone == nullptr ? "" : *zone, name);
}

void ReadAttaching(const JsonValue& spec, PersistentVolume& volume) {
  const JsonValue csi = spec.Get("csi");
  if (csi.present()) {
    volume.driver = csi.Get("driver").String();
    volume.handle = csi.Get("volumeHandle").String();
    return;
  }
  for (const Moved& kind : kMoved) {
    const JsonValue source = spec.Get(kind.source);
    if (!source.present()) continue;
    const std::string_view id = source.Get(kind.id).View();
    volume.in_tree = true;
    volume.handle = &kind == &kMoved[0]   ? EbsVolume(id)
                    : &kind == &kMoved[1] ? PersistentDisk(volume.meta, id)
                                          : std::string(id);
    if (!volume.handle.empty()) volume.driver = kind.driver;
    return;
  }
}

ObjectMeta ReadIdentity(const JsonValue& metadata) {
  ObjectMeta meta = ReadMeta(metadata);
  ObjectMeta identity;
  identity.name = std::move(meta.name);
  identity.name_space = std::move(meta.name_space);
  identity.uid = std::move(meta.uid);
  identity.resource_version = std::move(meta.resource_version);
  return identity;
}

}  // namespace

std::string_view CsiDriverOf(std::string_view provisioner) {
  const auto moved = std::ranges::find(kMoved, provisioner, &Moved::provisioner);
  if (moved != kMoved.end()) return moved->driver;
  return std::ranges::count(kCountForNobody, provisioner) > 0 ? "" : provisioner;
}

template <>
absl::StatusOr<PersistentVolumeClaim> Decode<PersistentVolumeClaim>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  PersistentVolumeClaim claim;
  claim.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  claim.storage_class = StorageClassOf(claim.meta, spec);
  claim.volume_name = spec.Get("volumeName").String();
  claim.bound = root.Get("status").Get("phase").View() == "Bound";
  claim.wants = ReadTraits(spec, spec.Get("resources").Get("requests"));
  claim.selector = ReadLabelSelector(spec.Get("selector"));
  if (!reader.status().ok()) return reader.status();
  claim.error = reader.unusable();
  return claim;
}

template <>
absl::StatusOr<PersistentVolume> Decode<PersistentVolume>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  PersistentVolume volume;
  volume.meta = ReadMeta(root.Get("metadata"));
  const JsonValue spec = root.Get("spec");
  volume.storage_class = StorageClassOf(volume.meta, spec);
  const JsonValue claim = spec.Get("claimRef");
  if (claim.present()) {
    volume.claim_ref =
        fmt::format("{}/{}", claim.Get("namespace").View(), claim.Get("name").View());
    volume.claim_uid = claim.Get("uid").String();
  }
  volume.available = root.Get("status").Get("phase").View() == "Available";
  volume.has = ReadTraits(spec, spec.Get("capacity"));
  ReadAttaching(spec, volume);
  const JsonValue required = spec.Get("nodeAffinity").Get("required");
  if (required.present()) {
    volume.required_node_terms = ReadNodeSelectorTerms(required.Get("nodeSelectorTerms"));
  }
  if (!reader.status().ok()) return reader.status();
  volume.error = reader.unusable();
  return volume;
}

template <>
absl::StatusOr<StorageClass> Decode<StorageClass>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  StorageClass result;
  result.meta = ReadMeta(root.Get("metadata"));
  result.provisioner = root.Get("provisioner").String();
  result.wait_for_first_consumer = root.Get("volumeBindingMode").View() == "WaitForFirstConsumer";
  root.Get("allowedTopologies").ForEach([&](const JsonValue& term) {
    std::vector<Requirement>& all = result.allowed_topologies.emplace_back();
    term.Get("matchLabelExpressions").ForEach([&](const JsonValue& expression) {
      Requirement& one = all.emplace_back();
      one.key = expression.Get("key").String();
      one.op = SelectorOperator::kIn;
      expression.Get("values").ForEach(
          [&](const JsonValue& value) { one.values.push_back(value.String()); });
    });
  });
  if (!reader.status().ok()) return reader.status();
  return result;
}

template <>
absl::StatusOr<CsiNode> Decode<CsiNode>(std::string_view json) {
  JsonReader reader(json);
  CsiNode node;
  node.meta = ReadIdentity(reader.root().Get("metadata"));
  reader.root().Get("spec").Get("drivers").ForEach([&](const JsonValue& driver) {
    const JsonValue count = driver.Get("allocatable").Get("count");
    std::optional<int64_t>& most = node.drivers[driver.Get("name").String()];
    if (count.present()) most = count.Int();
  });
  if (!reader.status().ok()) return reader.status();
  return node;
}

template <>
absl::StatusOr<CsiDriver> Decode<CsiDriver>(std::string_view json) {
  JsonReader reader(json);
  CsiDriver driver;
  driver.meta = ReadIdentity(reader.root().Get("metadata"));
  const JsonValue spec = reader.root().Get("spec");
  driver.must_be_on_node = spec.Get("preventPodSchedulingIfMissing").Bool();
  driver.tells_capacity = spec.Get("storageCapacity").Bool();
  if (!reader.status().ok()) return reader.status();
  return driver;
}

template <>
absl::StatusOr<CsiStorageCapacity> Decode<CsiStorageCapacity>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  CsiStorageCapacity capacity;
  capacity.meta = ReadIdentity(root.Get("metadata"));
  capacity.storage_class = root.Get("storageClassName").String();
  capacity.nodes = ReadLabelSelector(root.Get("nodeTopology"));
  // What one volume may have is more precise than what all may have together.
  for (const char* field : {"maximumVolumeSize", "capacity"}) {
    const JsonValue size = root.Get(field);
    if (size.present() && !capacity.most) capacity.most = ReadAmount(size, QuantityUnit::kWhole);
  }
  if (!reader.status().ok()) return reader.status();
  return capacity;
}

template <>
absl::StatusOr<VolumeAttachment> Decode<VolumeAttachment>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue spec = reader.root().Get("spec");
  VolumeAttachment attachment;
  attachment.meta = ReadIdentity(reader.root().Get("metadata"));
  attachment.attacher = spec.Get("attacher").String();
  attachment.node_name = spec.Get("nodeName").String();
  attachment.volume_name = spec.Get("source").Get("persistentVolumeName").String();
  if (!reader.status().ok()) return reader.status();
  return attachment;
}

}  // namespace muster::kube
