#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

TEST(DecodeClaim, ReadsItsAccessModes) {
  const auto claim = Decode<PersistentVolumeClaim>(R"({"metadata":{"name":"c","namespace":"n"},
      "spec":{"accessModes":["ReadWriteOncePod","ReadOnlyMany","Later"]}})");
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(claim->wants.access_modes, kReadWriteOncePod | kReadOnlyMany);
}

struct SourceCase {
  const char* spec;  // of the volume
  const char* driver;
  const char* handle;
  bool in_tree = false;
  const char* labels = "{}";
};

TEST(DecodeVolume, ReadsWhoAttachesIt) {
  const SourceCase cases[] = {
      {R"({"csi":{"driver":"ebs.csi.aws.com","volumeHandle":"vol-1"}})", "ebs.csi.aws.com",
       "vol-1"},
      {R"({"nfs":{"server":"s","path":"/"}})", "", ""},
      {R"({"awsElasticBlockStore":{"volumeID":"vol-1"}})", "ebs.csi.aws.com", "vol-1", true},
      {R"({"awsElasticBlockStore":{"volumeID":"aws://us-west-2a/vol-1"}})", "ebs.csi.aws.com",
       "vol-1", true},
      {R"({"awsElasticBlockStore":{"volumeID":"aws:///vol-1"}})", "ebs.csi.aws.com", "vol-1", true},
      {R"({"awsElasticBlockStore":{"volumeID":"aws://us-west-2a"}})", "", "", true},
      {R"({"awsElasticBlockStore":{"volumeID":"aws://us-west-2a/snap-1"}})", "", "", true},
      {R"({"gcePersistentDisk":{"pdName":"d"}})", "pd.csi.storage.gke.io", "zones/z/disks/d", true,
       R"({"topology.kubernetes.io/zone":"z"})"},
      {R"({"azureDisk":{"diskURI":"/d"}})", "disk.csi.azure.com", "/d", true},
      {R"({"cinder":{"volumeID":"d"}})", "cinder.csi.openstack.org", "d", true},
      {R"({"portworxVolume":{"volumeID":"d"}})", "pxd.portworx.com", "d", true},
      {R"({"azureFile":{"shareName":"d"}})", "", ""},
  };
  for (const SourceCase& c : cases) {
    const auto volume =
        Decode<PersistentVolume>(std::string(R"({"metadata":{"name":"v","labels":)") + c.labels +
                                 R"(},"spec":)" + c.spec + "}");
    ASSERT_TRUE(volume.ok()) << c.spec;
    EXPECT_EQ(volume->driver, c.driver) << c.spec;
    EXPECT_EQ(volume->handle, c.handle) << c.spec;
    EXPECT_EQ(volume->in_tree, c.in_tree) << c.spec;
  }
}

TEST(CsiDriverOf, AKindFromBeforeCsiIsOfTheDriverThatItWasMovedTo) {
  EXPECT_EQ(CsiDriverOf("kubernetes.io/aws-ebs"), "ebs.csi.aws.com");
  EXPECT_EQ(CsiDriverOf("efs.csi.aws.com"), "efs.csi.aws.com");
  EXPECT_EQ(CsiDriverOf("kubernetes.io/no-provisioner"), "kubernetes.io/no-provisioner");
  EXPECT_EQ(CsiDriverOf("kubernetes.io/vsphere-volume"), "");
}

TEST(DecodeCsiNode, ReadsHowManyVolumesOfEachDriverItTakes) {
  const auto node = Decode<CsiNode>(R"({"metadata":{"name":"n","uid":"u","resourceVersion":"7",
      "labels":{"a":"b"},"annotations":{"a":"b"},"ownerReferences":[{"kind":"Node","name":"n"}]},
      "spec":{"drivers":[{"name":"one","nodeID":"i","allocatable":{"count":25}},
                         {"name":"none","allocatable":{"count":0}},
                         {"name":"any","allocatable":{}},{"name":"any2"}]}})");
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->meta.name, "n");
  EXPECT_EQ(node->meta.resource_version, "7");
  EXPECT_TRUE(node->meta.labels.empty() && node->meta.annotations.empty() &&
              node->meta.owners.empty());
  EXPECT_EQ(node->drivers.at("one"), 25);
  EXPECT_EQ(node->drivers.at("none"), 0);
  EXPECT_EQ(node->drivers.at("any"), std::nullopt);
  EXPECT_EQ(node->drivers.at("any2"), std::nullopt);
}

TEST(DecodeCsiStorageCapacity, ReadsForWhomAVolumeMayBeHowLarge) {
  const auto decode = [](const std::string& fields) {
    const auto capacity = Decode<CsiStorageCapacity>(
        R"({"metadata":{"namespace":"csi","name":"c"},"storageClassName":"fast")" + fields + "}");
    EXPECT_TRUE(capacity.ok()) << capacity.status();
    EXPECT_EQ(capacity->meta.FullName(), "csi/c");
    EXPECT_EQ(capacity->storage_class, "fast");
    return *capacity;
  };
  const CsiStorageCapacity unknown = decode("");
  EXPECT_FALSE(unknown.nodes);
  EXPECT_FALSE(unknown.most);
  const CsiStorageCapacity in_zone =
      decode(R"(,"capacity":"10Gi","nodeTopology":{"matchLabels":{"zone":"a"}})");
  EXPECT_EQ(in_zone.nodes, (LabelSelector{{{"zone", SelectorOperator::kIn, {"a"}}}}));
  EXPECT_EQ(in_zone.most, int64_t{10} << 30);
  EXPECT_EQ(decode(R"(,"nodeTopology":{})").nodes, LabelSelector{}) << "all nodes";
  EXPECT_EQ(decode(R"(,"capacity":"10Gi","maximumVolumeSize":"1Gi")").most, int64_t{1} << 30);
  const auto driver =
      Decode<CsiDriver>(R"({"metadata":{"name":"d"},"spec":{"storageCapacity":true}})");
  ASSERT_TRUE(driver.ok());
  EXPECT_TRUE(driver->tells_capacity);
}

TEST(DecodeCsiDriver, ReadsWhetherPodsNeedItOnTheNode) {
  const auto plain = Decode<CsiDriver>(R"({"metadata":{"name":"d"},"spec":{}})");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->must_be_on_node);
  const auto needed = Decode<CsiDriver>(
      R"({"metadata":{"name":"d"},"spec":{"preventPodSchedulingIfMissing":true}})");
  ASSERT_TRUE(needed.ok());
  EXPECT_TRUE(needed->must_be_on_node);
}

TEST(DecodeVolumeAttachment, ReadsWhatIsAttachedWhere) {
  const auto attachment = Decode<VolumeAttachment>(
      R"({"metadata":{"name":"csi-1"},"spec":{"attacher":"d","nodeName":"n",
          "source":{"persistentVolumeName":"pv"}},"status":{"attached":true}})");
  ASSERT_TRUE(attachment.ok());
  EXPECT_EQ(attachment->attacher, "d");
  EXPECT_EQ(attachment->node_name, "n");
  EXPECT_EQ(attachment->volume_name, "pv");
}

}  // namespace
}  // namespace muster::kube
