#include "worker/program/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    settings_.Add("steps", "how many steps to train", &steps_);
    settings_.Add("learning-rate", "at its highest", &rate_);
    settings_.Add("nodes", "how many pods", &nodes_);
    settings_.Add("run-name", "for logs", &name_);
    settings_.Add("replace-timeout", "for a lost rank's replacement", &timeout_);
    settings_.Add("compile", "spend time on it first", &compile_);
  }

  // The message of what was refused.
  std::string Refused(const std::vector<std::string>& arguments) {
    const auto line = settings_.ReadCommandLine(arguments);
    EXPECT_TRUE(absl::IsInvalidArgument(line.status())) << line.status();
    return std::string(line.status().message());
  }

  int64_t steps_ = 100;
  double rate_ = 0.25;
  std::optional<int> nodes_;
  std::string name_ = "first";
  absl::Duration timeout_ = absl::Minutes(10);
  bool compile_ = false;
  Settings settings_;
};

TEST_F(SettingsTest, FlagsTakeBothForms) {
  const auto line = settings_.ReadCommandLine(
      {"--steps=7", "--run-name", "second", "--compile", "data.bin", "--replace-timeout=90s"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(steps_, 7);
  EXPECT_EQ(name_, "second");
  EXPECT_TRUE(compile_);
  EXPECT_EQ(timeout_, absl::Seconds(90));
  EXPECT_THAT(line->positional, ElementsAre("data.bin"));
}

TEST_F(SettingsTest, FlagsWinOverTheFileWhereverTheyStand) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/settings.yaml");
  std::ofstream(path) << "steps: 5\nnodes: 3\n";
  const auto line = settings_.ReadCommandLine({"--steps=9", "--config", path});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(steps_, 9);
  EXPECT_EQ(nodes_, 3);
}

TEST_F(SettingsTest, WhatIsPrintedCanBeReadAgain) {
  name_ = "it's: \"odd\"";
  nodes_ = 4;
  const std::string printed = settings_.Print();
  const std::string name = std::exchange(name_, "");
  nodes_.reset();
  timeout_ = absl::ZeroDuration();
  ASSERT_TRUE(settings_.ReadYaml(printed, "printed").ok()) << printed;
  EXPECT_EQ(name_, name);
  EXPECT_EQ(nodes_, 4);
  EXPECT_EQ(timeout_, absl::Minutes(10));
  EXPECT_EQ(settings_.Print(), printed);
}

TEST_F(SettingsTest, HelpShowsDefaults) {
  EXPECT_THAT(settings_.Help(), HasSubstr("  --steps: how many steps to train (100)\n"));
  EXPECT_THAT(settings_.Help(), HasSubstr("  --nodes: how many pods (not set)\n"));
}

TEST_F(SettingsTest, PrintConfigAndHelpAreAsked) {
  const auto line = settings_.ReadCommandLine({"--print-config", "--help"});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->print_config);
  EXPECT_TRUE(line->help);
}

TEST_F(SettingsTest, WhatMakesNoSenseIsNamedWithItsPlace) {
  EXPECT_EQ(Refused({"--step=7"}), "there is no setting step; did you mean steps?");
  EXPECT_EQ(Refused({"--weight-decay=7"}), "there is no setting weight-decay");
  EXPECT_EQ(Refused({"--steps=many"}), "--steps=many isn't a whole number");
  EXPECT_EQ(Refused({"--replace-timeout=10"}),
            "--replace-timeout=10 isn't a time such as 90s or 10m");
  EXPECT_EQ(Refused({"--replace-timeout=-3s"}),
            "--replace-timeout=-3s isn't a time such as 90s or 10m");
  EXPECT_EQ(Refused({"--steps"}), "--steps needs a value");
  EXPECT_THAT(Refused({"--config=/no/such"}), HasSubstr("--config=/no/such can't be read"));
}

TEST_F(SettingsTest, WhatMakesSenseIsSetEvenSo) {
  EXPECT_EQ(Refused({"--step=7", "--run-name=second", "--steps=many"}),
            "there is no setting step; did you mean steps?");
  EXPECT_EQ(name_, "second");
}

TEST_F(SettingsTest, ListsAreOneValue) {
  std::vector<std::string> files;
  settings_.Add("data", "token files", &files);
  ASSERT_TRUE(settings_.ReadYaml("data: a,b\n", "job.yaml").ok());
  EXPECT_THAT(files, ElementsAre("a", "b"));
  EXPECT_THAT(settings_.Print(), HasSubstr("data: a,b\n"));
}

TEST_F(SettingsTest, TheFilesLineIsNamed) {
  EXPECT_EQ(settings_.ReadYaml("steps: 1\nnodse: 2\n", "job.yaml").message(),
            "job.yaml:2: there is no setting nodse; did you mean nodes?");
  EXPECT_EQ(settings_.ReadYaml("steps: [1]\n", "job.yaml").message(),
            "job.yaml:1: settings are lines of NAME: VALUE");
  EXPECT_THAT(settings_.ReadYaml("a: {\n", "job.yaml").message(), HasSubstr("job.yaml:2: "));
  EXPECT_EQ(settings_.ReadYaml("- 1\n", "job.yaml").message(), "job.yaml: not a map of settings");
}

}  // namespace
}  // namespace muster::worker
