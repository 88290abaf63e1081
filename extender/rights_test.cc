// What Muster asks the API server for is what its account may ask for, both ways: every request
// that it can make is granted by the manifests, and every verb that they grant is of such a
// request. Runs in the project's root.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coscheduling/actions.h"
#include "extender/access/front_proxy.h"
#include "extender/access/query_rights.h"
#include "extender/access/reviews.h"
#include "extender/admission/certificates.h"
#include "extender/admission/webhook_configuration.h"
#include "extender/admission/webhook_registration.h"
#include "extender/aggregated/api_service.h"
#include "extender/aggregated/front_proxy_source.h"
#include "extender/cluster_watch.h"
#include "extender/event_recorder.h"
#include "extender/leader_label.h"
#include "extender/lease_follower.h"
#include "extender/other_kueue.h"
#include "kube/client/fake_transport.h"
#include "kube/client/lease.h"
#include "kube/client/manual_timer.h"
#include "writes/action_requests.h"

namespace muster::extender {
namespace {

using coscheduling::Action;

// "patch pods/status", with the name of the one object that it is about where only that one may be
// meant: "get coordination.k8s.io/leases coscheduling".
using Rights = std::set<std::string>;

std::string Right(const std::string& verb, const std::string& group, const std::string& resource,
                  const std::string& name = "") {
  return absl::StrCat(verb, " ", group, group.empty() ? "" : "/", resource, name.empty() ? "" : " ",
                      name);
}

// The account's own, in the files of deploy/, with which of them are only of other programs:
// `state` is asked about by a policy.
Rights Granted() {
  Rights rights;
  for (const char* file :
       {"base/rbac-muster", "withdraw-nodes/rbac", "kueue-fallback/rbac", "standalone/rbac"}) {
    for (const YAML::Node& role : YAML::LoadAllFromFile(absl::StrCat("deploy/", file, ".yaml"))) {
      for (const YAML::Node& rule : role["rules"]) {
        std::vector<std::string> names = {""};
        if (rule["resourceNames"]) names = rule["resourceNames"].as<std::vector<std::string>>();
        for (const YAML::Node& group : rule["apiGroups"]) {
          for (const YAML::Node& resource : rule["resources"]) {
            for (const YAML::Node& verb : rule["verbs"]) {
              for (const std::string& name : names) {
                rights.insert(Right(verb.as<std::string>(), group.as<std::string>(),
                                    resource.as<std::string>(), name));
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(rights.erase("update muster.dev/state"), 1u);
  return rights;
}

// Objects of these are granted by their names alone.
bool IsNamed(const std::string& resource) {
  return resource == "leases" || resource == "apiservices" || resource == "configmaps" ||
         resource.ends_with("webhookconfigurations");
}

// What the API server takes a request for (k8s.io/apiserver pkg/endpoints/request/requestinfo.go).
std::string Needed(const kube::Request& request, bool watch = false) {
  std::vector<std::string> parts = absl::StrSplit(request.path, '/', absl::SkipEmpty());
  const bool core = parts.at(0) == "api";
  const std::string group = core ? "" : parts.at(1);
  parts.erase(parts.begin(), parts.begin() + (core ? 2 : 3));
  if (parts.size() > 2 && parts.at(0) == "namespaces")
    parts.erase(parts.begin(), parts.begin() + 2);
  std::string resource = parts.at(0);
  const std::string name = parts.size() > 1 && IsNamed(resource) ? parts.at(1) : "";
  if (parts.size() > 2) resource += "/" + parts.at(2);
  std::string verb;
  switch (request.method) {
    case kube::Method::kGet:
      verb = watch ? "watch" : parts.size() > 1 ? "get" : "list";
      break;
    case kube::Method::kPost:
      verb = "create";
      break;
    case kube::Method::kPut:
      verb = "update";
      break;
    case kube::Method::kPatch:
      verb = "patch";
      break;
    case kube::Method::kDelete:
      verb = "delete";
      break;
  }
  return Right(verb, group, resource, name);
}

// One of each kind of action, in the order of the variant.
template <size_t... Indices>
std::vector<Action> OneOfEach(std::index_sequence<Indices...>) {
  return {Action(std::in_place_index<Indices>)...};
}

const std::map<std::string, std::string>& JobKinds() {
  static const auto* kinds =
      new std::map<std::string, std::string>{{"Job", "batch/v1"},
                                             {"JobSet", "jobset.x-k8s.io/v1alpha2"},
                                             {"PyTorchJob", "kubeflow.org/v1"},
                                             {"TrainJob", "trainer.kubeflow.org/v1alpha1"},
                                             {"MPIJob", "kubeflow.org/v2beta1"},
                                             {"RayCluster", "ray.io/v1"},
                                             {"RayJob", "ray.io/v1"}};
  return *kinds;
}

const kube::ObjectRef kObject = {"team", "name", "uid", "1"};

// All forms of the actions: a variant that isn't filled in here fails by its path.
std::vector<Action> Actions() {
  std::vector<Action> actions;
  for (Action& one : OneOfEach(std::make_index_sequence<std::variant_size_v<Action>>())) {
    std::visit(
        [](auto& action) {
          if constexpr (requires { action.pod = kObject; }) action.pod = kObject;
          if constexpr (requires { action.group = kObject; }) action.group = kObject;
          if constexpr (requires { action.claim = kObject; }) action.claim = kObject;
          if constexpr (requires { action.job = kObject; }) action.job = kObject;
          if constexpr (requires { action.workload = kObject; }) action.workload = kObject;
          if constexpr (requires { action.object = kObject; }) action.object = kObject;
          if constexpr (requires { action.node = "node"; }) action.node = "node";
          if constexpr (requires { action.name = "name"; }) action.name = "name";
          if constexpr (requires { action.name_space = "team"; }) action.name_space = "team";
        },
        one);
    if (auto* suspend = std::get_if<coscheduling::SuspendJob>(&one)) {
      for (const auto& [kind, version] : JobKinds()) {
        suspend->kind = kind, suspend->api_version = version;
        actions.push_back(one);
      }
    } else if (auto* change = std::get_if<coscheduling::ChangeTemplates>(&one)) {
      for (const auto& [kind, version] : JobKinds()) {
        change->kind = kind, change->api_version = version;
        actions.push_back(one);
      }
    } else if (auto* update = std::get_if<coscheduling::UpdateQueueStatus>(&one)) {
      actions.push_back(one);
      update->name_space = "";
      actions.push_back(one);
      update->of_cohort = true;
      actions.push_back(one);
    } else if (auto* set = std::get_if<coscheduling::SetFinalizers>(&one)) {
      for (const char* plural : {"clusterqueues", "resourceflavors"}) {
        set->plural = plural;
        actions.push_back(one);
      }
    } else if (auto* select = std::get_if<coscheduling::SelectNode>(&one)) {
      actions.push_back(one);
      select->volume = kObject;
      actions.push_back(one);
    } else if (auto* write = std::get_if<coscheduling::WriteWorkload>(&one)) {
      actions.push_back(one);
      write->workload.uid = "";
      actions.push_back(one);
    } else {
      actions.push_back(one);
    }
  }
  return actions;
}

void AddWrites(Rights* needed) {
  for (const Action& action : Actions()) {
    const std::optional<writes::ActionRequest> made = writes::ToRequest(action, absl::UnixEpoch());
    if (!made) continue;
    needed->insert(Needed(made->request));
    needed->insert(Needed(made->read_back));
  }
}

// Each kind is listed, or watched from the beginning, and watched.
void AddWatches(Rights* needed) {
  kube::FakeTransport transport;
  kube::ManualTimer timer(absl::UnixEpoch());
  ClusterWatch watch(
      transport, timer,
      {.scheduler_name = "coscheduling", .workloads = ClusterWatchOptions::WorkloadUse::kQuota},
      {.post = [](EngineTask) {},
       .post_latest = [](std::string_view, EngineTask) {},
       .await_room = [] {}});
  watch.Start();
  std::vector<kube::Request> requests;
  for (const auto& one : transport.watches) requests.push_back(one->request);
  for (const auto& one : transport.sent) requests.push_back(one->request);
  EXPECT_GE(requests.size(), 25u);
  for (const kube::Request& request : requests) {
    needed->insert(Needed(request, /*watch=*/false));
    needed->insert(Needed(request, /*watch=*/true));
  }
}

// About whoever asks for gangs.
void AddReviews(Rights* needed) {
  needed->insert(Needed(TokenReviewOf("token", {"muster.dev"})));
  needed->insert(Needed(AccessReviewOf({.user = "anna"}, ToListGangs("team"))));
}

// Of the aggregated API. Who reads the one ConfigMap is a role's of every cluster.
void AddAggregated(Rights* needed) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  kube::FakeTransport transport;
  FrontProxy proxy;
  FrontProxySource source(transport, proxy);
  source.Tick(now);
  EXPECT_EQ(Needed(transport.sent.back()->request),
            "get configmaps extension-apiserver-authentication");
  transport.sent.clear();
  ApiService service(transport);
  service.SetCaBundle(IssueAuthority(absl::Hours(24), now).value().chain);
  service.Tick(now);
  transport.sent.back()->Answer(200, R"({"metadata":{"resourceVersion":"1"},"spec":{}})");
  service.Tick(now);
  for (const auto& one : transport.sent) needed->insert(Needed(one->request));
  ASSERT_EQ(transport.sent.size(), 2u);
}

TEST(Rights, TheAuthenticationsConfigMapMayBeRead) {
  size_t bindings = 0;
  for (const YAML::Node& object : YAML::LoadAllFromFile("deploy/base/rbac-muster.yaml")) {
    if (object["kind"].as<std::string>() != "RoleBinding" ||
        object["roleRef"]["name"].as<std::string>() !=
            "extension-apiserver-authentication-reader") {
      continue;
    }
    ++bindings;
    EXPECT_EQ(object["metadata"]["namespace"].as<std::string>(), "kube-system");
    EXPECT_EQ(object["subjects"][0]["name"].as<std::string>(), "muster");
  }
  EXPECT_EQ(bindings, 1u);
}

void AddOthers(Rights* needed) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  kube::FakeTransport transport;
  kube::ManualTimer timer(now);

  LeaderLabel label(transport, "muster-system", "muster-0", 1);
  label.Tick(now, true);
  OtherKueue kueue(transport, "kueue-system", "c1f6bfd2.kueue.x-k8s.io");
  kueue.Tick(now);
  LeaseFollower follower(
      {.name_space = "muster-system", .name = "coscheduling", .holder_prefix = "a_"});
  const std::optional<kube::Request> look = follower.Tick(now);
  ASSERT_TRUE(look.has_value());
  needed->insert(Needed(*look));

  // Standalone: read, made where it isn't there, renewed.
  kube::LeaderElection election(
      {.name_space = "muster-system", .name = "coscheduling", .identity = "a"});
  needed->insert(Needed(*election.Tick(now)));
  election.OnAnswer(now, kube::Response{.status = 404});
  kube::Request create = *election.Tick(now);
  needed->insert(Needed(create));
  create.body.replace(create.body.find("\"metadata\":{"), 12,
                      "\"metadata\":{\"resourceVersion\":\"1\",");
  election.OnAnswer(now, kube::Response{.status = 201, .body = create.body});
  needed->insert(Needed(*election.Tick(now + absl::Seconds(2))));

  std::vector<std::unique_ptr<WebhookRegistration>> registrations;
  for (const WebhookPurpose purpose : {WebhookPurpose::kGate, WebhookPurpose::kWarnings}) {
    WantedWebhook wanted;
    wanted.scheduler_name = "coscheduling";
    wanted.service = {"muster-system", "muster-webhook", 443};
    wanted.ca_bundle = IssueAuthority(absl::Hours(24), now).value().chain;
    wanted.purpose = purpose;
    registrations.push_back(std::make_unique<WebhookRegistration>(
        WebhookRegistrationOptions{.webhook = wanted}, transport, [] {}));
    registrations.back()->Tick(now);
    // As it is made: nobody's authority is there yet.
    wanted.ca_bundle = "";
    std::string object = NewWebhook(wanted);
    object.replace(object.find("\"metadata\":{"), 12, "\"metadata\":{\"resourceVersion\":\"1\",");
    transport.sent.back()->Answer(200, object);
    registrations.back()->Tick(now);
  }

  EventRecorder recorder(transport, timer, {});
  coscheduling::EmitEvent event;
  event.kind = "Pod";
  event.name_space = "team";
  event.name = "pod";
  event.reason = "GangBound";
  recorder.Record(event);
  timer.Advance(absl::Seconds(1));
  for (size_t i = 0; i < transport.sent.size(); ++i) {
    if (transport.sent[i]->done && transport.sent[i]->request.path.ends_with("/events")) {
      transport.sent[i]->Answer(201, "{}");
    }
  }
  recorder.Record(event);  // the same once more
  timer.Advance(absl::Minutes(10));
  for (const auto& one : transport.sent) needed->insert(Needed(one->request));
}

Rights Without(const Rights& some, const Rights& others) {
  Rights left;
  for (const std::string& one : some) {
    if (!others.contains(one)) left.insert(one);
  }
  return left;
}

TEST(Rights, AreThoseThatAreUsed) {
  Rights needed;
  AddWrites(&needed);
  AddWatches(&needed);
  AddOthers(&needed);
  AddReviews(&needed);
  AddAggregated(&needed);
  const Rights granted = Granted();
  EXPECT_EQ(Without(needed, granted), Rights{}) << "asked for, and not granted";
  EXPECT_EQ(Without(granted, needed), Rights{}) << "granted, and never asked for";
  EXPECT_GE(needed.size(), 90u);
}

}  // namespace
}  // namespace muster::extender
