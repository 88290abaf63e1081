#include "extender/extender_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "extender/filter_table.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using coscheduling::FilterAnswer;
using nlohmann::json;
using ::testing::HasSubstr;
using Outcome = FilterReply::Outcome;

json PodJson(const std::string& uid) {
  return {{"metadata", {{"name", "p-0"}, {"namespace", "team"}, {"uid", uid}}},
          {"spec", {{"schedulerName", "coscheduling"}, {"containers", json::array()}}},
          {"status", {{"phase", "Pending"}}}};
}

json NamesCall(const std::string& uid, std::vector<std::string> names) {
  return {{"Pod", PodJson(uid)}, {"Nodes", nullptr}, {"NodeNames", std::move(names)}};
}

json ObjectsCall(const std::string& uid, const std::vector<std::string>& names) {
  json items = json::array();
  for (const std::string& name : names) {
    items.push_back(
        {{"metadata", {{"name", name}}}, {"status", {{"allocatable", {{"nvidia.com/gpu", "8"}}}}}});
  }
  return {{"Pod", PodJson(uid)}, {"Nodes", {{"items", items}}}, {"NodeNames", nullptr}};
}

class Filter : public ::testing::Test {
 protected:
  Filter() {
    table_.Apply({{"planned", FilterAnswer{FilterAnswer::Kind::kPlanned, "n2", ""}},
                  {"short", FilterAnswer{FilterAnswer::Kind::kUnresolvable, "",
                                         "gang team/g: 3 of 4 \"nodes\""}},
                  {"held", FilterAnswer{FilterAnswer::Kind::kHold, "", "gang team/g backs off"}}});
  }
  absl::StatusOr<FilterReply> Call(const std::string& body) {
    return AnswerFilter(body, [this](std::string_view uid) { return table_.Find(uid); });
  }
  FilterReply Answer(const json& call) {
    absl::StatusOr<FilterReply> reply = Call(call.dump());
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : FilterReply{};
  }

  FilterTable table_;
};

TEST_F(Filter, PlannedPodPassesOnItsNodeOnly) {
  const FilterReply reply = Answer(NamesCall("planned", {"n1", "n2", "n3"}));
  EXPECT_EQ(reply.outcome, Outcome::kPlanned);
  EXPECT_EQ(reply.body, R"({"Nodes":null,"NodeNames":["n2"],"FailedNodes":null,)"
                        R"("FailedAndUnresolvableNodes":null,"Error":""})");
}

TEST_F(Filter, PlannedPodGetsItsNodeObjectBack) {
  const FilterReply reply = Answer(ObjectsCall("planned", {"n1", "n2"}));
  const json body = json::parse(reply.body);
  EXPECT_TRUE(body["NodeNames"].is_null());
  ASSERT_EQ(body["Nodes"]["items"].size(), 1u);
  EXPECT_EQ(body["Nodes"]["items"][0]["metadata"]["name"], "n2");
  EXPECT_EQ(body["Nodes"]["items"][0]["status"]["allocatable"]["nvidia.com/gpu"], "8");
}

TEST_F(Filter, MissingPlannedNodeIsAnErrorWithTheNumbers) {
  const FilterReply reply = Answer(NamesCall("planned", {"n1", "n3"}));
  EXPECT_EQ(reply.outcome, Outcome::kRefused);
  EXPECT_EQ(reply.pod_uid, "planned");
  EXPECT_EQ(reply.refused_node, "n2");
  const json body = json::parse(reply.body);
  EXPECT_EQ(body["Error"], "planned node n2 is not among the 2 offered; a new plan is being made");
  EXPECT_TRUE(body["NodeNames"].is_null());
}

TEST_F(Filter, NominatedNodeAloneRefusesNothing) {
  json call = NamesCall("planned", {"n9"});
  call["Pod"]["status"]["nominatedNodeName"] = "n9";
  const FilterReply reply = Answer(call);
  EXPECT_EQ(reply.outcome, Outcome::kHeld);
  EXPECT_TRUE(reply.refused_node.empty());
  EXPECT_THAT(json::parse(reply.body)["Error"].get<std::string>(), HasSubstr("nominated node n9"));
}

TEST_F(Filter, UnresolvablePodKeepsNoNodeAndShowsItsReasonOnce) {
  for (const json& call : {NamesCall("short", {"n1", "n2"}), ObjectsCall("short", {"n1", "n2"})}) {
    const FilterReply reply = Answer(call);
    EXPECT_EQ(reply.outcome, Outcome::kUnresolvable);
    const json body = json::parse(reply.body);
    EXPECT_EQ(body["FailedAndUnresolvableNodes"], json({{"n1", "gang team/g: 3 of 4 \"nodes\""}}));
    EXPECT_TRUE(body["FailedNodes"].is_null());
    EXPECT_EQ(body["Error"], "");
    const json kept = body["Nodes"].is_null() ? body["NodeNames"] : body["Nodes"]["items"];
    EXPECT_EQ(kept, json::array());
  }
}

