#include "extender/kubectl/completion.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster::extender {
namespace {

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    CLI::App* gangs = app_.add_subcommand("gangs", "list gangs");
    gangs->add_flag("-w,--watch", watch_, "go on");
    app_.add_subcommand("explain", "say why");
    app_.add_subcommand("lint", "find mistakes");
    app_.add_subcommand("serve", "run it")->group("");
  }
  std::string Complete(std::vector<std::string> words) {
    return extender::Complete(app_, std::move(words), [this](const QueryOptions& options) {
      asked_.push_back(options);
      return "gang.visibility.muster.dev/train\ngang.visibility.muster.dev/serve\n";
    });
  }

  bool watch_ = false;
  CLI::App app_;
  std::vector<QueryOptions> asked_;
};

TEST_F(CompletionTest, OfCommandsAndTheirFlags) {
  EXPECT_EQ(Complete({""}), "gangs\tlist gangs\nexplain\tsay why\nlint\tfind mistakes\n:4\n");
  EXPECT_EQ(Complete({}), Complete({""}));
  EXPECT_EQ(Complete({"ex"}), "explain\tsay why\n:4\n");
  EXPECT_EQ(Complete({"gangs", "--w"}), "--watch\tgo on\n:4\n");
  EXPECT_EQ(Complete({"gangs", "-o", "ya"}), "yaml\n:4\n");
  // Of manifests the shell knows the names.
  EXPECT_EQ(Complete({"lint", "jo"}), ":0\n");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(CompletionTest, OfWhatIsThere) {
  EXPECT_EQ(Complete({"explain", "t"}), "train\n:4\n");
  EXPECT_EQ(Complete({"explain", "-n", "team", "--context=west", ""}), "train\nserve\n:4\n");
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[1].query, Query::kGangs);
  EXPECT_EQ(asked_[1].output, "name");
  EXPECT_EQ(asked_[1].name_space, "team");
  EXPECT_EQ(asked_[1].context, "west");
  EXPECT_EQ(Complete({"gangs", "-n", ""}), ":4\n");
  EXPECT_EQ(asked_.size(), 2u);
}

}  // namespace
}  // namespace muster::extender
