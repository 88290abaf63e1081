#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Workload Read(const std::string& json) {
  absl::StatusOr<Workload> workload = Decode<Workload>(json);
  EXPECT_TRUE(workload.ok()) << workload.status();
  return workload.ok() ? *workload : Workload{};
}

TEST(DecodeWorkload, SaysWhatItsJobAskedForAndWasGiven) {
  const Workload workload = Read(R"({
    "metadata": {"name": "job-train-1", "namespace": "team", "uid": "w",
                 "annotations": {"muster.dev/restart": "{}"},
                 "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train",
                                      "uid": "j", "controller": true}]},
    "spec": {"queueName": "default", "active": false, "podSets": [
      {"name": "main", "count": 4, "template": {"spec": {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
          "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
        "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}}]},
    "status": {
      "admission": {"clusterQueue": "gpus", "podSetAssignments": [
        {"name": "main", "flavors": {"nvidia.com/gpu": "first"}},
        {"name": "gone", "count": 2, "flavors": {"nvidia.com/gpu": "next"},
         "resourceUsage": {"nvidia.com/gpu": "8"}}]},
      "conditions": [{"type": "QuotaReserved", "status": "True"},
                     {"type": "Evicted", "status": "False"}]}})");
  EXPECT_EQ(workload.error, "");
  EXPECT_EQ(workload.meta.Controller()->uid, "j");
  EXPECT_TRUE(workload.has_annotations);
  EXPECT_FALSE(workload.active);
  EXPECT_EQ(workload.queue, "default");
  EXPECT_TRUE(workload.reserved);
  EXPECT_FALSE(workload.evicted);
  EXPECT_FALSE(workload.finished);
  ASSERT_EQ(workload.pod_sets.size(), 1u);
  const Workload::PodSet& set = workload.pod_sets[0];
  EXPECT_EQ(set.count, 4);
  EXPECT_TRUE(set.has_affinity && set.has_node_affinity);
  EXPECT_EQ(set.spec->affinity.required_node_terms->size(), 1u);
  ASSERT_EQ(workload.reserved_sets.size(), 2u);
  EXPECT_EQ(workload.reserved_sets[0].count, 4);
  EXPECT_THAT(workload.reserved_sets[0].flavors, ElementsAre(Pair("nvidia.com/gpu", "first")));
  // Whoever may change the spec changes nothing of what is reserved.
  EXPECT_EQ(workload.reserved_sets[1].name, "gone");
  EXPECT_EQ(workload.reserved_sets[1].count, 2);
  EXPECT_EQ(workload.reserved_sets[1].usage.Get("nvidia.com/gpu"), 8);
}

TEST(DecodeWorkload, OneThatSaysLittleIsActiveAndHasNothing) {
  const Workload workload = Read(R"({"metadata": {"name": "w", "uid": "w"},
    "spec": {"podSets": [{"name": "main", "count": 1}]}})");
  EXPECT_EQ(workload.error, "");
  EXPECT_TRUE(workload.active);
  EXPECT_FALSE(workload.has_annotations || workload.reserved || workload.evicted);
  ASSERT_NE(workload.pod_sets[0].spec, nullptr);
  EXPECT_FALSE(workload.pod_sets[0].has_affinity);
}

TopologyAssignment Assigned(const std::string& assignment) {
  const Workload workload = Read(R"({"status": {"admission": {"clusterQueue": "gpus",
    "podSetAssignments": [{"name": "main", "count": 4, "topologyAssignment": )" +
                                 assignment + "}]}}}");
  EXPECT_EQ(workload.error, "");
  return workload.reserved_sets.at(0).topology;
}

TEST(DecodeWorkload, SaysWhereItsPodsStandInTheFormOfEitherVersion) {
  const TopologyAssignment expected = {{"block", "rack"}, {{{"b", "r1"}, 3}, {{"b", "r2"}, 1}}};
  EXPECT_EQ(Assigned(R"({"levels": ["block", "rack"], "slices": [{"domainCount": 2,
      "valuesPerLevel": [{"universal": "b"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}],
      "podCounts": {"individual": [3, 1]}}]})"),
            expected);
  EXPECT_EQ(Assigned(R"({"levels": ["block", "rack"], "slices": [
      {"domainCount": 1, "valuesPerLevel": [{"universal": "b"}, {"universal": "r1"}],
       "podCounts": {"universal": 3}},
      {"domainCount": 1, "valuesPerLevel": [{"universal": "b"},
        {"individual": {"suffix": "2", "roots": ["r"]}}], "podCounts": {"universal": 1}}]})"),
            expected);
  EXPECT_EQ(Assigned(R"({"levels": ["block", "rack"], "domains": [
      {"values": ["b", "r1"], "count": 3}, {"values": ["b", "r2"], "count": 1}]})"),
            expected);
}

TEST(DecodeWorkload, AnAssignmentThatContradictsItselfSaysNothing) {
  const TopologyAssignment nothing;
  const auto of = [](const std::string& slice) {
    return Assigned(R"({"levels": ["rack"], "slices": [)" + slice + "]}");
  };
  EXPECT_EQ(of(R"({"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["1"]}}],
                   "podCounts": {"universal": 1}})"),
            nothing);
  EXPECT_EQ(of(R"({"domainCount": 2, "valuesPerLevel": [{"universal": "1"}],
                   "podCounts": {"individual": [1]}})"),
            nothing);
  EXPECT_EQ(of(R"({"domainCount": 1, "valuesPerLevel": [], "podCounts": {"universal": 1}})"),
            nothing);
  EXPECT_EQ(of(R"({"domainCount": 2000000000, "valuesPerLevel": [{"universal": "1"}],
                   "podCounts": {"universal": 1}})"),
            nothing);
}

TEST(DecodeWorkload, WhatCannotBeReadIsTold) {
  EXPECT_THAT(Read(R"({"spec": {"active": 7}})").error, HasSubstr("spec.active"));
  EXPECT_THAT(Read(R"({"spec": {"podSets": [{"name": "main", "count": -1}]}})").error,
              HasSubstr("count"));
}

}  // namespace
}  // namespace muster::kube