TEST_F(Filter, HeldAndUnknownPodsGetAnError) {
  EXPECT_EQ(json::parse(Answer(NamesCall("held", {"n1"})).body)["Error"], "gang team/g backs off");
  const FilterReply unknown = Answer(NamesCall("nobody", {"n1"}));
  EXPECT_EQ(unknown.outcome, Outcome::kUnknownPod);
  EXPECT_EQ(json::parse(unknown.body)["Error"],
            "pod team/p-0 (uid nobody) is not known to muster yet");
}

TEST_F(Filter, AnswersChangeWithTheTable) {
  table_.Apply(
      {{"planned", std::nullopt}, {"held", FilterAnswer{FilterAnswer::Kind::kPlanned, "n1", ""}}});
  EXPECT_EQ(Answer(NamesCall("planned", {"n2"})).outcome, Outcome::kUnknownPod);
  EXPECT_EQ(Answer(NamesCall("held", {"n1"})).outcome, Outcome::kPlanned);
  EXPECT_EQ(table_.size(), 2u);
}

TEST_F(Filter, KeyOrderAndUnknownKeysDoNotMatter) {
  EXPECT_EQ(Call(R"({"Later":[{}],"NodeNames":["n2"],"Pod":{"status":{},"metadata":
      {"namespace":"a","annotations":{"x":"]}"},"uid":"planned","name":"b"}}})")
                ->outcome,
            Outcome::kPlanned);
}

TEST_F(Filter, EscapedNodeNameIsTheSameName) {
  EXPECT_EQ(Call(R"({"NodeNames":["\u006e2"],"Pod":{"metadata":
      {"namespace":"a","uid":"planned","name":"b"}}})")
                ->outcome,
            Outcome::kPlanned);
}

// As kube-scheduler writes it: the names last, which are then not read as JSON.
std::string GoCall(const std::string& pod, const std::string& names) {
  return fmt::format(R"({{"Pod":{},"Nodes":null,"NodeNames":{}}})", pod, names);
}

TEST_F(Filter, TheOrderOfGoIsAnsweredAsAnyOther) {
  const std::string pods[] = {PodJson("planned").dump(),
                              PodJson("short").dump(),
                              PodJson("held").dump(),
                              PodJson("other").dump(),
                              R"({"metadata":{"name":",\"NodeNames\":[","uid":"planned"}})",
                              R"({"metadata":{"name":"p","namespace":"n","uid":"planned","x":1,)"
                              R"("NodeNames":["n2"]}})",
                              R"({"metadata":{}})",
                              "null",
                              "{",
                              ""};
  for (const std::string& pod : pods) {
    for (const char* names : {R"([])",
                              R"(["n1"])",
                              R"(["n1","n2","n3"])",
                              R"(["n2","n2"])",
                              R"(["\u006e2"])",
                              R"(["n1" , "n2"])",
                              R"(["n1",2])",
                              R"(["n1",])",
                              R"([,"n2"])",
                              R"(["n1""n2"])",
                              R"([""])",
                              R"(["n1","n"n"])",
                              R"(["n1","long","n2"])",
                              R"(["abc","a","","n2"])",
                              R"(["n1","n2)",
                              R"(["n1",["n2"]])",
                              R"([{"a":"n2"}])",
                              R"(["n1"],"NodeNames":["n2"])",
                              R"(["n1"],"More":["n2"])",
                              "[\"n\x01\",\"n2\"]",
                              "[\"n\xff\",\"n2\"]",
                              "[\"\xc3\xa9\",\"n2\"]",
                              "null",
                              "7"}) {
      const std::string call = GoCall(pod, names);
      // A space before the key is enough for the parser.
      std::string spaced = call;
      for (size_t at = 0; (at = spaced.find(",\"NodeNames\"", at)) != std::string::npos; at += 2) {
        spaced.insert(at + 1, " ");
      }
      const absl::StatusOr<FilterReply> want = Call(spaced);
      const absl::StatusOr<FilterReply> got = Call(call);
      ASSERT_EQ(got.status(), want.status()) << call;
      if (!got.ok()) continue;
      EXPECT_EQ(got->body, want->body) << call;
      EXPECT_EQ(got->outcome, want->outcome) << call;
      EXPECT_EQ(got->refused_node, want->refused_node) << call;
    }
  }
}

