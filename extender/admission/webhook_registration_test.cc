#include "extender/admission/webhook_registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/strings/escaping.h"
#include "extender/admission/ca_bundle.h"
#include "extender/admission/certificates.h"
#include "kube/client/fake_transport.h"

namespace muster::extender {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using kube::Method;

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);
constexpr const char* kUrl = "https://127.0.0.1:9443/mutate-pods";
constexpr const char* kObject =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster-admission";

std::string NewAuthority() { return IssueAuthority(absl::Hours(24 * 365), kStart).value().chain; }

// One object in a scripted API server, and a registration in virtual time.
class RegistrationTest : public ::testing::Test {
 protected:
  void Start(bool service = false, bool leading = true) {
    options_.webhook.scheduler_name = "coscheduling";
    if (service) {
      options_.webhook.service = WebhookService{"muster-system", "muster-webhook", 443};
    } else {
      options_.webhook.url = kUrl;
    }
    options_.webhook.ca_bundle = own_;
    options_.leading = leading;
    options_.seed = 1;
    registration_ =
        std::make_unique<WebhookRegistration>(options_, transport_, [this] { ++wakes_; });
    registration_->Tick(now_);
  }

  // What `options_` asks for, as the API server returns it.
  Json Wanted() {
    Json object = Json::parse(NewWebhook(options_.webhook));
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    object["metadata"]["labels"]["kept"] = "yes";
    object["webhooks"][0]["namespaceSelector"] = Json::object();
    object["webhooks"][0]["objectSelector"] = Json::object();
    return object;
  }

  kube::Request Asked() const { return transport_.sent.back()->request; }
  size_t Requests() const { return transport_.sent.size(); }
  void Answer(int status, const Json& body = Json::object()) {
    transport_.sent.back()->Answer(status, body.dump());
    registration_->Tick(now_);
  }
  void Refuse(int status, const std::string& message) {
    Answer(status, {{"kind", "Status"}, {"message", message}, {"reason", "Scripted"}});
  }

  // Answers as a server that holds object_ would (nullopt: none), until nothing is asked.
  void Serve() {
    while (transport_.sent.back()->done) {
      const kube::Request request = Asked();
      if (request.method == Method::kPost) {
        object_ = Json::parse(request.body);
        object_["metadata"]["resourceVersion"] = std::to_string(++version_);
        ++writes_;
        Answer(201, object_);
      } else if (object_.is_null()) {
        Refuse(404, "not found");
      } else if (request.method == Method::kGet) {
        Answer(200, object_);
      } else {
        const Json patch = Json::parse(request.body);
        if (patch["metadata"]["resourceVersion"] != object_["metadata"]["resourceVersion"]) {
          Refuse(409, "the object has been modified");
          continue;
        }
        object_.merge_patch(patch);
        object_["metadata"]["resourceVersion"] = std::to_string(++version_);
        ++writes_;
        Answer(200, object_);
      }
    }
  }

  // Goes on in virtual time, serving what is asked.
  void Run(absl::Duration time) {
    const absl::Time until = now_ + time;
    Serve();
    for (absl::Time next; (next = registration_->NextTick()) <= until; Serve()) {
      now_ = std::max(next, now_ + absl::Milliseconds(1));
      registration_->Tick(now_);
    }
    now_ = until;
  }

  void Change() {
    object_["metadata"]["resourceVersion"] = std::to_string(++version_);
    registration_->OnChanged();
    registration_->Tick(now_);
  }

  std::string Bundle() {
    std::string bundle;
    absl::Base64Unescape(object_["webhooks"][0]["clientConfig"]["caBundle"].get<std::string>(),
                         &bundle);
    return bundle;
  }
  std::string WhyNot() const { return std::string(registration_->InPlace().message()); }
  bool InPlace() const { return registration_->InPlace().ok(); }

  const std::string own_ = NewAuthority();
  WebhookRegistrationOptions options_;
  kube::FakeTransport transport_;
  std::unique_ptr<WebhookRegistration> registration_;
  absl::Time now_ = kStart;
  Json object_;
  int version_ = 100;
  int writes_ = 0;
  std::atomic<int> wakes_ = 0;
};

