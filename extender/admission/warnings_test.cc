#include "extender/admission/warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "extender/admission/admission_review.h"

namespace muster::extender {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

lint::Finding Found(std::string message, std::string fix) {
  lint::Finding finding;
  finding.rule = "some-rule";
  finding.message = std::move(message);
  finding.fix = std::move(fix);
  return finding;
}

TEST(WarningTexts, NameRuleMistakeAndFix) {
  EXPECT_THAT(WarningTexts({Found("4 pods on one node", "leave it out")}),
              ElementsAre("some-rule: 4 pods on one node; leave it out"));
  EXPECT_THAT(WarningTexts({}), IsEmpty());
}

TEST(WarningTexts, WhatIsTooLongTogetherIsTwoWarnings) {
  const std::string message(200, 'm');
  EXPECT_THAT(
      WarningTexts({Found(message, std::string(100, 'f'))}),
      ElementsAre("some-rule: " + message, "some-rule, what to do: " + std::string(100, 'f')));
}

TEST(WarningTexts, AreCutOffBetweenCharacters) {
  std::string message;
  for (int i = 0; i < 300; ++i) message += "\u00e9";
  const std::vector<std::string> texts = WarningTexts({Found(message, "fix")});
  ASSERT_THAT(texts, SizeIs(2));
  EXPECT_TRUE(Json::accept(Json(texts[0]).dump())) << "whole characters";
  EXPECT_EQ(texts[0].size(), std::string("some-rule: ").size() + 2 * (256 - 11 - 3) + 3);
  EXPECT_TRUE(texts[0].ends_with("\u00e9..."));
}

TEST(WarningTexts, AreOneLineEach) {
  EXPECT_THAT(WarningTexts({Found("two\nlines\x01", "a\ttab")}),
              ElementsAre("some-rule: two lines ; a tab"));
}

TEST(WarningTexts, AreSaidOnce) {
  EXPECT_THAT(WarningTexts({Found("a", "b"), Found("a", "b"), Found("c", "b")}),
              ElementsAre("some-rule: a; b", "some-rule: c; b"));
}

TEST(WarningTexts, StayWithinWhatTheApiServerPassesOn) {
  std::vector<lint::Finding> findings;
  for (int i = 0; i < 100; ++i) {
    findings.push_back(Found(std::to_string(i) + std::string(230, 'm'),
                             std::string(230, 'f') + std::to_string(i)));
  }
  const std::vector<std::string> texts = WarningTexts(findings);
  size_t characters = 0;
  for (const std::string& text : texts) {
    EXPECT_LE(text.size(), 256U);
    characters += text.size();
  }
  EXPECT_LE(characters, 4096U);
  EXPECT_GT(characters, 3400U);
  EXPECT_EQ(texts.back(), "and 92 more; muster lint shows them all");
}

// As kube-apiserver v1.34 sends it, shortened.
Json Review() {
  return Json::parse(R"json({
    "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
    "request": {
      "uid": "u-1", "operation": "CREATE",
      "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
      "object": {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "train"}},
      "oldObject": null, "dryRun": false}})json");
}

// Finds one mistake in everything, and keeps what it was asked about.
class Reviewed : public ::testing::Test {
 protected:
  Json Response(const Json& review) {
    const absl::StatusOr<std::string> answer =
        ReviewForWarnings(review.dump(), [this](std::string_view, std::string_view json) {
          asked_.emplace_back(json);
          lint::ObjectLint found;
          found.findings.push_back(Found("wrong", "right"));
          return found;
        });
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? Json::parse(*answer)["response"] : Json();
  }
  std::vector<std::string> asked_;
};

TEST_F(Reviewed, IsAllowedWithWarningsAndNothingElse) {
  EXPECT_EQ(Response(Review()), Json::parse(R"({"uid": "u-1", "allowed": true,
                                               "warnings": ["some-rule: wrong; right"]})"));
  ASSERT_THAT(asked_, SizeIs(1));
  EXPECT_EQ(Json::parse(asked_[0]), Review()["request"]["object"]);
}

TEST_F(Reviewed, ADryRunIsAnsweredAlike) {
  Json review = Review();
  review["request"]["dryRun"] = true;
  EXPECT_EQ(Response(review), Response(Review()));
}

TEST_F(Reviewed, OnlyCreationsAndUpdatesOfTheObjectItselfAreLookedAt) {
  for (const char* change :
       {R"({"operation": "DELETE", "object": null})", R"({"operation": "CONNECT"})",
        R"({"operation": "UPDATE", "subResource": "status"})", R"({"object": null})"}) {
    Json review = Review();
    review["request"].merge_patch(Json::parse(change));
    EXPECT_EQ(Response(review), Json::parse(R"({"uid": "u-1", "allowed": true})")) << change;
  }
  EXPECT_THAT(asked_, IsEmpty());
  Json update = Review();
  update["request"]["operation"] = "UPDATE";
  Response(update);
  EXPECT_THAT(asked_, SizeIs(1));
}

TEST_F(Reviewed, AVeryLargeObjectIsAllowedUnlookedAt) {
  Json review = Review();
  review["request"]["object"]["notes"] = std::string(1 << 20, 'x');
  EXPECT_EQ(Response(review), Json::parse(R"({"uid": "u-1", "allowed": true})"));
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(Reviewed, WhatIsNoReviewIsAnError) {
  const ObjectLinter none = [](std::string_view, std::string_view) { return lint::ObjectLint(); };
  EXPECT_THAT(std::string(ReviewForWarnings("{}", none).status().message()),
              StartsWith("apiVersion: want \"admission.k8s.io/v1\""));
  EXPECT_THAT(
      std::string(
          ReviewForWarnings(std::string(kMaxReviewBytes + 1, ' '), none).status().message()),
      HasSubstr("at most 8388608 are read"));
  const std::string whole = Review().dump();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ReviewForWarnings(whole.substr(0, size), none).ok()) << size;
  }
}

}  // namespace
}  // namespace muster::extender
