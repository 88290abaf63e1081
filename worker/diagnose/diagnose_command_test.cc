#include "worker/diagnose/diagnose_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "nlohmann/json.hpp"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kHandshake[] = "worker/diagnose/logs/handshake_node_0.log";
constexpr char kHealthy[] = "worker/diagnose/logs/healthy.log";

struct Ran {
  int exit_code = 0;
  std::string out;
  std::string err;
};

Ran Diagnose(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = RunDiagnose(arguments, out, err);
  return {.exit_code = exit_code, .out = out.str(), .err = err.str()};
}

TEST(DiagnoseCommand, ExplainsWithFileLineRankFixAndExitCode) {
  const Ran ran = Diagnose({kHandshake});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.err, IsEmpty());
  EXPECT_THAT(ran.out, HasSubstr("First: rank 0 on train-node-0-0, at 2026-01-14 09:20:41"));
  EXPECT_THAT(ran.out, HasSubstr("worker/diagnose/logs/handshake_node_0.log:5: [2026-01-14"));
  EXPECT_THAT(ran.out, HasSubstr("and 2 more such lines"));
  EXPECT_THAT(ran.out, HasSubstr("cause: handshake-failed (network; configuration, exit code 78)"));
  EXPECT_THAT(ran.out, HasSubstr("fix: Give the nodes' security group an egress rule"));
}

TEST(DiagnoseCommand, JsonSaysTheSame) {
  const Ran ran = Diagnose({"-o", "json", kHandshake});
  EXPECT_EQ(ran.exit_code, 0);
  const auto report = nlohmann::json::parse(ran.out);
  ASSERT_EQ(report.at("findings").size(), 1);
  const auto& finding = report.at("findings").at(0);
  EXPECT_EQ(finding.at("relation"), "first");
  EXPECT_EQ(finding.at("cause"), "handshake-failed");
  EXPECT_EQ(finding.at("fault"), "network");
  EXPECT_EQ(finding.at("outcome"), "configuration");
  EXPECT_EQ(finding.at("exitCode"), 78);
  EXPECT_EQ(finding.at("file"), kHandshake);
  EXPECT_EQ(finding.at("line"), 5);
  EXPECT_EQ(finding.at("rank"), 0);
  EXPECT_EQ(finding.at("host"), "train-node-0-0");
  EXPECT_EQ(finding.at("time"), "2026-01-14T09:20:41Z");
  EXPECT_EQ(finding.at("count"), 3);
  EXPECT_THAT(finding.at("detail").get<std::string>(), HasSubstr("EFA error 4126"));
}

TEST(DiagnoseCommand, NothingRecognisedIsOne) {
  const Ran ran = Diagnose({kHealthy});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.out, "Nothing in it shows a cause that is known.\n");
  EXPECT_EQ(nlohmann::json::parse(Diagnose({"--output=json", kHealthy}).out).at("findings").size(),
            0);
}

TEST(DiagnoseCommand, AnUnreadableFileIsTwoAndTheOthersAreExplained) {
  const Ran ran = Diagnose({"/nonexistent.log", kHandshake});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("/nonexistent.log"));
  EXPECT_THAT(ran.out, HasSubstr("handshake-failed"));
  EXPECT_EQ(Diagnose({"worker/diagnose"}).exit_code, 2) << "a folder";
}

TEST(DiagnoseCommand, WrongArgumentsAreTwo) {
  EXPECT_THAT(Diagnose({}).err, HasSubstr("no file is named"));
  EXPECT_THAT(Diagnose({"-o", "yaml", kHandshake}).err, HasSubstr("text or json"));
  EXPECT_THAT(Diagnose({kHandshake, "-o"}).err, HasSubstr("text or json"));
  EXPECT_THAT(Diagnose({"--fix", kHandshake}).err, HasSubstr("unknown option --fix"));
  EXPECT_EQ(Diagnose({"--fix", kHandshake}).exit_code, 2);
  EXPECT_EQ(Diagnose({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace muster::worker