TEST_F(Filter, EveryTruncationIsRefused) {
  const std::string body = NamesCall("planned", {"n1", "n2"}).dump();
  for (size_t length = 0; length < body.size(); ++length) {
    const absl::StatusOr<FilterReply> reply = Call(body.substr(0, length));
    ASSERT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument) << length;
    ASSERT_THAT(std::string(reply.status().message()), HasSubstr("body is not JSON")) << length;
  }
}

struct BadArgs {
  const char* body;
  const char* message;
};
class BadFilterArgs : public Filter, public ::testing::WithParamInterface<BadArgs> {};

TEST_P(BadFilterArgs, NamesTheField) {
  const absl::StatusOr<FilterReply> reply = Call(GetParam().body);
  ASSERT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reply.status().message(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadFilterArgs,
    ::testing::Values(
        BadArgs{"[]", "body: want an object"}, BadArgs{"{}", "Pod: missing"},
        BadArgs{R"({"Pod":null})", "Pod: missing"}, BadArgs{R"({"Pod":[]})", "Pod: want an object"},
        BadArgs{R"({"Pod":{}})", "Pod.metadata: missing"},
        BadArgs{R"({"Pod":{"metadata":{}}})", "Pod.metadata.uid: missing"},
        BadArgs{R"({"Pod":{"metadata":{"uid":7}}})", "Pod.metadata.uid: want a string"},
        BadArgs{R"({"Pod":{"metadata":{"uid":""}}})", "Pod.metadata.uid: empty"},
        BadArgs{R"({"Pod":{"metadata":{"uid":"u","name":"n"}}})",
                "Pod.metadata.namespace: missing"},
        BadArgs{R"({"Pod":{"metadata":{"uid":"u","name":"n","namespace":"s"}}})",
                "NodeNames and Nodes: missing"},
        BadArgs{R"({"Pod":{"metadata":{"uid":"u","name":"n","namespace":"s"}},"NodeNames":{}})",
                "NodeNames: want an array"},
        BadArgs{
            R"({"Pod":{"metadata":{"uid":"u","name":"n","namespace":"s"}},"NodeNames":["a",5]})",
            "NodeNames[1]: want a string"},
        BadArgs{R"({"Pod":{"metadata":{"uid":"u","name":"n","namespace":"s"}},"Nodes":"x"})",
                "Nodes: want an object"},
        BadArgs{
            R"({"Pod":{"metadata":{"uid":"u","name":"n","namespace":"s"}},"Nodes":{"items":[{}]}})",
            "Nodes.items[0].metadata.name: want a string"}));

TEST(ExtenderProtocol, PrioritizeScoresNothing) {
  EXPECT_EQ(*AnswerPrioritize(NamesCall("u", {"n1"}).dump()), "[]");
  EXPECT_EQ(AnswerPrioritize("{}").status().message(), "Pod: missing");
}

TEST(ExtenderProtocol, PreemptionOffersNoNode) {
  json call{{"Pod", PodJson("u")},
            {"NodeNameToVictims", nullptr},
            {"NodeNameToMetaVictims", {{"n1", {{"Pods", json::array()}}}}}};
  EXPECT_EQ(*AnswerPreemption(call.dump()), R"({"NodeNameToMetaVictims":{}})");
  call["NodeNameToMetaVictims"] = 4;
  EXPECT_EQ(AnswerPreemption(call.dump()).status().message(),
            "NodeNameToMetaVictims: want an object");
}

TEST(ExtenderProtocol, BindArguments) {
  const absl::StatusOr<BindCall> call =
      DecodeBind(R"({"PodName":"p","PodNamespace":"s","PodUID":"u","Node":"n"})");
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->pod_name, "p");
  EXPECT_EQ(call->pod_namespace, "s");
  EXPECT_EQ(call->pod_uid, "u");
  EXPECT_EQ(call->node, "n");
  EXPECT_EQ(DecodeBind(R"({"PodName":"p","PodNamespace":"s","PodUID":"u"})").status().message(),
            "Node: missing");
  EXPECT_EQ(DecodeBind(R"({"PodName":["p"]})").status().message(), "PodName: want a string");
  EXPECT_EQ(EncodeBindResult(""), R"({"Error":""})");
}

TEST(ExtenderProtocol, AnyTextIsEncodedAsValidJson) {
  for (const std::string& text :
       {std::string("quote \" back \\ tab \t nul \0 end", 28),
        std::string("caf\xC3\xA9 \xF0\x9F\x98\x80"),
        std::string("bad \xFF\xC0\xAF \xED\xA0\x80 cut \xE2\x82"), std::string()}) {
    const json parsed = json::parse(EncodeBindResult(text), nullptr, false);
    ASSERT_FALSE(parsed.is_discarded()) << text;
    if (text.find('\xFF') == std::string::npos) {
      EXPECT_EQ(parsed["Error"], text);
    }
  }
}

}  // namespace
}  // namespace muster::extender
