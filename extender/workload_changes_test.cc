#include "extender/workload_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "fmt/format.h"

namespace muster::extender {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::json;

class WorkloadChangesTest : public ::testing::Test {
 protected:
  WorkloadChangesTest() {
    header_.uid = "u";
    workload_ = {{"metadata",
                  {{"name", "w"},
                   {"namespace", "team"},
                   {"uid", "u"},
                   {"creationTimestamp", "2026-01-01T00:00:00Z"}}},
                 {"spec", {{"podSets", Json::array()}}},
                 {"status", {{"conditions", Json::array()}}}};
  }

  void Set(const std::string& type, const std::string& reason, const std::string& time,
           bool status = true) {
    Json& conditions = workload_["status"]["conditions"];
    for (size_t i = 0; i < conditions.size(); ++i) {
      if (conditions[i]["type"] == type) conditions.erase(i--);
    }
    conditions.push_back({{"type", type},
                          {"status", status ? "True" : "False"},
                          {"reason", reason},
                          {"message", ""},
                          {"lastTransitionTime", "2026-01-01T00:" + time + "Z"}});
  }
  std::vector<std::string> See() {
    told_.clear();
    changes_.Upsert("workloads", header_, workload_.dump());
    return told_;
  }

  bool counts_ = true;
  std::vector<std::string> told_;
  WorkloadChanges changes_{{.admitted =
                                [this](const std::string& queue, absl::Duration wait) {
                                  told_.push_back(fmt::format("{} admitted after {}", queue,
                                                              absl::FormatDuration(wait)));
                                },
                            .evicted =
                                [this](const std::string& queue, const std::string& reason) {
                                  told_.push_back(fmt::format("{} evicted: {}", queue, reason));
                                },
                            .preempted =
                                [this](const std::string& queue, const std::string& reason) {
                                  told_.push_back(fmt::format("{} preempted: {}", queue, reason));
                                }},
                           [this] { return counts_; }};
  kube::ObjectHeader header_;
  Json workload_;
};

TEST_F(WorkloadChangesTest, EachAdmissionAndEvictionIsToldOnce) {
  EXPECT_THAT(See(), IsEmpty());
  workload_["status"]["admission"] = {{"clusterQueue", "gpus"},
                                      {"podSetAssignments", Json::array()}};
  Set("QuotaReserved", "QuotaReserved", "00:10");
  EXPECT_THAT(See(), IsEmpty());
  Set("Admitted", "Admitted", "00:12");
  EXPECT_THAT(See(), ElementsAre("gpus admitted after 12s"));
  EXPECT_THAT(See(), IsEmpty());
  Set("Evicted", "Preempted", "05:00");
  Set("Preempted", "InClusterQueue", "05:00");
  EXPECT_THAT(See(), ElementsAre("gpus evicted: Preempted", "gpus preempted: InClusterQueue"));
  EXPECT_THAT(See(), IsEmpty());
  // It is taken back, and the next one begins when it is queued again.
  workload_["status"].erase("admission");
  Set("Admitted", "NoReservation", "05:05", false);
  Set("Requeued", "BackoffFinished", "05:10");
  EXPECT_THAT(See(), IsEmpty());
  Set("Evicted", "Preempted", "05:40", false);
  Set("Admitted", "Admitted", "05:40");
  EXPECT_THAT(See(), ElementsAre("gpus admitted after 30s"));
  Set("Evicted", "Deactivated", "06:00");
  EXPECT_THAT(See(), ElementsAre("gpus evicted: Deactivated"));
}

TEST_F(WorkloadChangesTest, WhatWasBeforeItLookedIsNotToldNorWhatAnotherTells) {
  Set("Admitted", "Admitted", "00:12");
  EXPECT_THAT(See(), IsEmpty()) << "by the process before";
  counts_ = false;
  Set("Evicted", "Preempted", "01:00");
  EXPECT_THAT(See(), IsEmpty());
  counts_ = true;
  EXPECT_THAT(See(), IsEmpty()) << "whoever led then has";
  changes_.Remove("workloads", header_);
  Set("Evicted", "Preempted", "02:00");
  EXPECT_THAT(See(), IsEmpty()) << "another of this name";
  changes_.Upsert("pods", header_, "no Workload");
  changes_.Upsert("workloads", header_, "no JSON");
  EXPECT_THAT(told_, IsEmpty());
}

}  // namespace
}  // namespace muster::extender
