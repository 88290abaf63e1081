// The planner's specification as a table: a cluster, a gang, and the plan in one line.
// planner_test.cc says what holds of each case.
#pragma once

#include <cctype>
#include <functional>
#include <ostream>
#include <string>

#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/planner/testing.h"
#include "gtest/gtest.h"

namespace muster::coscheduling::testing {

// The node of each member in rank order, "-" for those left over, then "!" unless complete.
inline std::string Shown(const PlanRequest& request, const Plan& plan) {
  std::string text;
  for (const kube::Pod* member : request.members) {
    auto it = plan.placements.find(member->meta.uid);
    if (!text.empty()) text += ' ';
    text += it == plan.placements.end() ? "-" : it->second;
  }
  return plan.complete ? text : text + " !";
}

struct PlanCase {
  std::string name;
  std::function<void(GangWorld&)> given;
  std::string plan;
};

inline void PrintTo(const PlanCase& test, std::ostream* os) { *os << test.name; }

class PlanTable : public ::testing::TestWithParam<PlanCase> {};

inline std::string NameOfPlanCase(const ::testing::TestParamInfo<PlanCase>& info) {
  std::string name;
  bool upper = true;
  for (char c : info.param.name) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += upper ? std::toupper(c) : c;
    upper = !std::isalnum(static_cast<unsigned char>(c));
  }
  return name;
}

#define PLAN_TABLE(table, ...) \
  INSTANTIATE_TEST_SUITE_P(table, PlanTable, ::testing::Values(__VA_ARGS__), NameOfPlanCase)

}  // namespace muster::coscheduling::testing