TEST_F(RegistrationTest, AbsentIsCreatedWhole) {
  Start();
  EXPECT_THAT(WhyNot(), HasSubstr("has not been looked at yet"));
  EXPECT_EQ(Asked().method, Method::kGet);
  EXPECT_EQ(Asked().path, kObject);
  Refuse(404, "not found");
  EXPECT_EQ(WhyNot(), "the webhook is not registered");
  EXPECT_EQ(Asked().method, Method::kPost);
  const Json created = Json::parse(Asked().body);
  EXPECT_EQ(created, Json::parse(R"json({
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "muster-admission", "labels": {"app.kubernetes.io/part-of": "muster"}},
    "webhooks": [{
      "name": "admission.muster.dev",
      "clientConfig": {"url": "https://127.0.0.1:9443/mutate-pods", "caBundle": ")json" +
                                 absl::Base64Escape(own_) + R"json("},
      "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                 "resources": ["pods"], "scope": "Namespaced"}],
      "matchConditions": [{"name": "concerns-muster",
                           "expression": "object.spec.schedulerName == \"coscheduling\""}],
      "failurePolicy": "Fail", "matchPolicy": "Equivalent", "sideEffects": "None",
      "timeoutSeconds": 10, "reinvocationPolicy": "IfNeeded",
      "admissionReviewVersions": ["v1"]}]})json"));
  Answer(201, Wanted());
  EXPECT_FALSE(InPlace()) << "the API server needs a moment";
  EXPECT_EQ(registration_->NextTick(), now_ + absl::Seconds(1));
  now_ += absl::Seconds(1);
  registration_->Tick(now_);
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(registration_->registered_bundle(), own_);
}

TEST_F(RegistrationTest, EqualIsLeftAloneAndLookedAtEveryTenSeconds) {
  Start();
  object_ = Wanted();
  Serve();
  EXPECT_TRUE(InPlace()) << WhyNot();
  Run(absl::Minutes(10));
  EXPECT_TRUE(InPlace());
  EXPECT_EQ(writes_, 0);
  EXPECT_GE(Requests(), 55u);
  EXPECT_LE(Requests(), 68u);
}

struct ForeignChange {
  const char* name;
  std::function<void(Json&)> change;  // of the object
  const char* why;
};

class ForeignChanges : public RegistrationTest,
                       public ::testing::WithParamInterface<ForeignChange> {};

TEST_P(ForeignChanges, IsSeenSaidAndPutRight) {
  Start();
  object_ = Wanted();
  const Json wanted = object_;
  Serve();
  GetParam().change(object_);
  object_["metadata"]["resourceVersion"] = std::to_string(++version_);
  registration_->OnChanged();
  EXPECT_GE(wakes_, 2);
  registration_->Tick(now_);
  Answer(200, object_);
  EXPECT_THAT(WhyNot(), HasSubstr(GetParam().why));
  Serve();
  Run(2 * absl::Seconds(1));
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(writes_, 1);
  Json stripped = wanted;
  stripped["metadata"]["resourceVersion"] = object_["metadata"]["resourceVersion"];
  stripped["webhooks"][0].erase("namespaceSelector");
  stripped["webhooks"][0].erase("objectSelector");
  EXPECT_EQ(object_, stripped) << "labels of others stay";
}

