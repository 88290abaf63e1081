#include "quota/job_start.h"

#include <gtest/gtest.h>

#include "kube/objects/decode.h"
#include "kube/objects/well_known.h"

namespace muster::quota {
namespace {

kube::AnyJob Suspended(const std::string& pod_template) {
  return ToAnyJob(*kube::Decode<kube::Job>(
      R"({"metadata":{"name":"j","namespace":"n","uid":"u"},"spec":{"suspend":true,
          "parallelism":4,"template":)" +
      pod_template + "}}"));
}

kube::AnyJob Gpus(const std::string& more = "") {
  return Suspended(R"({"spec":{)" + more + R"("containers":[
      {"name":"c","resources":{"requests":{"nvidia.com/gpu":"8"}}}]}})");
}

Admission Held(const kube::AnyJob& job, const std::string& flavor) {
  const PodSet set = PodSetsOf(job).at(0);
  return {"gpus", {{set.name, set.count, {{"nvidia.com/gpu", flavor}}, {}}}, {}, {}};
}

TEST(JobStart, ASuspendedJobAsksForWhatItsTemplatesMake) {
  const std::vector<PodSet> sets = PodSetsOf(Gpus());
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_EQ(sets[0].count, 4);
  EXPECT_EQ(sets[0].spec->requests.Get("nvidia.com/gpu"), 8);
  EXPECT_TRUE(IsOfRole(sets[0].name, "main"));
}

TEST(JobStart, WhatOneStageAsksForIsAskedBesideWhatTheTemplatesOfTheOthersMake) {
  const std::string one = R"({"spec":{"parallelism":2,"completions":2,"template":{"spec":{
      "containers":[{"name":"c","resources":{"requests":{"nvidia.com/gpu":"8"}}}]}}}})";
  const std::string spec =
      R"({"metadata":{"name":"s","namespace":"n","uid":"u"},"spec":{
      "replicatedJobs":[{"name":"a","replicas":1,"template":)" +
      one +
      R"(},{"name":"b","replicas":3,"dependsOn":[{"name":"a","status":"Ready"}],"template":)" +
      one + "}]}}";
  const kube::AnyJob job = ToAnyJob(*kube::Decode<kube::JobSet>(spec));
  ASSERT_TRUE(job.HasStages());
  kube::Pod pod = PodsOf(job).at(0);
  const std::vector<PodSet> all = WithOthersOf(job, {{PodSetOf(pod), 2, pod.spec}});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].spec, pod.spec) << "as its pods are";
  EXPECT_TRUE(IsOfRole(all[1].name, "b"));
  EXPECT_EQ(all[1].count, 6);
  EXPECT_EQ(all[1].spec->requests.Get("nvidia.com/gpu"), 8);
  EXPECT_TRUE(AsOfJob(all, job.pod_sets));
  EXPECT_EQ(WithOthersOf(job, all).size(), 2u);
}

TEST(JobStart, ItsTemplatesAreGivenWhatKueueGivesThem) {
  kube::ResourceFlavor flavor;
  flavor.meta.name = "a";
  flavor.node_labels = {{"pool", "a"}, {"zone", "z"}};
  flavor.tolerations = {{"team", true, "", std::nullopt}};
  flavor.toleration_seconds = {std::nullopt};
  const kube::AnyJob job = Gpus(R"("nodeSelector":{"zone":"z"},)");
  const Admission held = Held(job, "a");
  kube::Workload workload;
  workload.meta.name = "job-j-12345";
  workload.queue = "team";
  const std::vector<TemplateChange> changes =
      WithFlavors(job, workload, held, [&](std::string_view) { return &flavor; });
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].path, "/spec/template");
  const FlavorAdditions& added = changes[0].added;
  EXPECT_EQ(added.node_selector, (std::map<std::string, std::string>{{"pool", "a"}}));
  EXPECT_EQ(added.tolerations.size(), 1u);
  EXPECT_EQ(added.labels.at(kube::kPodSetLabel), "main");
  EXPECT_EQ(added.annotations, (std::map<std::string, std::string>{
                                   {std::string(kube::kWorkloadAnnotation), "job-j-12345"}}));
}

TEST(JobStart, ItsPodsAreOfThePodSetThatWasCounted) {
  const kube::AnyJob job = Gpus();
  Admission held = {"gpus", {{"main", 4, {{"nvidia.com/gpu", "a"}}, {}}}, {}, {}};
  kube::Pod pod = PodsOf(job).at(0);
  NameByPods({&pod}, &held);
  EXPECT_EQ(held.pod_sets[0].name, PodSetsOf(job)[0].name);
  // Once a flavor was added to their template their name is another one.
  kube::PodSpec spec = *pod.spec;
  spec.node_selector.emplace("pool", "a");
  pod.spec = std::make_shared<const kube::PodSpec>(spec);
  held.pod_sets[0].name = "main";
  NameByPods({&pod}, &held);
  EXPECT_EQ(held.pod_sets[0].name, PodSetOf(pod));
  EXPECT_NE(held.pod_sets[0].name, PodSetsOf(job)[0].name);
}

TEST(JobStart, WhatAJobHadStandsInItsWorkload) {
  const kube::AnyJob started = Suspended(
      R"({"metadata":{"annotations":{"kueue.x-k8s.io/workload":"w"}},"spec":{"containers":[]}})");
  kube::Workload workload;
  workload.pod_sets.push_back({.name = "main", .count = 2, .spec = nullptr, .original = "{}"});
  const std::vector<TemplateChange> changes = WithoutFlavors(started, workload);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].original, "{}");
  EXPECT_TRUE(WithoutFlavors(Gpus(), workload).empty()) << "nothing was added";
  workload.pod_sets[0].original = R"({"metadata":{"annotations":{"kueue.x-k8s.io/workload":"w"}}})";
  EXPECT_TRUE(WithoutFlavors(started, workload).empty()) << "it doesn't know what they had";
  workload.pod_sets[0].original = "{}";
  workload.pod_sets[0].name = "worker";
  EXPECT_TRUE(WithoutFlavors(started, workload).empty()) << "it says nothing of this job";
}

}  // namespace
}  // namespace muster::quota
