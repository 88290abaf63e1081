// `muster uninstall` against the embedded API server, which holds what a Muster leaves that was
// stopped with gangs in each state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "extender/move/api_calls.h"
#include "extender/uninstall/uninstall_command.h"
#include "fmt/format.h"
#include "kube/embedded/test_client.h"
#include "kube/objects/time_text.h"

namespace muster::extender {
namespace {

using kube::embedded::TestAnswer;
using kube::embedded::TestServer;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Waiting = UninstallSettings::Waiting;

constexpr const char* kPods = "/api/v1/namespaces/team/pods";
constexpr const char* kGroups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups";
constexpr const char* kJobs = "/apis/batch/v1/namespaces/team/jobs";
constexpr const char* kWorkloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
constexpr const char* kClusterQueues = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
constexpr const char* kFlavors = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors";
constexpr const char* kLeases = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases";
constexpr const char* kDeployments = "/apis/apps/v1/namespaces/muster-system/deployments";
constexpr const char* kAdmission = "/apis/admissionregistration.k8s.io/v1/";
constexpr const char* kApiServices = "/apis/apiregistration.k8s.io/v1/apiservices";
constexpr const char* kFinalizer = "kueue.x-k8s.io/resource-in-use";

// Answers at once, with what a test puts in between.
class ServerTransport : public kube::Transport {
 public:
  explicit ServerTransport(TestServer& server) : server_(server) {}

  void Send(kube::Request request, Done done) override {
    if (request.method != kube::Method::kGet) ++writes;
    std::optional<kube::Response> instead = before(request);
    done(instead ? *std::move(instead) : server_.server().Handle(request));
  }
  std::unique_ptr<kube::Stream> Watch(kube::Request, OnLine, OnEnd) override { return nullptr; }

  int writes = 0;
  // Nothing: the server answers.
  std::function<std::optional<kube::Response>(const kube::Request&)> before =
      [](const kube::Request&) { return std::nullopt; };

 private:
  TestServer& server_;
};

// A cluster that a Muster was part of.
class Cluster {
 public:
  Cluster() {
    for (const char* name : {"team", "muster-system", "kueue-system"}) {
      Post("/api/v1/namespaces", {{"metadata", {{"name", name}}}});
    }
    Define("apps", "deployments", "Deployment", true);
    Define("admissionregistration.k8s.io", "validatingadmissionpolicies",
           "ValidatingAdmissionPolicy", false);
    Define("admissionregistration.k8s.io", "validatingadmissionpolicybindings",
           "ValidatingAdmissionPolicyBinding", false);
  }

  json Post(const std::string& path, const json& body) {
    const TestAnswer made = server.Post(path, body);
    EXPECT_EQ(made.status, 201) << path << ": " << made.body;
    return made.body;
  }
  void Status(const std::string& path, const json& status) {
    const TestAnswer said = server.MergePatch(path + "/status", {{"status", status}});
    EXPECT_EQ(said.status, 200) << path << ": " << said.body;
  }
  json Get(const std::string& path) { return server.Get(path).body; }
  json Named(const std::string& name, json metadata = json::object()) {
    metadata["name"] = name;
    return metadata;
  }

  void AddPod(const std::string& name, bool gated, const std::string& node, const json& annotations,
              bool asks_for_node = false) {
    json spec = {{"schedulerName", "coscheduling"},
                 {"containers", json::array({{{"name", "c"}, {"image", "i"}}})}};
    if (gated) {
      spec["schedulingGates"] =
          json::array({{{"name", "muster.dev/admission"}}, {{"name", "example.com/other"}}});
    }
    if (!node.empty()) spec["nodeName"] = node;
    Post(kPods, {{"metadata", Named(name, {{"annotations", annotations}})}, {"spec", spec}});
    if (asks_for_node) {
      Status(
          fmt::format("{}/{}", kPods, name),
          {{"conditions",
            json::array({{{"type", "PodScheduled"},
                          {"status", "False"},
                          {"reason", "Unschedulable"},
                          {"message", "gang team/g waits for nodes for all of its members"}}})}});
    }
  }