INSTANTIATE_TEST_SUITE_P(
    Registration, ForeignChanges,
    ::testing::Values(
        ForeignChange{"FailurePolicy",
                      [](Json& o) { o["webhooks"][0]["failurePolicy"] = "Ignore"; },
                      "webhooks[0].failurePolicy is \"Ignore\", want \"Fail\""},
        ForeignChange{"Url",
                      [](Json& o) {
                        o["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:1/mutate-pods";
                      },
                      "webhooks[0].clientConfig.url is \"https://127.0.0.1:1/mutate-pods\""},
        ForeignChange{"Rules",
                      [](Json& o) { o["webhooks"][0]["rules"][0]["resources"] = {"services"}; },
                      "webhooks[0].rules is "},
        ForeignChange{"NoMatchConditions",
                      [](Json& o) { o["webhooks"][0].erase("matchConditions"); },
                      "webhooks[0].matchConditions is absent, want"},
        ForeignChange{
            "OtherSchedulerName",
            [](Json& o) { o["webhooks"][0]["matchConditions"][0]["expression"] = "false"; },
            "webhooks[0].matchConditions is "},
        ForeignChange{"NamespacesLeftOut",
                      [](Json& o) {
                        o["webhooks"][0]["namespaceSelector"]["matchLabels"] = {{"gated", "yes"}};
                      },
                      "webhooks[0].namespaceSelector is "},
        ForeignChange{"Timeout", [](Json& o) { o["webhooks"][0]["timeoutSeconds"] = 1; },
                      "webhooks[0].timeoutSeconds is 1, want 10"},
        ForeignChange{"SecondWebhook", [](Json& o) { o["webhooks"].push_back(o["webhooks"][0]); },
                      "webhooks has 2 entries, want 1"},
        ForeignChange{"NoWebhooks", [](Json& o) { o.erase("webhooks"); },
                      "webhooks has 0 entries, want 1"},
        ForeignChange{"WrongCaBundle",
                      [](Json& o) {
                        o["webhooks"][0]["clientConfig"]["caBundle"] =
                            absl::Base64Escape(NewAuthority());
                      },
                      "caBundle lacks the authority of this process"},
        ForeignChange{"CaBundleThatIsNoCertificate",
                      [](Json& o) { o["webhooks"][0]["clientConfig"]["caBundle"] = "!"; },
                      "caBundle lacks the authority of this process"},
        ForeignChange{"OneAuthorityTooMany",
                      [](Json& o) {
                        std::string bundle;
                        Json& text = o["webhooks"][0]["clientConfig"]["caBundle"];
                        absl::Base64Unescape(text.get<std::string>(), &bundle);
                        text = absl::Base64Escape(bundle + NewAuthority());
                      },
                      "caBundle has an authority that is not of this process"}),
    [](const auto& info) { return info.param.name; });

TEST_F(RegistrationTest, ARestartedProcessReplacesTheAuthorityOfTheOneBefore) {
  Start();
  object_ = Wanted();
  object_["webhooks"][0]["clientConfig"]["caBundle"] = absl::Base64Escape(NewAuthority());
  Run(2 * absl::Seconds(1));
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(Bundle(), own_);
}

TEST_F(RegistrationTest, DeletedWhileRunningIsCreatedAgain) {
  Start();
  object_ = Wanted();
  Serve();
  object_ = nullptr;
  Run(absl::Seconds(13));  // nobody told: the next look finds it
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(writes_, 1);
  object_ = nullptr;
  registration_->OnChanged();
  registration_->Tick(now_);
  Answer(404);
  EXPECT_EQ(WhyNot(), "the webhook is not registered");
  Run(2 * absl::Seconds(1));
  EXPECT_TRUE(InPlace()) << WhyNot();
}

TEST_F(RegistrationTest, ConflictIsDecidedAnewOnWhatIsThere) {
  Start();
  Json stale = Wanted();
  stale["webhooks"][0]["failurePolicy"] = "Ignore";
  Answer(200, stale);
  EXPECT_EQ(Asked().method, Method::kPatch);
  EXPECT_EQ(Json::parse(Asked().body)["metadata"]["resourceVersion"],
            stale["metadata"]["resourceVersion"]);
  object_ = Wanted();  // somebody else has put it right meanwhile
  Refuse(409, "the object has been modified");
  EXPECT_EQ(Asked().method, Method::kGet) << "at once";
  Serve();
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(writes_, 0);
}

TEST_F(RegistrationTest, CreatedBySomebodyFasterIsLookedAt) {
  Start();
  Refuse(404, "not found");
  object_ = Wanted();
  Answer(409, {{"reason", "AlreadyExists"}, {"message", "already exists"}});
  EXPECT_EQ(Asked().method, Method::kGet);
  Serve();
  EXPECT_TRUE(InPlace()) << WhyNot();
}

TEST_F(RegistrationTest, EndlessConflictsAreNoBusyLoop) {
  Start();
  Json stale = Wanted();
  stale["webhooks"][0]["failurePolicy"] = "Ignore";
  for (int i = 0; now_ < kStart + absl::Minutes(10); ++i) {
    // A pause of 2.5 s at least for each round of a look and a write.
    ASSERT_LT(i, 3 * 240);
    if (!transport_.sent.back()->done) {
      now_ = registration_->NextTick();
      registration_->Tick(now_);
    } else if (Asked().method == Method::kGet) {
      Answer(200, stale);
    } else {
      Refuse(409, "the object has been modified");
    }
  }
  EXPECT_THAT(WhyNot(), AllOf(HasSubstr("failurePolicy is \"Ignore\""),
                              HasSubstr("patch mutatingwebhookconfigurations/muster-admission: "
                                        "HTTP 409: the object has been modified")));
}

TEST_F(RegistrationTest, ForbiddenSaysWhatIsForbidden) {
  Start();
  Refuse(403, "User \"x\" cannot get resource");
  EXPECT_THAT(WhyNot(), HasSubstr("get mutatingwebhookconfigurations/muster-admission: HTTP 403: "
                                  "User \"x\" cannot get resource"));
  const absl::Time next = registration_->NextTick();
  EXPECT_GT(next, now_);
  EXPECT_LE(next, now_ + absl::Seconds(1));
  registration_->OnChanged();
  registration_->Tick(now_);
  EXPECT_EQ(Requests(), 1u) << "being told of a change doesn't end the pause";
}

TEST_F(RegistrationTest, MayReadButNotWrite) {
  Start();
  Answer(404);
  Refuse(403, "cannot create");
  EXPECT_THAT(WhyNot(), AllOf(HasSubstr("the webhook is not registered; "),
                              HasSubstr("create mutatingwebhookconfigurations/muster-admission: "
                                        "HTTP 403: cannot create")));
}

TEST_F(RegistrationTest, WritesThatKeepFailingAreTriedEverMoreSlowly) {
  Start();
  for (int i = 0; now_ < kStart + absl::Minutes(10); ++i) {
    // A pause of 2.5 s at least for each round of a look and a write.
    ASSERT_LT(i, 3 * 240);
    if (!transport_.sent.back()->done) {
      now_ = registration_->NextTick();
      registration_->Tick(now_);
    } else if (Asked().method == Method::kGet) {
      Answer(404);
    } else {
      Refuse(403, "cannot create");
    }
  }
  object_ = Wanted();
  Run(absl::Seconds(31));
  EXPECT_TRUE(InPlace()) << WhyNot();
}

TEST_F(RegistrationTest, PausesGrowWhileTheServerFailsAndEndWithIt) {
  Start();
  absl::Duration last = absl::ZeroDuration();
  for (int i = 0; i < 20; ++i) {
    if (i % 2 == 0) {
      Refuse(500, "etcd is away");
    } else {
      transport_.sent.back()->Answer(absl::UnavailableError("connection refused"));
      registration_->Tick(now_);
    }
    last = registration_->NextTick() - now_;
    // So that a server that is back is asked within 15 s.
    ASSERT_LE(last, absl::Seconds(5));
    now_ = registration_->NextTick();
    registration_->Tick(now_);
  }
  EXPECT_GE(last, absl::Seconds(2));
  object_ = Wanted();
  Serve();
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_GE(registration_->NextTick(), now_ + absl::Seconds(9));
}

TEST_F(RegistrationTest, RetryAfterIsKept) {
  Start();
  transport_.sent.back()->Answer(kube::Response{429, "", absl::Seconds(17)});
  registration_->Tick(now_);
  EXPECT_EQ(registration_->NextTick(), now_ + absl::Seconds(17));
}

TEST_F(RegistrationTest, AnAbsentApiServerIsForgivenForAMinute) {
  Start();
  object_ = Wanted();
  Serve();
  const absl::Time seen = now_;
  while (now_ < seen + absl::Minutes(1)) {
    EXPECT_TRUE(InPlace()) << now_ - seen;
    if (transport_.sent.back()->done) {
      transport_.sent.back()->Answer(absl::UnavailableError("connection refused"));
    } else {
      now_ = registration_->NextTick();
    }
    registration_->Tick(now_);
  }
  EXPECT_THAT(WhyNot(),
              AllOf(HasSubstr("could not be checked for 1m"), HasSubstr("connection refused")));
  Run(absl::Seconds(31));
  EXPECT_TRUE(InPlace()) << WhyNot();
}

TEST_F(RegistrationTest, AnAnswerThatIsNoObjectIsAFailure) {
  Start();
  transport_.sent.back()->Answer(200, "<html>proxy</html>");
  registration_->Tick(now_);
  EXPECT_THAT(WhyNot(), HasSubstr("has no metadata.resourceVersion"));
  EXPECT_GT(registration_->NextTick(), now_);
}

TEST_F(RegistrationTest, AServerThatDropsFieldsIsNotWrittenToForEver) {
  Start();
  object_ = Wanted();
  // matchConditions came with Kubernetes 1.30.
  for (int i = 0; now_ < kStart + absl::Minutes(10); ++i) {
    ASSERT_LT(i, 200);
    object_["webhooks"][0].erase("matchConditions");
    if (transport_.sent.back()->done) {
      Answer(200, object_);
    } else {
      now_ = registration_->NextTick();
      registration_->Tick(now_);
    }
  }
  EXPECT_THAT(WhyNot(), HasSubstr("matchConditions is absent"));
}

TEST_F(RegistrationTest, SomebodyWhoKeepsUndoingItIsAnsweredEverMoreSlowly) {
  Start();
  object_ = Wanted();
  Serve();
  for (int i = 0; i < 600; ++i) {
    object_["webhooks"][0]["failurePolicy"] = "Ignore";
    Change();
    Run(absl::Seconds(1));
  }
  EXPECT_GE(writes_, 20);
  EXPECT_LE(writes_, 50);
  Run(absl::Minutes(2));
  EXPECT_TRUE(InPlace()) << WhyNot();
  const int before = writes_;
  object_["webhooks"][0]["failurePolicy"] = "Ignore";
  Change();
  Serve();
  EXPECT_EQ(writes_, before + 1) << "at once again after a quiet minute";
}

TEST_F(RegistrationTest, ANewAuthorityIsWrittenAtOnce) {
  Start();
  object_ = Wanted();
  Serve();
  const std::string next = NewAuthority();
  registration_->SetCaBundle(own_ + next);
  registration_->Tick(now_);
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(registration_->registered_bundle(), own_ + next);
  registration_->SetCaBundle(next);
  registration_->Tick(now_);
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(Bundle(), next);
  EXPECT_TRUE(InPlace()) << WhyNot();
}

TEST_F(RegistrationTest, ServiceIsNamedWithPortAndPath) {
  Start(/*service=*/true);
  object_ = Wanted();
  EXPECT_EQ(object_["webhooks"][0]["clientConfig"]["service"],
            Json::parse(R"({"namespace": "muster-system", "name": "muster-webhook", "port": 443,
                            "path": "/mutate-pods"})"));
  EXPECT_FALSE(object_["webhooks"][0]["clientConfig"].contains("url"));
}

TEST_F(RegistrationTest, ReplicasOfAServiceKeepEachOthersAuthorities) {
  Start(/*service=*/true);
  const std::string other = NewAuthority();
  object_ = Wanted();
  object_["webhooks"][0]["clientConfig"]["caBundle"] = absl::Base64Escape(other);
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(Bundle(), other + own_);
  EXPECT_TRUE(InPlace()) << WhyNot();
  // The other one finds its own there and has nothing to do; nor have we when it adds a third.
  object_["webhooks"][0]["clientConfig"]["caBundle"] =
      absl::Base64Escape(other + own_ + NewAuthority());
  Change();
  Serve();
  EXPECT_EQ(writes_, 1);
}

TEST_F(RegistrationTest, AReplicaOfAServiceAddsItsAuthorityAndNothingElse) {
  Start(/*service=*/true, /*leading=*/false);
  const std::string other = NewAuthority();
  object_ = Wanted();
  object_["webhooks"][0]["clientConfig"]["caBundle"] = absl::Base64Escape(other);
  object_["webhooks"][0]["timeoutSeconds"] = 7;  // of another version, say
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(Bundle(), other + own_);
  EXPECT_EQ(object_["webhooks"][0]["timeoutSeconds"], 7);
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(writes_, 1);
  registration_->SetLeading(true);
  registration_->Tick(now_);
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(WhyNot(),
            "webhooks[0].timeoutSeconds is 7, want 10; apply Muster's chart or manifests");
  EXPECT_EQ(writes_, 1) << "the leader says so, and leaves it";
  object_["webhooks"][0]["timeoutSeconds"] = 10;
  object_["webhooks"][0]["clientConfig"].erase("caBundle");
  Change();
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(Bundle(), own_);
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(writes_, 2);
}

// Version 0.1 registered itself and undid what others wrote. The chart's manifests, applied while
// it leads, are merged with that by names.
TEST_F(RegistrationTest, WhatVersion01LeftBehindIsReplacedByTheLeader) {
  const Json before = {{{"name", "scheduler-name"},
                        {"expression", "object.spec.schedulerName == \"coscheduling\""}}};
  for (const bool merged : {false, true}) {
    Start(/*service=*/true, /*leading=*/false);
    object_ = Wanted();
    const Json wanted = object_["webhooks"][0]["matchConditions"];
    object_["webhooks"][0]["matchConditions"] = before;
    if (merged) object_["webhooks"][0]["matchConditions"].push_back(wanted[0]);
    const std::string other = NewAuthority();
    object_["webhooks"][0]["clientConfig"]["caBundle"] = absl::Base64Escape(other);
    writes_ = 0;
    Run(absl::Seconds(12));
    EXPECT_EQ(object_["webhooks"][0]["matchConditions"][0], before[0]) << "0.1 may lead";
    EXPECT_EQ(writes_, 1);
    registration_->SetLeading(true);
    registration_->Tick(now_);
    Run(absl::Seconds(12));
    EXPECT_EQ(object_["webhooks"][0]["matchConditions"], wanted);
    EXPECT_EQ(Bundle(), other + own_);
    EXPECT_TRUE(InPlace()) << WhyNot();
    EXPECT_EQ(writes_, 2);
  }
}

TEST_F(RegistrationTest, OfAServiceNobodyCreatesWhatIsAbsent) {
  for (const bool leading : {true, false}) {
    Start(/*service=*/true, leading);
    object_ = nullptr;
    Run(absl::Minutes(1));
    EXPECT_EQ(WhyNot(), "the webhook is not registered; apply Muster's chart or manifests");
    EXPECT_EQ(writes_, 0);
    object_ = Wanted();
    object_["webhooks"] = Json::array();
    Run(absl::Seconds(12));
    EXPECT_EQ(WhyNot(), "webhooks has 0 entries, want 1; apply Muster's chart or manifests");
    EXPECT_EQ(writes_, 0);
    object_ = Wanted();
    object_["webhooks"][0]["clientConfig"].erase("caBundle");
    Run(absl::Seconds(13));
    EXPECT_EQ(Bundle(), own_);
    EXPECT_TRUE(InPlace()) << WhyNot();
    EXPECT_EQ(writes_, 1);
    writes_ = 0;
  }
}

TEST_F(RegistrationTest, AFollowerWithAUrlLeavesItToTheLeader) {
  Start(/*service=*/false, /*leading=*/false);
  Run(absl::Minutes(1));
  EXPECT_EQ(WhyNot(), "the webhook is not registered; the leader puts it right");
  object_ = Wanted();
  object_["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:1/mutate-pods";
  Run(absl::Seconds(12));
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(writes_, 0);
  registration_->SetLeading(true);
  registration_->Tick(now_);
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(object_["webhooks"][0]["clientConfig"]["url"], kUrl);
  EXPECT_TRUE(InPlace()) << WhyNot();
}

TEST_F(RegistrationTest, ExpiredAuthoritiesGoWithTheNextWrite) {
  Start(/*service=*/true);
  const std::string old = IssueAuthority(absl::Hours(1), kStart - absl::Hours(2)).value().chain;
  object_ = Wanted();
  object_["webhooks"][0]["clientConfig"]["caBundle"] = absl::Base64Escape(old);
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(Bundle(), own_);
}

TEST_F(RegistrationTest, LateAnswersGoNowhere) {
  Start();
  registration_.reset();
  const int wakes = wakes_;
  transport_.sent.back()->Answer(200, "{}");
  EXPECT_EQ(wakes_, wakes);
}

TEST_F(RegistrationTest, AnswersAndChangesComeFromOtherThreads) {
  Start();
  object_ = Wanted();
  std::thread answer([&] { transport_.sent.back()->Answer(200, object_.dump()); });
  std::thread change([&] {
    registration_->OnChanged();
    registration_->InPlace().IgnoreError();
  });
  for (int i = 0; i < 1000; ++i) registration_->NextTick();
  answer.join();
  change.join();
  registration_->Tick(now_);
  Serve();
  EXPECT_TRUE(InPlace()) << WhyNot();
}

// The second registration: the same state machine, another object.
class WarningsRegistration : public RegistrationTest {
 protected:
  WarningsRegistration() { options_.webhook.purpose = WebhookPurpose::kWarnings; }
};

TEST_F(WarningsRegistration, EndangersNothing) {
  Start(/*service=*/true);
  EXPECT_EQ(Asked().path,
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"
            "muster-warnings");
  object_ = Wanted();
  EXPECT_EQ(object_["kind"], "ValidatingWebhookConfiguration");
  ASSERT_EQ(object_["webhooks"].size(), 1u);
  const Json webhook = object_["webhooks"][0];
  EXPECT_EQ(webhook["failurePolicy"], "Ignore");
  EXPECT_EQ(webhook["timeoutSeconds"], 2);
  EXPECT_EQ(webhook["sideEffects"], "None");
  EXPECT_EQ(webhook["matchPolicy"], "Exact") << "nobody's conversion webhook is needed";
  EXPECT_FALSE(webhook.contains("reinvocationPolicy")) << "a field of mutating ones";
  EXPECT_EQ(webhook["clientConfig"]["service"]["path"], "/warnings");
  ASSERT_EQ(webhook["matchConditions"].size(), 1u);
  EXPECT_THAT(webhook["matchConditions"][0]["expression"].get<std::string>(),
              AllOf(HasSubstr("(request.operation == \"CREATE\" || "),
                    HasSubstr(" && !has(object.metadata.ownerReferences) && ("),
                    HasSubstr("!(has(request.userInfo.groups) && "
                              "\"system:serviceaccounts:muster-system\" in")));
}

TEST_F(WarningsRegistration, WhatVersion01LeftBehindIsReplacedByTheLeader) {
  Start(/*service=*/true);
  object_ = Wanted();
  const Json wanted = object_["webhooks"];
  Json& condition = object_["webhooks"][0]["matchConditions"][0];
  std::string expression = condition["expression"];
  condition["expression"] = expression.substr(0, expression.find(" && !(has(request.userInfo"));
  object_["webhooks"][0]["rules"].erase(1);
  Run(absl::Seconds(12));
  EXPECT_EQ(object_["webhooks"][0]["rules"], wanted[0]["rules"]);
  EXPECT_EQ(object_["webhooks"][0]["matchConditions"], wanted[0]["matchConditions"]);
  EXPECT_TRUE(InPlace()) << WhyNot();
  object_["webhooks"][0]["matchConditions"][0]["expression"] = "true";
  Change();
  Run(absl::Seconds(12));
  EXPECT_EQ(object_["webhooks"][0]["matchConditions"][0]["expression"], "true") << "somebody's own";
  EXPECT_FALSE(InPlace());
}

TEST_F(WarningsRegistration, AsksAboutWhatPeopleApplyButForPodsAndAboutNoSubresource) {
  Start();
  Serve();
  std::set<std::string> asked;
  for (const Json& rule : object_["webhooks"][0]["rules"]) {
    for (const Json& resource : rule["resources"]) {
      asked.insert(rule["apiGroups"][0].get<std::string>() + "/" + resource.get<std::string>());
    }
    EXPECT_EQ(rule["operations"], Json({"CREATE", "UPDATE"}));
  }
  EXPECT_EQ(asked, (std::set<std::string>{
                       "apps/statefulsets", "batch/jobs", "jobset.x-k8s.io/jobsets",
                       "kubeflow.org/mpijobs", "kubeflow.org/pytorchjobs",
                       "kueue.x-k8s.io/clusterqueues", "kueue.x-k8s.io/localqueues",
                       "kueue.x-k8s.io/resourceflavors", "ray.io/rayclusters", "ray.io/rayjobs",
                       "scheduling.x-k8s.io/podgroups", "trainer.kubeflow.org/trainjobs"}));
}

TEST_F(WarningsRegistration, TurnedOffIsEmptiedAndNeverMade) {
  options_.webhook.enabled = false;
  Start();
  Run(absl::Minutes(1));
  EXPECT_EQ(writes_, 0);
  EXPECT_TRUE(InPlace()) << WhyNot();
  object_ = Wanted();  // of a process before, where it was on
  Run(absl::Seconds(13));
  EXPECT_EQ(object_["webhooks"], Json::array());
  EXPECT_EQ(writes_, 1);
  EXPECT_TRUE(InPlace()) << WhyNot();
  Run(absl::Minutes(1));
  EXPECT_EQ(writes_, 1);
}

TEST_F(WarningsRegistration, TurnedOnAgainIsFilled) {
  Start();
  object_ = Wanted();
  object_["webhooks"] = Json::array();
  Run(2 * absl::Seconds(1));
  EXPECT_EQ(object_["webhooks"].size(), 1u);
  EXPECT_TRUE(InPlace()) << WhyNot();
}

TEST(WebhookConfiguration, SchedulerNameIsQuotedForCel) {
  const WantedWebhook wanted{"a\"b\\c", std::nullopt, kUrl, ""};
  EXPECT_EQ(Json::parse(NewWebhook(wanted))["webhooks"][0]["matchConditions"][0]["expression"],
            R"(object.spec.schedulerName == "a\"b\\c")");
}

TEST(WebhookConfiguration, GuardsQueuesWhereQuotaIsOurs) {
  WantedWebhook wanted{"coscheduling", std::nullopt, kUrl, ""};
  wanted.guards_queues = true;
  EXPECT_EQ(Json::parse(NewWebhook(wanted))["webhooks"][0]["matchConditions"][0]["expression"],
            R"(object.spec.schedulerName == "coscheduling" || )"
            R"((!has(object.metadata.ownerReferences) && has(object.metadata.labels) && )"
            R"("kueue.x-k8s.io/queue-name" in object.metadata.labels))");
}

TEST(WebhookConfiguration, AsksOnlyAboutUnusualPodsWhereNoneIsGated) {
  WantedWebhook wanted{"coscheduling", std::nullopt, kUrl, ""};
  wanted.gates = false;
  EXPECT_EQ(Json::parse(NewWebhook(wanted))["webhooks"][0]["matchConditions"][0]["expression"],
            R"((object.spec.schedulerName == "coscheduling" && (has(object.spec.nodeName) || )"
            R"(!has(object.metadata.ownerReferences) || (has(object.metadata.annotations) && )"
            R"(object.metadata.annotations.exists(a, a.startsWith("muster.dev/"))))))");
}

TEST(WebhookConfiguration, SurvivesWhateverStandsInTheObject) {
  const WantedWebhook wanted{"coscheduling", std::nullopt, kUrl, NewAuthority()};
  Json whole = Json::parse(NewWebhook(wanted));
  whole["metadata"]["resourceVersion"] = "1";
  const Json flat = whole.flatten();
  for (const auto& [path, value] : flat.items()) {
    for (const Json& odd : {Json(), Json(7), Json("x"), Json::array(), Json::object(),
                            Json::array({1, "x", Json()})}) {
      Json object = whole;
      object[Json::json_pointer(path)] = odd;
      const absl::StatusOr<FoundWebhook> found = InspectWebhook(object.dump(), wanted);
      if (!found.ok() || found->difference.empty()) continue;
      EXPECT_TRUE(Json::accept(RepairPatch(*found, wanted, kStart)));
      if (found->webhooks.empty()) continue;
      EXPECT_TRUE(Json::accept(BundlePatch(*found, wanted, kStart)));
    }
  }
}

class InstallTest : public RegistrationTest {
 protected:
  InstallTest() { options_.webhook.install = "muster-system/coscheduling"; }
  std::string Other() const { return registration_->OtherInstall().value_or("not looked at yet"); }
};

TEST_F(InstallTest, WhoMakesTheObjectSaysWhoseItIs) {
  Start();
  EXPECT_EQ(Other(), "not looked at yet");
  Run(absl::Seconds(5));
  EXPECT_TRUE(InPlace()) << WhyNot();
  EXPECT_EQ(Other(), "");
  EXPECT_EQ(object_["metadata"]["annotations"]["muster.dev/install"], options_.webhook.install);
  // One that was made before there were installs.
  object_["metadata"].erase("annotations");
  Change();
  Run(absl::Seconds(5));
  EXPECT_EQ(object_["metadata"]["annotations"]["muster.dev/install"], options_.webhook.install);
}

TEST_F(InstallTest, WhatIsOfAnotherInstallIsLeftToItAndGoneOnWithOnceItIsOurs) {
  for (const bool service : {false, true}) {
    writes_ = 0;
    Start(service);
    object_ = Wanted();
    object_["metadata"]["annotations"]["muster.dev/install"] = "other/coscheduling";
    object_["webhooks"][0]["clientConfig"]["caBundle"] = "";
    Run(absl::Minutes(1));
    EXPECT_EQ(writes_, 0);
    EXPECT_EQ(Other(),
              "MutatingWebhookConfiguration muster-admission is of install other/coscheduling, and "
              "this is muster-system/coscheduling: one alone may serve schedulerName coscheduling; "
              "take one of them out (muster uninstall), or apply the manifests of the one that is "
              "to stay");
    EXPECT_EQ(WhyNot(), Other());
    const Json kept = object_;
    object_ = nullptr;
    if (service) Run(absl::Minutes(1));
    EXPECT_THAT(Other(), HasSubstr("other/coscheduling")) << "it may be alive while it goes";
    object_ = kept;
    object_["metadata"]["annotations"]["muster.dev/install"] = "muster-system/coscheduling";
    Run(absl::Seconds(30));
    EXPECT_EQ(Other(), "");
    EXPECT_TRUE(InPlace()) << WhyNot();
    EXPECT_EQ(writes_, 1);
  }
}

TEST_F(InstallTest, ManifestsThatDontSayAreThoseOfTheServiceThatIsCalled) {
  Start(/*service=*/true);
  object_ = Wanted();
  object_["metadata"].erase("annotations");
  Run(absl::Seconds(5));
  EXPECT_EQ(Other(), "");
  EXPECT_TRUE(InPlace()) << WhyNot();
  object_["webhooks"][0]["clientConfig"]["service"]["namespace"] = "elsewhere";
  Change();
  Run(absl::Seconds(5));
  EXPECT_THAT(Other(), HasSubstr("is of install Service elsewhere/muster-webhook"));
  Start();  // a process outside, by a URL
  Run(absl::Seconds(5));
  EXPECT_THAT(Other(), HasSubstr("is of install Service elsewhere/muster-webhook"));
}

TEST_F(InstallTest, WhereNobodyMayTellItIsntAReason) {
  Start();
  Refuse(503, "not now");
  EXPECT_EQ(Other(), "not looked at yet");
  now_ += absl::Minutes(1);
  registration_->Tick(now_);
  Refuse(403, "forbidden");
  EXPECT_EQ(Other(), "");
  now_ += absl::Minutes(1);
  registration_->Tick(now_);
  Refuse(404, "not found");
  EXPECT_EQ(Other(), "");
}

}  // namespace
}  // namespace muster::extender
