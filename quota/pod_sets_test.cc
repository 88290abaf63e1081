#include "quota/pod_sets.h"

#include <gtest/gtest.h>

#include <utility>

#include "kube/objects/well_known.h"

namespace muster::quota {
namespace {

// The pod with its spec changed by `change(kube::PodSpec&)`.
template <typename Change>
kube::Pod With(kube::Pod pod, Change change) {
  kube::PodSpec spec = *pod.spec;
  change(spec);
  pod.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
  return pod;
}

kube::Pod Gpu(const std::string& name, int64_t gpus = 1) {
  kube::Pod pod;
  pod.meta.name = name;
  pod.spec = std::make_shared<const kube::PodSpec>();
  return With(std::move(pod), [&](auto& spec) {
    spec.requests.Set("nvidia.com/gpu", gpus);
    spec.requests.Set("pods", 1);
  });
}

TEST(PodSets, PodsThatAskAlikeAreOneSet) {
  EXPECT_EQ(PodSetOf(Gpu("a")), PodSetOf(Gpu("b")));
  const std::string plain = PodSetOf(Gpu("a"));
  EXPECT_NE(plain, PodSetOf(Gpu("a", 2)));
  EXPECT_NE(plain, PodSetOf(With(Gpu("a"), [](auto& spec) { spec.node_selector["k"] = "v"; })));
  EXPECT_NE(plain, PodSetOf(With(Gpu("a"), [](auto& spec) {
              spec.affinity.required_node_terms.emplace();
              spec.affinity.required_node_terms->push_back(
                  {{{"k", kube::SelectorOperator::kIn, {"v"}}}, {}});
            })));
  EXPECT_NE(plain, PodSetOf(With(Gpu("a"), [](auto& spec) {
              spec.tolerations.push_back({"k", true, "", std::nullopt});
            })));
}

PodSet Set(const kube::Pod& pod, int64_t count) { return {PodSetOf(pod), count, pod.spec}; }

kube::Pod OfType(const std::string& type, int64_t gpus) {
  kube::Pod pod = Gpu(type, gpus);
  pod.meta.labels["training.kubeflow.org/replica-type"] = type;
  return pod;
}

TEST(PodSets, OfAnAdmissionPodsHaveTheFlavorsOfTheirOwnPodSets) {
  const kube::Pod worker = OfType("worker", 8);
  const Admission all = {"gpus",
                         {{PodSetOf(OfType("master", 1)), 1, {{"nvidia.com/gpu", "a"}}, {}},
                          {PodSetOf(worker), 1, {{"nvidia.com/gpu", "b"}}, {}}},
                         {},
                         {}};
  EXPECT_EQ(FlavorNames(all, {&worker}), std::set<std::string>{"b"});
  EXPECT_EQ(FlavorNames(all, {}), (std::set<std::string>{"a", "b"}));
}

// mpi-operator's label; training-operator has it on a master, beside the replica type.
TEST(PodSets, AnMPIJobsRoleIsInItsPodsLabelJobRole) {
  kube::Pod launcher = Gpu("launcher");
  launcher.meta.labels["training.kubeflow.org/job-role"] = "launcher";
  EXPECT_TRUE(IsOfRole(PodSetOf(launcher), "launcher"));
  kube::Pod master = OfType("master", 1);
  const std::string before = PodSetOf(master);
  master.meta.labels["training.kubeflow.org/job-role"] = "master";
  EXPECT_EQ(PodSetOf(master), before);
}

TEST(PodSets, AJobsWorkloadHasThemByKueuesNamesInItsOrder) {
  const PodSet worker = Set(OfType("worker", 8), 3), master = Set(OfType("master", 1), 1);
  EXPECT_TRUE(IsOfRole(worker.name, "worker"));
  EXPECT_TRUE(IsOfRole(PodSetOf(Gpu("a")), "main"));
  EXPECT_FALSE(IsOfRole(PodSetOf(Gpu("a")), "worker"));
  const auto named = AsOfJob({worker, master}, {{"master", 1, "{}"}, {"worker", 3, "{}"}});
  ASSERT_TRUE(named);
  ASSERT_EQ(named->size(), 2u);
  EXPECT_EQ((*named)[0].name, "master");
  EXPECT_EQ((*named)[1].name, "worker");
  EXPECT_EQ((*named)[1].spec, worker.spec);
  EXPECT_FALSE(AsOfJob({worker, master}, {{"master", 1, "{}"}, {"worker", 4, "{}"}}));
  EXPECT_FALSE(AsOfJob({worker}, {{"master", 1, "{}"}, {"worker", 3, "{}"}}));
  // Workers that ask for different things are no set that the job has.
  EXPECT_FALSE(AsOfJob({Set(OfType("worker", 8), 2), Set(OfType("worker", 4), 1)},
                       {{"worker", 2, "{}"}, {"evaluator", 1, "{}"}}));
}

TEST(PodSets, WhatAJobsWorkloadReservedIsThatOfItsPods) {
  const kube::Pod pod = OfType("worker", 8);
  const std::string worker = PodSetOf(pod);
  Admission admission;
  admission.pod_sets = {{"worker", 2, {}, {}}, {"master", 1, {}, {}}};
  NameByPods({&pod}, &admission);
  EXPECT_EQ(admission.pod_sets[0].name, worker);
  EXPECT_EQ(admission.pod_sets[1].name, "master");
}

// Records outlive processes: this name may only change together with a way to read the old one.
TEST(PodSets, TheNameIsTheSameInEveryProcess) {
  EXPECT_EQ(PodSetOf(Gpu("a")), "65301564be2fcdaa-cbf29ce484222325");
}

TEST(PodSets, AMemberKeepsItsSetAfterItsSpecWasAddedTo) {
  kube::Pod pod = With(Gpu("a"), [](auto& spec) { spec.node_selector["pool"] = "gpu"; });
  pod.meta.annotations[std::string(kPodSetAnnotation)] = PodSetOf(Gpu("a"));
  EXPECT_EQ(PodSetOf(pod), PodSetOf(Gpu("a")));
}

// Its user may write the annotation too.
TEST(PodSets, AnAnnotationSaysNothingOfWhatAMemberAsksFor) {
  kube::Pod pod = Gpu("a", 8);
  for (const std::string& written : {std::string("x"), PodSetOf(Gpu("b"))}) {
    pod.meta.annotations[std::string(kPodSetAnnotation)] = written;
    EXPECT_EQ(PodSetOf(pod), PodSetOf(Gpu("a", 8))) << written;
  }
}

TEST(PodSets, AnAssignmentPaysForPodsThatAskNoMore) {
  PodSetAssignment given{"set", 2, {{"nvidia.com/gpu", "spot"}}, {}};
  EXPECT_FALSE(given.PaysFor(*Gpu("a").spec));
  given.usage.Set("nvidia.com/gpu", 2);
  EXPECT_TRUE(given.PaysFor(*Gpu("a").spec));
  EXPECT_FALSE(given.PaysFor(*Gpu("a", 2).spec));
  EXPECT_FALSE(
      given.PaysFor(*With(Gpu("a"), [](auto& spec) { spec.requests.Set("cpu", 1); }).spec));
}

TEST(PodSets, TheFirstInRankOrderAreRequiredTheOthersSurplus) {
  const kube::Pod master = Gpu("master", 2);
  const kube::Pod a = Gpu("a");
  const kube::Pod b = Gpu("b");
  const kube::Pod c = Gpu("c");
  const PodSets sets = GroupByPodSet({&master, &a, &b, &c}, 3);
  ASSERT_EQ(sets.required.size(), 2U);
  EXPECT_EQ(sets.required[0].count, 1);
  EXPECT_EQ(sets.required[0].spec, master.spec);
  EXPECT_EQ(sets.required[1].count, 2);
  ASSERT_EQ(sets.surplus.size(), 1U);
  EXPECT_EQ(sets.surplus[0].name, sets.required[1].name);
  EXPECT_EQ(sets.surplus[0].count, 1);
}

kube::ResourceFlavor Spot() {
  kube::ResourceFlavor flavor;
  flavor.meta.name = "spot";
  flavor.node_labels["pool"] = "gpu-spot";
  flavor.node_labels["zone"] = "a";
  flavor.tolerations = {{"spot", true, "", kube::TaintEffect::kNoExecute}};
  flavor.toleration_seconds = {300};
  return flavor;
}

TEST(FlavorsFor, AddsWhatTheMemberLacksAndChangesNothing) {
  const kube::Pod pod = With(Gpu("a"), [](auto& spec) { spec.node_selector["zone"] = "a"; });
  const kube::ResourceFlavor spot = Spot();
  const PodSetAssignment given{"set", 1, {{"nvidia.com/gpu", "spot"}}, {}};
  const FlavorAdditions added = FlavorsFor(pod, given, "team", {&spot, &spot});
  EXPECT_EQ(added.node_selector, (std::map<std::string, std::string>{{"pool", "gpu-spot"}}));
  ASSERT_EQ(added.tolerations.size(), 1U);
  EXPECT_EQ(added.tolerations[0].toleration, spot.tolerations[0]);
  EXPECT_EQ(added.tolerations[0].seconds, 300);
  EXPECT_EQ(added.annotations,
            (std::map<std::string, std::string>{{"muster.dev/pod-set", "set"},
                                                {"muster.dev/flavors", "nvidia.com/gpu=spot"},
                                                {"muster.dev/queue", "team"}}));
}

// What the API server has once FlavorsFor was written.
kube::Pod Given(const kube::Pod& pod, const std::vector<const kube::ResourceFlavor*>& flavors) {
  const PodSetAssignment given{PodSetOf(pod), 1, {{"cpu", "any"}, {"gpu", "spot"}}, {}};
  const FlavorAdditions added = FlavorsFor(pod, given, "team", flavors);
  kube::Pod after = With(pod, [&](auto& spec) {
    for (const auto& [key, value] : added.node_selector) spec.node_selector[key] = value;
    for (const auto& more : added.tolerations) spec.tolerations.push_back(more.toleration);
  });
  for (const auto& [key, value] : added.annotations) after.meta.annotations[key] = value;
  return after;
}

TEST(SpecBeforeFlavors, IsWhatTheWorkloadSays) {
  const kube::ResourceFlavor spot = Spot();
  const kube::Pod pod = With(Gpu("a"), [](auto& spec) { spec.node_selector["zone"] = "a"; });
  const kube::Pod given = Given(pod, {&spot});
  EXPECT_EQ(CarriedFlavors(given), (std::set<std::string>{"any", "spot"}));
  EXPECT_TRUE(CarriedFlavors(Gpu("a")).empty());
  kube::Workload of_job;
  of_job.pod_sets.push_back({.name = "main", .count = 1, .spec = pod.spec});
  EXPECT_EQ(SpecBeforeFlavors(of_job, PodSetOf(given)), pod.spec);
  kube::Workload of_group;
  of_group.pod_sets.push_back({.name = PodSetOf(given), .count = 1, .spec = pod.spec});
  EXPECT_EQ(SpecBeforeFlavors(of_group, PodSetOf(given)), pod.spec);
  of_group.pod_sets[0].name = "worker";
  EXPECT_EQ(SpecBeforeFlavors(of_group, PodSetOf(given)), nullptr);
}

TEST(FlavorsFor, WhatWasAddedIsRecognised) {
  kube::Pod pod = Gpu("a");
  PodSetAssignment given{"set", 1, {{"cpu", "any"}, {"nvidia.com/gpu", "spot"}}, {}};
  EXPECT_FALSE(HasFlavors(pod, given));
  for (const auto& [key, value] : FlavorsFor(pod, given, "team", {}).annotations) {
    pod.meta.annotations[key] = value;
  }
  EXPECT_TRUE(HasFlavors(pod, given));
  given.flavors["cpu"] = "other";
  EXPECT_FALSE(HasFlavors(pod, given));
}

// Kueue names the pod sets of plain pods by digests of its own, those of a job by its roles.
TEST(NameByPods, WhatKueueReservedForPlainPodsIsTheirsByWhatTheyAskFor) {
  kube::Pod pod = Gpu("a");
  Admission admission;
  PodSetAssignment big{"big", 1, {{"nvidia.com/gpu", "any"}}, {}};
  big.usage.Set("nvidia.com/gpu", 1 + pod.spec->requests.Get("nvidia.com/gpu"));
  PodSetAssignment same{"same", 2, {{"nvidia.com/gpu", "any"}}, {}};
  for (const auto& [resource, amount] : pod.spec->requests.entries()) {
    same.usage.Set(resource, 2 * amount);
  }
  admission.pod_sets = {big, same};
  NameByPods({&pod}, &admission);
  EXPECT_EQ(admission.pod_sets[0].name, "big");
  EXPECT_EQ(admission.pod_sets[1].name, PodSetOf(pod));
}

TEST(NameByPods, APodOfAnotherRoleOfItsJobTakesNothing) {
  kube::Pod pod = Gpu("a");
  pod.meta.labels[kube::kPodSetLabel] = "worker";
  Admission admission;
  PodSetAssignment master{"master", 1, {{"nvidia.com/gpu", "any"}}, {}};
  master.usage = pod.spec->requests;
  admission.pod_sets = {master};
  NameByPods({&pod}, &admission);
  EXPECT_EQ(admission.pod_sets[0].name, "master");
}

TEST(PodSetAssignment, LacksWhatAPodAsksForBeyondWhatWasCountedForEach) {
  PodSetAssignment given{"set", 2, {{"nvidia.com/gpu", "any"}}, {}};
  given.usage.Set("nvidia.com/gpu", 4);
  kube::ResourceList asked;
  asked.Set("cpu", 100);
  asked.Set("nvidia.com/gpu", 2);
  asked.Set("pods", 1);
  EXPECT_EQ(given.LackingFor(asked).ToString(), "cpu=100m");
  given.count = 0;
  EXPECT_EQ(given.LackingFor(asked).Get("nvidia.com/gpu"), 2);
}

}  // namespace
}  // namespace muster::quota