  json AddJob(const std::string& name, const json& annotations, json pod_spec = json::object()) {
    pod_spec["schedulerName"] = "coscheduling";
    pod_spec["restartPolicy"] = "Never";
    pod_spec["containers"] = json::array({{{"name", "c"}, {"image", "i"}}});
    return Post(kJobs, {{"metadata", Named(name, {{"annotations", annotations}})},
                        {"spec",
                         {{"suspend", true},
                          {"parallelism", 2},
                          {"completions", 2},
                          {"template", {{"spec", pod_spec}}}}}});
  }

  void AddWorkload(const json& job, const json& conditions, json finalizers) {
    const std::string name = "w-" + job["metadata"]["name"].get<std::string>();
    const json owner = {{"apiVersion", "batch/v1"},
                        {"kind", "Job"},
                        {"name", job["metadata"]["name"]},
                        {"uid", job["metadata"]["uid"]},
                        {"controller", true}};
    const json container = {{"name", "c"}, {"image", "i"}};
    Post(kWorkloads,
         {{"metadata",
           Named(name, {{"finalizers", std::move(finalizers)},
                        {"annotations", {{"muster.dev/leader", "m"}, {"example.com/kept", "yes"}}},
                        {"ownerReferences", json::array({owner})}})},
          {"spec",
           {{"queueName", "default"},
            {"active", true},
            {"podSets", json::array({{{"name", "main"},
                                      {"count", 2},
                                      {"template",
                                       {{"spec",
                                         {{"restartPolicy", "Never"},
                                          {"containers", json::array({container})}}}}}}})}}}});
    Status(fmt::format("{}/{}", kWorkloads, name), {{"conditions", conditions}});
  }

  static json Condition(const char* type, const char* reason) {
    return {{"type", type},
            {"status", "True"},
            {"reason", reason},
            {"message", ""},
            {"lastTransitionTime", "2026-01-01T00:00:00Z"}};
  }

  void Lease(const std::string& name_space, const std::string& name, const std::string& holder,
             absl::Time renewed) {
    const std::string path =
        fmt::format("/apis/coordination.k8s.io/v1/namespaces/{}/leases", name_space);
    const json spec = {{"holderIdentity", holder},
                       {"leaseDurationSeconds", 6},
                       {"renewTime", kube::MicroTimeText(renewed)}};
    if (server.Get(path + "/" + name).status == 200) {
      server.MergePatch(path + "/" + name, {{"spec", spec}});
    } else {
      Post(path, {{"metadata", Named(name)}, {"spec", spec}});
    }
  }

  // Of each state one.
  void Fill() {
    const json part_of = {{"labels", {{"app.kubernetes.io/part-of", "muster"}}}};
    Post(kAdmission + std::string("mutatingwebhookconfigurations"),
         {{"metadata", Named("muster-admission", part_of)}, {"webhooks", json::array()}});
    Post(kAdmission + std::string("validatingwebhookconfigurations"),
         {{"metadata", Named("muster-warnings", part_of)}, {"webhooks", json::array()}});
    Post(kAdmission + std::string("validatingwebhookconfigurations"),
         {{"metadata", Named("others")}, {"webhooks", json::array()}});
    for (const char* kind : {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}) {
      Post(std::string(kAdmission) + kind, {{"metadata", Named("muster-state", part_of)}});
      Post(std::string(kAdmission) + kind, {{"metadata", Named("others")}});
    }
    // The embedded API server hands nothing on.
    Post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
         {{"metadata", Named("apiservices.apiregistration.k8s.io")},
          {"spec",
           {{"group", "apiregistration.k8s.io"},
            {"scope", "Cluster"},
            {"names", {{"plural", "apiservices"}, {"kind", "APIService"}}},
            {"versions",
             json::array({{{"name", "v1"},
                           {"served", true},
                           {"storage", true},
                           {"schema", {{"openAPIV3Schema", {{"type", "object"}}}}}}})}}}});
    for (const char* name : {"v1beta1.visibility.muster.dev", "v1.others"}) {
      Post(kApiServices, {{"metadata", Named(name, part_of)}, {"spec", json::object()}});
    }
    Lease("muster-system", "coscheduling", "", server.now() - absl::Hours(1));
    Lease("muster-system", "others", "them", server.now());
    Post(kDeployments, {{"metadata", Named("muster", part_of)}, {"spec", {{"replicas", 0}}}});

