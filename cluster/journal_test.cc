#include "cluster/journal.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cluster/snapshot.h"
#include "cluster/test_objects.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using namespace test;

// "a: class, marks; b: came, room grew"
std::string NodesIn(const Journal& journal) {
  std::string text;
  for (const auto& [name, entry] : journal.nodes) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: {}", name, entry.observed.ToString());
    if (!entry.formerly.empty()) text += fmt::format(" (formerly {})", entry.formerly);
  }
  return text;
}

std::string Named(const Journal::ByName<ObjectChange>& objects) {
  std::string text;
  for (const auto& [name, change] : objects) {
    const char* word = change == ObjectChange::kCame      ? "came"
                       : change == ObjectChange::kChanged ? "changed"
                                                          : "went";
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", name, word);
  }
  return text;
}

struct Step {
  const char* name;
  std::function<void(Snapshot&)> change;
  const char* nodes;  // what NodesIn says
};

void Walk(Snapshot& snapshot, const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    step.change(snapshot);
    EXPECT_EQ(NodesIn(snapshot.TakeJournal()), step.nodes) << step.name;
  }
  EXPECT_TRUE(snapshot.TakeJournal().empty());
}

// --- nodes ---

TEST(JournalNodes, SaysWhatOfANodeChanged) {
  Snapshot snapshot;
  kube::Node node = MakeNode("a");
  node.meta.resource_version = "1";
  auto put = [&node](auto change) {
    return [&node, change](Snapshot& snapshot) {
      change(node);
      snapshot.Upsert(node);
    };
  };
  Walk(
      snapshot,
      {
          {"comes", put([](auto&) {}), "a: came, room grew"},
          {"heartbeat", put([](kube::Node& n) { n.meta.resource_version = "2"; }), ""},
          {"the same once more", put([](auto&) {}), ""},
          {"older",
           [](Snapshot& s) {
             kube::Node older = MakeNode("a", "elsewhere");
             older.meta.resource_version = "1";
             s.Upsert(older);
           },
           ""},
          {"annotation", put([](kube::Node& n) { n.meta.annotations["a"] = "b"; }), "a: marks"},
          {"finalizer", put([](kube::Node& n) { n.meta.finalizers = {"x"}; }), "a: marks"},
          {"label", put([](kube::Node& n) { n.meta.labels["a"] = "b"; }), "a: class, marks"},
          {"taint",
           put([](kube::Node& n) { n.taints = {{"a", "", kube::TaintEffect::kNoSchedule}}; }),
           "a: class, marks"},
          {"taint gone", put([](kube::Node& n) { n.taints.clear(); }), "a: class, marks"},
          {"cordoned", put([](kube::Node& n) { n.unschedulable = true; }), "a: class, marks"},
          {"uncordoned", put([](kube::Node& n) { n.unschedulable = false; }), "a: class, marks"},
          {"has more", put([](kube::Node& n) { n.allocatable.Set("cpu", 97'000); }),
           "a: room grew, marks"},
          {"has less", put([](kube::Node& n) { n.allocatable.Set("cpu", 96'000); }),
           "a: room shrank, marks"},
          {"more of one and less of another", put([](kube::Node& n) {
             n.allocatable.Set("cpu", 97'000);
             n.allocatable.Set("pods", 109);
           }),
           "a: room grew, room shrank, marks"},
          {"a device is lost", put([](kube::Node& n) { n.allocatable.Set("nvidia.com/gpu", 7); }),
           "a: room shrank, class, marks"},
          {"the device is back", put([](kube::Node& n) { n.allocatable.Set("nvidia.com/gpu", 8); }),
           "a: room grew, class, marks"},
          {"not Ready", put([](kube::Node& n) { n.ready = false; }), "a: went, class, marks"},
          {"why it isn't Ready", put([](kube::Node& n) { n.ready_message = "no network"; }),
           "a: marks"},
          {"Ready again", put([](kube::Node& n) {
             n.ready = true;
             n.ready_message.clear();
           }),
           "a: room grew, class, marks"},
          {"malformed", put([](kube::Node& n) { n.error = "status.capacity: bad"; }),
           "a: went, class, marks"},
          {"well-formed", put([](kube::Node& n) { n.error.clear(); }),
           "a: room grew, class, marks"},
          {"is being deleted", put([](kube::Node& n) { n.meta.deletion_time = absl::UnixEpoch(); }),
           "a: went, class, marks"},
          {"is gone", [](Snapshot& s) { s.RemoveNode("a"); }, "a: went"},
          {"an unknown one goes", [](Snapshot& s) { s.RemoveNode("b"); }, ""},
      });
}

TEST(JournalNodes, AHeartbeatStillBringsTheVersionThatWritesNeed) {
  Snapshot snapshot;
  kube::Node node = MakeNode("a");
  node.meta.resource_version = "1";
  kube::Node early = MakeEarlyNode("ip-1", "aws:///i-1");
  early.meta.resource_version = "1";
  kube::NodeClaim claim = Launched(MakeClaim("c"), "aws:///i-1");
  claim.meta.resource_version = "1";
  snapshot.Upsert(node);
  snapshot.Upsert(early);
  snapshot.Upsert(claim);
  snapshot.TakeJournal();
  node.meta.resource_version = early.meta.resource_version = claim.meta.resource_version = "2";
  snapshot.Upsert(node);
  snapshot.Upsert(early);
  snapshot.Upsert(claim);
  EXPECT_TRUE(snapshot.TakeJournal().empty());
  EXPECT_EQ(snapshot.FindNode("a")->object->meta.resource_version, "2");
  EXPECT_EQ(snapshot.FindNode("a")->node->meta.resource_version, "2");
  EXPECT_EQ(snapshot.FindNode("ip-1")->object->meta.resource_version, "2");
  EXPECT_EQ(snapshot.FindNode("ip-1")->claim->meta.resource_version, "2");
  EXPECT_EQ(snapshot.FindNodeClaim("c")->meta.resource_version, "2");
}

TEST(JournalNodes, FollowsANodeWhileItComesUp) {
  Snapshot snapshot;
  kube::NodeClaim claim = MakeClaim("c");
  kube::Node node = MakeEarlyNode("ip-1", "aws:///i-1");
  Walk(snapshot,
       {
           {"requested", [&](Snapshot& s) { s.Upsert(claim); }, "nodeclaim/c: came, room grew"},
           {"launched",
            [&](Snapshot& s) {
              claim = Launched(claim, "aws:///i-1");
              s.Upsert(claim);
            },
            "nodeclaim/c: room grew, class, marks"},
           {"a condition without effect",
            [&](Snapshot& s) {
              SetTrue(claim, "Consolidatable");
              s.Upsert(claim);
            },
            "nodeclaim/c: marks"},
           {"its Node appears", [&](Snapshot& s) { s.Upsert(node); },
            "ip-1: came, room grew (formerly nodeclaim/c); nodeclaim/c: went"},
           {"registered", [&](Snapshot& s) { s.Upsert(node = Registered(node)); },
            "ip-1: class, marks"},
           {"initialized, its devices are awaited",
            [&](Snapshot& s) { s.Upsert(node = WithGpus(Initialized(node), 7, 8)); },
            "ip-1: room shrank, class, marks"},
           {"complete", [&](Snapshot& s) { s.Upsert(node = WithGpus(node, 8, 8)); },
            "ip-1: room grew, class, marks"},
           {"its claim is being deleted",
            [&](Snapshot& s) {
              claim.meta.deletion_time = absl::UnixEpoch();
              s.Upsert(claim);
            },
            "ip-1: went, class, marks"},
           {"the claim goes first", [](Snapshot& s) { s.RemoveNodeClaim("c"); },
            "ip-1: room grew, class, marks"},
           {"the Node goes", [](Snapshot& s) { s.RemoveNode("ip-1"); }, "ip-1: went"},
       });
}

TEST(JournalNodes, AnEarlyNodeThatVanishesLeavesItsClaimAsANodeOfItsOwn) {
  Snapshot snapshot;
  snapshot.Upsert(Launched(MakeClaim("c"), "aws:///i-1"));
  snapshot.Upsert(MakeEarlyNode("ip-1", "aws:///i-1"));
  snapshot.TakeJournal();
  snapshot.RemoveNode("ip-1");
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "ip-1: went; nodeclaim/c: came, room grew");
}

// --- pods ---

TEST(JournalPods, SaysOnWhichNodeAndWhichWay) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(MakeNode("b"));
  snapshot.TakeJournal();
  kube::Pod pod = MakePod("p", {{"cpu", 100}});
  auto put = [&pod](auto change) {
    return [&pod, change](Snapshot& snapshot) {
      change(pod);
      snapshot.Upsert(pod);
    };
  };
  Walk(snapshot,
       {
           {"appears", put([](auto&) {}), ""},
           {"is assumed", [](Snapshot& s) { ASSERT_TRUE(s.Assume("pod-p", "a").ok()); }, ""},
           {"is forgotten", [](Snapshot& s) { s.Forget("pod-p"); }, ""},
           {"is assumed again", [](Snapshot& s) { ASSERT_TRUE(s.Assume("pod-p", "a").ok()); }, ""},
           {"is bound where it was assumed", put([](kube::Pod& p) { p.node_name = "a"; }), ""},
           {"runs", put([](kube::Pod& p) { p.phase = kube::PodPhase::kRunning; }), ""},
           {"an annotation", put([](kube::Pod& p) { p.meta.annotations["a"] = "b"; }), ""},
           {"a label", put([](kube::Pod& p) { p.meta.labels["a"] = "b"; }), "a: pods"},
           {"shrinks in place", put([](kube::Pod& p) {
              p = With(p, [](kube::PodSpec& spec) { spec.requests.Set("cpu", 50); });
            }),
            "a: room grew"},
           {"is being deleted", put([](kube::Pod& p) { p.meta.deletion_time = absl::UnixEpoch(); }),
            "a: pods"},
           {"has ended", put([](kube::Pod& p) { p.phase = kube::PodPhase::kFailed; }),
            "a: room grew, pods"},
           {"goes", [](Snapshot& s) { s.RemovePod("pod-p"); }, ""},
       });
}

TEST(JournalPods, BoundElsewhereThanAssumedChangesBothNodes) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(MakeNode("b"));
  snapshot.Upsert(MakePod("p"));
  ASSERT_TRUE(snapshot.Assume("pod-p", "a").ok());
  snapshot.TakeJournal();
  snapshot.Upsert(BoundTo(MakePod("p"), "b"));
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: room grew, pods; b: room shrank, pods");
}

TEST(JournalPods, AHostPortIsRoom) {
  Snapshot snapshot;
  kube::DaemonSet daemons = MakeDaemonSet("d", {{"cpu", 100}});
  kube::Pod pod =
      With(PodOf(daemons, "a"), [](kube::PodSpec& spec) { spec.host_ports = {{"", "TCP", 8000}}; });
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(daemons);
  snapshot.TakeJournal();
  snapshot.Upsert(pod);
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: room shrank, pods");
  snapshot.RemovePod(pod.meta.uid);
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: room grew, pods");
}

TEST(JournalPods, OneWhoseRequestsCannotBeReadTakesItsNode) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  snapshot.TakeJournal();
  kube::Pod pod = BoundTo(MakePod("p"), "a");
  pod.spec_error = "spec.containers[0]: bad";
  snapshot.Upsert(pod);
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: went, room shrank, class, pods");
  snapshot.RemovePod("pod-p");
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: room grew, class, pods");
}

TEST(JournalPods, AreNamedWithTheNodeThatTheyAwait) {
  Snapshot snapshot;
  snapshot.Upsert(BoundTo(MakePod("p"), "a"));
  EXPECT_TRUE(snapshot.TakeJournal().empty());
  snapshot.Upsert(MakeNode("a"));
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: came, room grew, room shrank, pods");
  snapshot.RemoveNode("a");
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: went, pods");
}

// --- DaemonSets ---

TEST(JournalDaemonSets, AreNamedByTheNodesThatTheyTouch) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a", "z1"));
  snapshot.Upsert(MakeNode("b", "z2"));
  snapshot.TakeJournal();
  kube::DaemonSet daemons = MakeDaemonSet("d", {{"cpu", 100}});
  daemons.pod_spec = With(MakePod("x", {{"cpu", 100}}), [](kube::PodSpec& spec) {
                       spec.node_selector = {{kube::kZoneLabel, "z1"}};
                     }).spec;
  Walk(snapshot, {
                     {"comes", [&](Snapshot& s) { s.Upsert(daemons); }, "a: room shrank"},
                     {"its status", [&](Snapshot& s) { s.Upsert(daemons); }, ""},
                     {"its pod takes what was reserved",
                      [&](Snapshot& s) { s.Upsert(PodOf(daemons, "a")); }, "a: pods"},
                     {"its pod goes", [](Snapshot& s) { s.RemovePod("pod-d-a"); }, "a: pods"},
                     {"goes", [](Snapshot& s) { s.RemoveDaemonSet("ds-d"); }, "a: room grew"},
                 });
}

// --- what belongs to no node ---

TEST(JournalStorage, NamesWhatPredicatesRead) {
  Snapshot snapshot;
  kube::PersistentVolumeClaim claim;
  claim.meta.name = "data";
  claim.meta.name_space = "default";
  kube::PersistentVolume volume;
  volume.meta.name = "v";
  kube::StorageClass storage_class;
  storage_class.meta.name = "fast";
  struct StorageStep {
    const char* name;
    std::function<void()> change;
    const char* claims;
    const char* volumes;
    const char* classes;
  };
  const std::vector<StorageStep> steps = {
      {"claim comes", [&] { snapshot.Upsert(claim); }, "default/data came", "", ""},
      {"its status", [&] { snapshot.Upsert(claim); }, "", "", ""},
      {"a node is selected",
       [&] {
         claim.meta.annotations["volume.kubernetes.io/selected-node"] = "a";
         snapshot.Upsert(claim);
       },
       "default/data changed", "", ""},
      {"another annotation",
       [&] {
         claim.meta.annotations["a"] = "b";
         snapshot.Upsert(claim);
       },
       "", "", ""},
      {"is bound",
       [&] {
         claim.bound = true;
         claim.volume_name = "v";
         snapshot.Upsert(claim);
       },
       "default/data changed", "", ""},
      {"volume comes", [&] { snapshot.Upsert(volume); }, "", "v came", ""},
      {"its claim",
       [&] {
         volume.claim_ref = "default/data";
         snapshot.Upsert(volume);
       },
       "", "v changed", ""},
      {"it is in a zone",
       [&] {
         volume.required_node_terms = {{{In(kube::kZoneLabel, {"z1"})}, {}}};
         snapshot.Upsert(volume);
       },
       "", "v changed", ""},
      {"class comes", [&] { snapshot.Upsert(storage_class); }, "", "", "fast came"},
      {"class waits for pods",
       [&] {
         storage_class.wait_for_first_consumer = true;
         snapshot.Upsert(storage_class);
       },
       "", "", "fast changed"},
      {"all go",
       [&] {
         snapshot.RemovePersistentVolumeClaim("default/data");
         snapshot.RemovePersistentVolume("v");
         snapshot.RemoveStorageClass("fast");
       },
       "default/data went", "v went", "fast went"},
      {"the unknown go",
       [&] {
         snapshot.RemovePersistentVolumeClaim("default/data");
         snapshot.RemovePersistentVolume("v");
         snapshot.RemoveStorageClass("fast");
       },
       "", "", ""},
  };
  for (const StorageStep& step : steps) {
    step.change();
    const Journal journal = snapshot.TakeJournal();
    EXPECT_EQ(Named(journal.volume_claims), step.claims) << step.name;
    EXPECT_EQ(Named(journal.volumes), step.volumes) << step.name;
    EXPECT_EQ(Named(journal.storage_classes), step.classes) << step.name;
    EXPECT_TRUE(journal.nodes.empty()) << step.name;
  }
}

TEST(JournalNamespaces, NamesThoseWhoseLabelsChanged) {
  Snapshot snapshot;
  kube::Namespace space;
  space.meta.name = "team";
  auto after = [&](auto change) {
    change();
    return Named(snapshot.TakeJournal().namespaces);
  };
  EXPECT_EQ(after([&] { snapshot.Upsert(space); }), "") << "unknown, and without labels: the same";
  space.meta.labels["a"] = "b";
  EXPECT_EQ(after([&] { snapshot.Upsert(space); }), "team came");
  space.meta.annotations["a"] = "b";
  EXPECT_EQ(after([&] { snapshot.Upsert(space); }), "");
  space.meta.labels["a"] = "c";
  EXPECT_EQ(after([&] { snapshot.Upsert(space); }), "team changed");
  EXPECT_EQ(after([&] { snapshot.RemoveNamespace("team"); }), "team went");
}

// --- several changes in one journal ---

TEST(Journal, AddsUpWhatHappensBetweenTwoTakings) {
  Snapshot snapshot;
  kube::Node node = MakeNode("a");
  snapshot.Upsert(node);
  snapshot.Upsert(MakePod("p"));
  snapshot.TakeJournal();
  ASSERT_TRUE(snapshot.Assume("pod-p", "a").ok());
  node.meta.labels["a"] = "b";
  snapshot.Upsert(node);
  snapshot.Upsert(BoundTo(MakePod("q"), "a"));
  EXPECT_EQ(NodesIn(snapshot.TakeJournal()), "a: room shrank, class, pods, marks");
}

TEST(Journal, WhatCameAndWentIsNotNamed) {
  Snapshot snapshot;
  kube::PersistentVolume volume;
  volume.meta.name = "v";
  for (int i = 0; i < 3; ++i) {
    snapshot.Upsert(MakeNode("a"));
    snapshot.Upsert(volume);
    snapshot.RemoveNode("a");
    snapshot.RemovePersistentVolume("v");
  }
  EXPECT_TRUE(snapshot.TakeJournal().empty());
}

TEST(Journal, WhatWentAndCameBackIsNamedWithBoth) {
  Snapshot snapshot;
  snapshot.Upsert(MakeNode("a"));
  kube::PersistentVolume volume;
  volume.meta.name = "v";
  snapshot.Upsert(volume);
  snapshot.TakeJournal();
  snapshot.RemoveNode("a");
  snapshot.RemovePersistentVolume("v");
  snapshot.Upsert(MakeNode("a"));
  snapshot.Upsert(volume);
  Journal journal = snapshot.TakeJournal();
  EXPECT_EQ(NodesIn(journal), "a: came, went, room grew");
  EXPECT_FALSE(journal.nodes.at("a").is_new);
  EXPECT_EQ(Named(journal.volumes), "v changed");
  snapshot.RemoveNode("a");
  snapshot.Upsert(MakeNode("a"));
  snapshot.RemoveNode("a");
  EXPECT_TRUE(snapshot.TakeJournal().nodes.at("a").observed.Has(NodeChange::kWent));
}

}  // namespace
}  // namespace muster::cluster
