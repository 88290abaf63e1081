#include "coscheduling/commit/suspect_marks.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "kube/objects/decode.h"
#include "muster/v1/admission.pb.h"

namespace muster::coscheduling {
namespace {

template <typename T>
T ReadObject(const std::string& json) {
  auto object = kube::Decode<T>(json);
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? *std::move(object) : T();
}

constexpr const char* kTurnedAway =
    R"("phase":"Failed","reason":"UnexpectedAdmissionError","message":"no healthy devices")";

// Of a node of two GPUs what the engine writes on it.
class SuspectMarksTest : public ::testing::Test {
 protected:
  SuspectMarksTest() : engine_(EngineOptions()) {
    engine_.SetSynced();
    engine_.Upsert(ReadObject<kube::Node>(
        R"({"metadata":{"name":"n","uid":"n-uid","resourceVersion":"1"},
            "status":{"allocatable":{"nvidia.com/gpu":"2","pods":"9"},
                      "conditions":[{"type":"Ready","status":"True"}]}})"));
    Step();
  }

  static kube::Pod Pod(const std::string& name, const std::string& node, int gpus,
                       const std::string& status = "",
                       const std::string& scheduler = "coscheduling") {
    return ReadObject<kube::Pod>(fmt::format(
        R"({{"metadata":{{"namespace":"team","name":"{0}","uid":"{0}-uid"}},
             "spec":{{"schedulerName":"{1}","nodeName":"{2}",
                      "containers":[{{"name":"c","resources":{{
                        "requests":{{"nvidia.com/gpu":"{3}"}}}}}}]}},
             "status":{{{4}}}}})",
        name, scheduler, node, gpus, status));
  }
  void Step() {
    now_ += absl::Seconds(1);
    out_ = engine_.Step(now_);
  }
  // Seen first without a node, then on it.
  void Bind(const std::string& name, int gpus) {
    engine_.Upsert(Pod(name, "", gpus));
    Step();
    engine_.Upsert(Pod(name, "n", gpus));
    Step();
  }
  void End(const std::string& name, int gpus, const std::string& status) {
    engine_.Upsert(Pod(name, "n", gpus, status));
    Step();
  }
  bool IsMarked() const {
    for (const NumberedAction& action : out_.actions) {
      const auto* annotate = std::get_if<AnnotateNode>(&action.action);
      if (annotate != nullptr &&
          annotate->annotations.contains(std::string(cluster::kSuspectAnnotation))) {
        return true;
      }
    }
    return false;
  }

  Engine engine_;
  StepOutput out_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

TEST_F(SuspectMarksTest, AMemberThatWasBoundAndTurnedAwayMarksItsNode) {
  Bind("a", 1);
  End("a", 1, kTurnedAway);
  EXPECT_TRUE(IsMarked());
}

TEST_F(SuspectMarksTest, OneThatItsUserPutThereMarksNothing) {
  engine_.Upsert(Pod("a", "n", 1));
  Step();
  End("a", 1, kTurnedAway);
  EXPECT_FALSE(IsMarked());
}

TEST_F(SuspectMarksTest, WhatAContainerSaysMarksNothing) {
  Bind("a", 1);
  End("a", 1,
      R"("phase":"Failed","containerStatuses":[{"name":"c","state":{"terminated":
         {"exitCode":1,"message":"GPU is lost"}}}])");
  EXPECT_FALSE(IsMarked());
}

TEST_F(SuspectMarksTest, WhoCameFirstIsNoFaultOfTheNodes) {
  Bind("a", 1);
  engine_.Upsert(Pod("thief", "n", 2, "", "default-scheduler"));
  End("a", 1, kTurnedAway);
  EXPECT_FALSE(IsMarked());
}

TEST_F(SuspectMarksTest, APodThatWasDeletedByForceMayRunOnThere) {
  Bind("a", 1);
  const kube::Pod thief = Pod("thief", "n", 2, "", "default-scheduler");
  engine_.Upsert(thief);
  engine_.Remove(thief);
  End("a", 1, kTurnedAway);
  EXPECT_FALSE(IsMarked());
}

TEST_F(SuspectMarksTest, APodThatEndedBeforeIsGone) {
  Bind("a", 1);
  engine_.Upsert(Pod("before", "n", 2, "", "default-scheduler"));
  const kube::Pod ended = Pod("before", "n", 2, R"("phase":"Succeeded")", "default-scheduler");
  engine_.Upsert(ended);
  engine_.Remove(ended);
  End("a", 1, kTurnedAway);
  EXPECT_TRUE(IsMarked());
}

}  // namespace
}  // namespace muster::coscheduling