    Post(kGroups,
         {{"metadata",
           Named("g", {{"annotations",
                        {{"muster.dev/admission", "{}"}, {"muster.dev/fallback", "never"}}}})},
          {"spec", {{"minMember", 2}}}});
    AddPod("waits", true, "", json::object());
    AddPod("asks", true, "", {{"muster.dev/pod-set", "main"}, {"example.com/kept", "yes"}}, true);
    AddPod("turned-away", false, "", json::object(), true);
    AddPod("runs", false, "held", {{"muster.dev/epoch", "2"}});
    json node = kube::embedded::MakeNode("held");
    node["metadata"]["annotations"] = {{"muster.dev/holds", "{}"},
                                       {"muster.dev/hold-added", "true"},
                                       {"karpenter.sh/do-not-disrupt", "true"}};
    Post(kube::embedded::kNodes, node);
    node = kube::embedded::MakeNode("suspect");
    node["metadata"]["annotations"] = {{"muster.dev/suspect", "{}"},
                                       {"muster.dev/holds", "{}"},
                                       {"karpenter.sh/do-not-disrupt", "true"}};
    node["spec"]["taints"] =
        json::array({{{"key", "nvidia.com/gpu"}, {"effect", "NoSchedule"}},
                     {{"key", "muster.dev/suspect"}, {"effect", "NoSchedule"}, {"value", "v"}},
                     {{"key", "others"}, {"effect", "NoSchedule"}}});
    Post(kube::embedded::kNodes, node);

    AddJob("restarting", {{"muster.dev/restart", R"({"at":"2026-01-01T00:00:00Z","why":"w"})"},
                          {"muster.dev/flavors-tried", "{}"}});
    AddJob("its-users", {{"muster.dev/gang", "false"}});
    json evicted = AddJob("evicted", json::object(), {{"nodeSelector", {{"flavor", "a"}}}});
    AddWorkload(evicted, json::array({Condition("Evicted", "Preempted")}),
                json::array({kFinalizer, "example.com/others"}));
    json stopped = AddJob("stopped", json::object());
    AddWorkload(stopped, json::array({Condition("Evicted", "ClusterQueueStopped")}),
                json::array({kFinalizer}));
    Post(kClusterQueues, {{"metadata", Named("q", {{"finalizers", json::array({kFinalizer})}})},
                          {"spec", json::object()}});
    Post(kFlavors, {{"metadata", Named("f", {{"finalizers", json::array({kFinalizer})}})},
                    {"spec", json::object()}});
  }

  // Everything, without what changes with each write.
  std::map<std::string, json> Everything() {
    std::map<std::string, json> all;
    for (const ListToRead& list : ListsToUninstall({})) {
      json page = Get(list.path);
      for (json& object : page["items"]) {
        json& metadata = object["metadata"];
        for (const char* key : {"resourceVersion", "managedFields", "generation"}) {
          metadata.erase(key);
        }
        all[list.name + "/" + metadata["name"].get<std::string>()] = object;
      }
    }
    return all;
  }

  TestServer server;

 private:
  void Define(const std::string& group, const std::string& plural, const std::string& kind,
              bool namespaced) {
    Post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
         {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", plural + "." + group}}},
          {"spec",
           {{"group", group},
            {"scope", namespaced ? "Namespaced" : "Cluster"},
            {"names", {{"kind", kind}, {"plural", plural}}},
            {"versions",
             json::array({{{"name", "v1"},
                           {"served", true},
                           {"storage", true},
                           {"schema",
                            {{"openAPIV3Schema",
                              {{"type", "object"},
                               {"x-kubernetes-preserve-unknown-fields", true}}}}}}})}}}});
  }
};

class UninstallTest : public testing::Test {
 protected:
  UninstallTest() { cluster_.Fill(); }

  // Exit code; what was printed is in out_ and err_.
  int Run(Waiting waiting, bool apply = true) { return Run(cluster_, transport_, waiting, apply); }
  int Run(Cluster& cluster, ServerTransport& transport, Waiting waiting, bool apply) {
    UninstallOptions options;
    options.apply = apply;
    options.settings.waiting = waiting;
    options.clock = [&] { return cluster.server.now(); };
    options.sleep = [this](absl::Duration time) { slept_(time); };
    std::ostringstream out, err;
    const int code = RunUninstall(options, transport, out, err);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  json Pod(const std::string& name) { return cluster_.Get(fmt::format("{}/{}", kPods, name)); }
  json Job(const std::string& name) { return cluster_.Get(fmt::format("{}/{}", kJobs, name)); }
  json Node(const std::string& name) { return cluster_.Get("/api/v1/nodes/" + name); }
  static json Annotations(const json& object) {
    return object["metadata"].value("annotations", json::object());
  }
  json Finalizers(const std::string& path) {
    return cluster_.Get(path)["metadata"].value("finalizers", json::array());
  }
  int StatusOf(const std::string& path) { return cluster_.server.Get(path).status; }

  Cluster cluster_;
  ServerTransport transport_{cluster_.server};
  std::function<void(absl::Duration)> slept_ = [](absl::Duration) {};
  std::string out_, err_;
};

TEST_F(UninstallTest, WithoutYesItChangesNothingAndSaysWhatItWouldDo) {
  const auto before = cluster_.Everything();
  EXPECT_EQ(Run(Waiting::kLift, /*apply=*/false), 1);
  EXPECT_EQ(transport_.writes, 0);
  EXPECT_EQ(cluster_.Everything(), before);
  EXPECT_THAT(out_,
              AllOf(HasSubstr("muster uninstall --yes is to:"),
                    HasSubstr("delete its webhooks (muster-admission; muster-warnings)"),
                    HasSubstr("have 2 pods ask the autoscaler for no more nodes"),
                    HasSubstr("give 2 nodes back"), HasSubstr("resume 2 jobs that it suspended"),
                    HasSubstr("lift the gate of 2 pods"),
                    HasSubstr("delete Lease muster-system/coscheduling")));
}

TEST_F(UninstallTest, WhatWaitsIsLetGoAndNothingOfMusterIsLeft) {
  EXPECT_EQ(Run(Waiting::kLift), 0) << out_ << err_;
  const std::string admission = kAdmission;
  EXPECT_EQ(StatusOf(admission + "mutatingwebhookconfigurations/muster-admission"), 404);
  EXPECT_EQ(StatusOf(admission + "validatingwebhookconfigurations/muster-warnings"), 404);
  EXPECT_EQ(StatusOf(admission + "validatingwebhookconfigurations/others"), 200);
  for (const char* kind : {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}) {
    EXPECT_EQ(StatusOf(admission + kind + "/muster-state"), 404);
    EXPECT_EQ(StatusOf(admission + kind + "/others"), 200);
  }
  EXPECT_EQ(StatusOf(std::string(kApiServices) + "/v1beta1.visibility.muster.dev"), 404);
  EXPECT_EQ(StatusOf(std::string(kApiServices) + "/v1.others"), 200);
  EXPECT_EQ(StatusOf(std::string(kLeases) + "/coscheduling"), 404);
  EXPECT_EQ(StatusOf(std::string(kLeases) + "/others"), 200);

  for (const char* name : {"waits", "asks"}) {
    EXPECT_EQ(Pod(name)["spec"]["schedulingGates"], json::array({{{"name", "example.com/other"}}}));
  }
  EXPECT_EQ(Annotations(Pod("asks")), json({{"example.com/kept", "yes"}}));
  EXPECT_EQ(Pod("asks")["status"]["conditions"][0]["reason"], "SchedulingGated");
  EXPECT_EQ(Pod("turned-away")["status"]["conditions"][0]["reason"], "SchedulerError");
  EXPECT_THAT(Annotations(Pod("runs")), IsEmpty());

  EXPECT_THAT(Annotations(Node("held")), IsEmpty());
  EXPECT_EQ(Annotations(Node("suspect")), json({{"karpenter.sh/do-not-disrupt", "true"}}))
      << "what was there before the first hold stays";
  const json taints = Node("suspect")["spec"]["taints"];
  ASSERT_EQ(taints.size(), 2u) << taints;
  EXPECT_EQ(taints[0]["key"], "nvidia.com/gpu");
  EXPECT_EQ(taints[1]["key"], "others");

  EXPECT_EQ(Job("restarting")["spec"]["suspend"], false);
  EXPECT_THAT(Annotations(Job("restarting")), IsEmpty());
  EXPECT_EQ(Job("evicted")["spec"]["suspend"], false);
  EXPECT_EQ(Job("its-users")["spec"]["suspend"], true);
  EXPECT_EQ(Job("stopped")["spec"]["suspend"], true) << "by whoever stopped the queue";
  EXPECT_EQ(Annotations(Job("its-users")), json({{"muster.dev/gang", "false"}}));
  EXPECT_EQ(Annotations(cluster_.Get(std::string(kGroups) + "/g")),
            json({{"muster.dev/fallback", "never"}}));

  const json workload = cluster_.Get(std::string(kWorkloads) + "/w-evicted");
  EXPECT_EQ(workload["metadata"]["finalizers"], json::array({"example.com/others"}));
  EXPECT_EQ(Annotations(workload), json({{"example.com/kept", "yes"}}));
  for (const std::string& path :
       {std::string(kWorkloads) + "/w-stopped", std::string(kClusterQueues) + "/q",
        std::string(kFlavors) + "/f"}) {
    EXPECT_THAT(Finalizers(path), IsEmpty()) << path;
  }
  EXPECT_THAT(out_, AllOf(HasSubstr("Nothing is left to do."), HasSubstr("what stays"),
                          HasSubstr("helm uninstall muster")));

  transport_.writes = 0;
  EXPECT_EQ(Run(Waiting::kUndecided), 0) << "nothing waits any more: " << out_;
  EXPECT_EQ(transport_.writes, 0);
}

TEST_F(UninstallTest, WhatWaitsIsKeptForAnotherMuster) {
  EXPECT_EQ(Run(Waiting::kKeep), 0) << out_ << err_;
  EXPECT_EQ(Pod("asks")["spec"]["schedulingGates"].size(), 2u);
  EXPECT_EQ(Annotations(Pod("asks")).size(), 2u);
  EXPECT_EQ(Pod("asks")["status"]["conditions"][0]["reason"], "SchedulingGated")
      << "nodes that nobody waits for would be made";
  EXPECT_EQ(Job("restarting")["spec"]["suspend"], true);
  EXPECT_TRUE(Annotations(Job("restarting")).contains("muster.dev/restart"));
  EXPECT_EQ(Job("evicted")["spec"]["suspend"], true);
  EXPECT_TRUE(
      Annotations(cluster_.Get(std::string(kGroups) + "/g")).contains("muster.dev/admission"));
  EXPECT_THAT(Annotations(Node("held")), IsEmpty());
  EXPECT_THAT(Finalizers(std::string(kClusterQueues) + "/q"), IsEmpty());
  EXPECT_EQ(StatusOf(std::string(kLeases) + "/coscheduling"), 404);
}

TEST_F(UninstallTest, WhatBecomesOfWhatWaitsIsItsOwnersToSay) {
  const auto before = cluster_.Everything();
  EXPECT_EQ(Run(Waiting::kUndecided), 1);
  EXPECT_THAT(out_, AllOf(HasSubstr("2 pods wait behind Muster's gate, and 2 jobs"),
                          HasSubstr("--gates=lift"), HasSubstr("--gates=keep")));
  auto after = cluster_.Everything();
  EXPECT_EQ(before.size(), after.size() + 3) << "the webhooks and the APIService went";
  for (const auto& [name, object] : after) EXPECT_EQ(object, before.at(name)) << name;
}

TEST_F(UninstallTest, UnderTheHandsOfAMusterThatRunsOnlyWhatCallsItGoes) {
  cluster_.Lease("muster-system", "coscheduling", "muster-0_x", cluster_.server.now());
  cluster_.server.MergePatch(std::string(kDeployments) + "/muster", {{"spec", {{"replicas", 2}}}});
  const auto before = cluster_.Everything();
  EXPECT_EQ(Run(Waiting::kLift), 1);
  EXPECT_THAT(out_,
              AllOf(HasSubstr("done: delete its webhooks"),
                    HasSubstr("kubectl -n muster-system scale deployment muster --replicas=0"),
                    HasSubstr("muster-0_x renewed Lease muster-system/coscheduling 0s ago")));
  EXPECT_EQ(cluster_.Everything().size() + 3, before.size());
  EXPECT_TRUE(Annotations(Node("held")).contains("muster.dev/holds"));

  cluster_.server.MergePatch(std::string(kDeployments) + "/muster", {{"spec", {{"replicas", 0}}}});
  EXPECT_EQ(Run(Waiting::kLift), 1) << "its last lead isn't over";
  cluster_.server.Advance(absl::Seconds(7));
  EXPECT_EQ(Run(Waiting::kLift), 0) << out_ << err_;
}

TEST_F(UninstallTest, ALeaseThatIsRenewedIsHeldWhateverTheClockSays) {
  cluster_.Lease("muster-system", "coscheduling", "muster-0_x",
                 cluster_.server.now() - absl::Minutes(5));
  absl::Duration waited;
  slept_ = [&](absl::Duration time) {
    waited += time;
    cluster_.Lease("muster-system", "coscheduling", "muster-0_x",
                   cluster_.server.now() - absl::Minutes(5) + waited);
  };
  EXPECT_EQ(Run(Waiting::kLift), 1);
  EXPECT_EQ(waited, absl::Seconds(2 + 7)) << "for the webhooks, and for the Lease";
  EXPECT_THAT(out_, HasSubstr("it renews its Lease"));
  EXPECT_TRUE(Annotations(Node("held")).contains("muster.dev/holds"));

  slept_ = [&](absl::Duration time) { waited += time; };
  EXPECT_EQ(Run(Waiting::kLift), 0) << out_ << err_;
  EXPECT_EQ(waited, absl::Seconds(2 + 7 + 7));
}

TEST_F(UninstallTest, AfterAnyWriteItCanBeKilledAndBegunAgain) {
  for (const Waiting waiting : {Waiting::kLift, Waiting::kKeep}) {
    Cluster whole;
    whole.Fill();
    ServerTransport straight(whole.server);
    ASSERT_EQ(Run(whole, straight, waiting, true), 0);
    const auto want = whole.Everything();
    ASSERT_GT(straight.writes, 10);
    const int step = waiting == Waiting::kLift ? 1 : 3;
    for (int killed_after = 0; killed_after < straight.writes; killed_after += step) {
      Cluster cluster;
      cluster.Fill();
      ServerTransport transport(cluster.server);
      transport.before = [&](const kube::Request& request) -> std::optional<kube::Response> {
        if (request.method == kube::Method::kGet || transport.writes <= killed_after) return {};
        return kube::Response{403, "{}", {}};  // the last thing that it does
      };
      ASSERT_EQ(Run(cluster, transport, waiting, true), 2);
      transport.before = [](const kube::Request&) { return std::nullopt; };
      ASSERT_EQ(Run(cluster, transport, waiting, true), 0) << killed_after << out_ << err_;
      const auto now = cluster.Everything();
      ASSERT_EQ(now.size(), want.size()) << killed_after;
      for (const auto& [name, object] : want) {
        ASSERT_EQ(now.at(name).value("spec", json()), object.value("spec", json()))
            << killed_after << name;
        ASSERT_EQ(Annotations(now.at(name)), Annotations(object)) << killed_after << name;
      }
    }
  }
}

TEST_F(UninstallTest, WhatIsRefusedForNowIsTriedAgainAndNotForEver) {
  std::map<std::string, int> asked;
  const int answers[] = {503, 429, 409, 500};
  transport_.before = [&](const kube::Request& request) -> std::optional<kube::Response> {
    if (request.method == kube::Method::kGet) return {};
    const int attempt = asked[request.path]++;
    if (attempt > 2) return {};
    return kube::Response{answers[attempt], R"({"kind":"Status"})", {}};
  };
  EXPECT_EQ(Run(Waiting::kLift), 0) << out_ << err_;
  EXPECT_THAT(out_, HasSubstr("changed meanwhile"));

  cluster_.Lease("muster-system", "coscheduling", "", cluster_.server.now());
  asked.clear();
  absl::Duration waited;
  slept_ = [&](absl::Duration time) { waited += time; };
  transport_.before = [&](const kube::Request& request) -> std::optional<kube::Response> {
    if (request.method == kube::Method::kGet) return {};
    ++asked[request.path];
    return kube::Response{503, R"({"kind":"Status","message":"going"})", {}};
  };
  EXPECT_EQ(Run(Waiting::kLift), 2);
  EXPECT_EQ(asked[std::string(kLeases) + "/coscheduling"], 5);
  EXPECT_EQ(waited, absl::Milliseconds(200 + 400 + 800 + 1600));
  EXPECT_THAT(err_, AllOf(HasSubstr("delete Lease"), HasSubstr("going")));
}

TEST_F(UninstallTest, ListsAreReadPageByPageAndBegunAnewWhereTheyExpire) {
  constexpr int kMany = 1100;
  for (int i = 0; i < kMany; ++i) cluster_.AddPod(fmt::format("p-{}", i), true, "", json::object());
  std::set<std::string> pages;
  int expired = 0;
  transport_.before = [&](const kube::Request& request) -> std::optional<kube::Response> {
    for (const auto& [key, value] : request.query) {
      if (request.path != "/api/v1/pods" || key != "continue") continue;
      if (++expired == 1) return kube::Response{410, R"({"kind":"Status","reason":"Expired"})", {}};
      pages.insert(value);
    }
    return {};
  };
  EXPECT_EQ(Run(Waiting::kLift), 0) << err_;
  EXPECT_GE(pages.size(), 2u);
  EXPECT_THAT(out_, HasSubstr(fmt::format("done: lift the gate of {} pods", kMany + 2)));
  EXPECT_EQ(Pod("p-1099")["spec"]["schedulingGates"].size(), 1u);
  transport_.before = [](const kube::Request& request) -> std::optional<kube::Response> {
    if (request.path != "/api/v1/nodes") return {};
    return kube::Response{410, R"({"kind":"Status","message":"too old"})", {}};
  };
  EXPECT_EQ(Run(Waiting::kLift), 2);
  EXPECT_THAT(err_, HasSubstr("list /api/v1/nodes: "));
}

TEST_F(UninstallTest, WhereKueueRunsItsObjectsAreItsOwn) {
  cluster_.Lease("kueue-system", "c1f6bfd2.kueue.x-k8s.io", "kueue_0", cluster_.server.now());
  EXPECT_EQ(Run(Waiting::kLift), 0) << out_ << err_;
  EXPECT_THAT(out_, HasSubstr("Kueue runs"));
  EXPECT_EQ(Finalizers(std::string(kClusterQueues) + "/q").size(), 1u);
  EXPECT_EQ(Job("evicted")["spec"]["suspend"], true);
  EXPECT_EQ(Job("restarting")["spec"]["suspend"], false);
}

// Muster ended between suspending it and restoring it.
TEST_F(UninstallTest, AnEvictedJobGetsBackTheTemplatesThatItHad) {
  json job = cluster_.AddJob("with-flavor", json::object(), {{"nodeSelector", {{"zone", "a"}}}});
  const std::string path = std::string(kJobs) + "/with-flavor";
  cluster_.server.MergePatch(
      path, {{"spec",
              {{"template",
                {{"metadata", {{"annotations", {{"kueue.x-k8s.io/workload", "w-with-flavor"}}}}},
                 {"spec", {{"nodeSelector", {{"flavor", "b"}}}}}}}}}});
  cluster_.AddWorkload(job, json::array({Cluster::Condition("Evicted", "Preempted")}),
                       json::array({kFinalizer}));
  cluster_.Status(path, {{"startTime", "2026-01-01T00:00:00Z"}});
  EXPECT_EQ(Run(Waiting::kLift), 0) << out_ << err_;
  const json resumed = Job("with-flavor");
  EXPECT_EQ(resumed["spec"]["suspend"], false);
  EXPECT_FALSE(resumed["spec"]["template"]["spec"].contains("nodeSelector"))
      << "as its Workload has it: " << resumed["spec"]["template"];
  EXPECT_FALSE(resumed["status"].contains("startTime"));
}

// The requests of the plan's fix that begins with these words.
std::vector<kube::Request> RequestsOf(const ClusterObjects& objects, const std::string& words) {
  UninstallSettings settings;
  settings.waiting = Waiting::kLift;
  for (ChangePlan::Fix& fix : PlanUninstall(objects, settings, absl::UnixEpoch()).fixes) {
    if (fix.what.starts_with(words)) return std::move(fix.requests);
  }
  return {};
}

TEST(UninstallPlan, AJobOfAnyKindIsResumedWhereItsKindIsSuspended) {
  const json metadata = {{"name", "j"},
                         {"namespace", "team"},
                         {"uid", "u"},
                         {"resourceVersion", "1"},
                         {"annotations", {{"muster.dev/restart", "{}"}}}};
  const json suspended = {{"suspend", true}};
  const json in_policy = {{"runPolicy", suspended}};
  const std::map<std::string, std::pair<std::string, json>> kinds = {
      {"jobsets", {"/apis/jobset.x-k8s.io/v1alpha2", suspended}},
      {"pytorchjobs", {"/apis/kubeflow.org/v1", in_policy}},
      {"mpijobs", {"/apis/kubeflow.org/v2beta1", in_policy}},
      {"trainjobs", {"/apis/trainer.kubeflow.org/v1alpha1", suspended}},
      {"rayclusters", {"/apis/ray.io/v1", suspended}},
      {"rayjobs", {"/apis/ray.io/v1", suspended}}};
  for (const auto& [list, kind] : kinds) {
    ClusterObjects objects;
    objects.lists[list] = {{{"metadata", metadata}, {"spec", kind.second}}};
    EXPECT_TRUE(ConcernsUninstall(list, objects.lists[list][0])) << list;
    const std::vector<kube::Request> requests = RequestsOf(objects, "resume 1 jobs");
    ASSERT_EQ(requests.size(), 1u) << list;
    EXPECT_EQ(requests[0].path, fmt::format("{}/namespaces/team/{}/j", kind.first, list));
    json resumed = kind.second;
    (resumed.contains("runPolicy") ? resumed["runPolicy"] : resumed)["suspend"] = false;
    const json body = json::parse(requests[0].body);
    EXPECT_EQ(body["spec"], resumed) << list;
    EXPECT_TRUE(body["metadata"]["annotations"]["muster.dev/restart"].is_null()) << list;

    // Its user has resumed it and suspended it again since.
    objects.lists[list][0]["metadata"]["annotations"]["muster.dev/restart"] =
        R"({"at":"2026-01-01T00:00:00Z","generation":3})";
    objects.lists[list][0]["metadata"]["generation"] = 5;
    EXPECT_THAT(RequestsOf(objects, "resume"), IsEmpty()) << list;
    const std::vector<kube::Request> marks = RequestsOf(objects, "take its mark off 1 jobs");
    ASSERT_EQ(marks.size(), 1u) << list;
    EXPECT_FALSE(json::parse(marks[0].body).contains("spec")) << list;
  }
}

TEST(UninstallPlan, WhatWasTakenFromKueueForAnotherFlavorIsGivenBack) {
  const auto expression = [](const char* key, const char* op, const json& values) {
    json one = {{"key", key}, {"operator", op}};
    if (!values.is_null()) one["values"] = values;
    return one;
  };
  const json users = expression("zone", "In", {"a"});
  const json term = {{"matchExpressions",
                      {users, expression("muster.dev/other-flavors", "DoesNotExist", nullptr),
                       expression("pool", "In", {"b"})}}};
  const json required = {{"nodeSelectorTerms", json::array({term})}};
  const json affinity = {
      {"nodeAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", required}}}};
  json workload = {
      {"metadata",
       {{"name", "w"},
        {"namespace", "team"},
        {"uid", "u"},
        {"resourceVersion", "1"},
        {"annotations", {{"muster.dev/restart", "{}"}}}}},
      {"spec",
       {{"active", false},
        {"podSets", json::array({{{"name", "main"},
                                  {"count", 1},
                                  {"template",
                                   {{"spec",
                                     {{"affinity", affinity},
                                      {"containers", json::array({{{"name", "c"}}})}}}}}}})}}}};
  ClusterObjects objects;
  objects.lists["workloads"] = {workload};
  objects.lists["kueue deployments"] = {{{"spec", {{"replicas", 1}}}}};
  std::vector<kube::Request> requests = RequestsOf(objects, "give 1 Workloads back");
  ASSERT_EQ(requests.size(), 1u);
  const json patched = workload.patch(json::parse(requests[0].body));
  EXPECT_THAT(patched["metadata"]["annotations"], IsEmpty());
  EXPECT_EQ(patched["spec"]["active"], true);
  const json terms = patched["spec"]["podSets"][0]["template"]["spec"]["affinity"]["nodeAffinity"]
                            ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  EXPECT_EQ(terms, json::array({{{"matchExpressions", json::array({users})}}}));
  objects.lists["workloads"] = {patched};
  EXPECT_THAT(RequestsOf(objects, "give"), IsEmpty());
}

}  // namespace
}  // namespace muster::extender
