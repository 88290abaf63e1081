#include "yaml/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "absl/strings/str_cat.h"

namespace muster::yaml {
namespace {

using ::testing::HasSubstr;

TEST(YamlTree, ValuesKnowTheirLines) {
  const YamlFile file = ParseYaml(
      "kind: A\n"
      "spec:\n"
      "  list:\n"
      "  - name: x\n"
      "  - name: y\n"
      "---\n"
      "kind: B\n");
  ASSERT_FALSE(file.error) << file.error->message;
  ASSERT_EQ(file.documents.size(), 2U);
  const YamlValue list = file.documents[0].At("spec.list");
  EXPECT_EQ(list.line(), 3);
  ASSERT_EQ(list.Items().size(), 2U);
  EXPECT_EQ(list.Items()[1].line(), 5);
  EXPECT_EQ(list.Items()[1].Get("name").Text(), "y");
  EXPECT_FALSE(list.Items()[1].Get("other").present());
  EXPECT_EQ(file.documents[1].Get("kind").line(), 7);
}

TEST(YamlTree, AnchorsAliasesAndMergeKeysAreWrittenOut) {
  const YamlFile file = ParseYaml(
      "base: &base\n"
      "  gpu: 1\n"
      "  zone: a\n"
      "worker:\n"
      "  <<: *base\n"
      "  gpu: 8\n"
      "same: *base\n");
  ASSERT_FALSE(file.error) << file.error->message;
  EXPECT_EQ(file.documents[0].At("worker.gpu").Text(), "8");
  EXPECT_EQ(file.documents[0].At("worker.zone").Text(), "a");
  EXPECT_EQ(file.documents[0].At("worker.zone").line(), 3);
  EXPECT_EQ(file.documents[0].At("same.gpu").Text(), "1");
}

TEST(YamlTree, QuotedTextIsNoNumberAndBlocksKeepTheirLines) {
  const YamlFile file = ParseYaml("a: \"1\"\nb: 1\nc: |\n  one\n  two\nd: >\n  three\n  four\n");
  ASSERT_FALSE(file.error);
  EXPECT_TRUE(file.documents[0].Get("a").node()->quoted);
  EXPECT_FALSE(file.documents[0].Get("b").node()->quoted);
  EXPECT_TRUE(file.documents[0].Get("c").node()->literal);
  EXPECT_EQ(file.documents[0].Get("c").Text(), "one\ntwo\n");
  EXPECT_FALSE(file.documents[0].Get("d").node()->literal);
}

TEST(YamlTree, TextInsideABlockMayHoldTabs) {
  const YamlFile file = ParseYaml("a: |\n  all:\n  \tmake it\nb: {x:\t1,\n\ty: 2}\n");
  ASSERT_FALSE(file.error) << file.error->line << ": " << file.error->message;
  EXPECT_EQ(file.documents[0].Get("a").Text(), "all:\n\tmake it\n");
}

struct BadCase {
  const char* name;
  std::string text;
  int line;
  const char* message;
};

std::string ManyAliases() {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    absl::StrAppend(&text, "a", i, ": &a", i, " [");
    for (int k = 0; k < 10; ++k) absl::StrAppend(&text, k == 0 ? "" : ", ", "*a", i - 1);
    absl::StrAppend(&text, "]\n");
  }
  return text;
}

TEST(YamlTree, WhatCannotBeReadIsNamedWithItsLine) {
  for (const BadCase& c : std::vector<BadCase>{
           {"duplicate key", "a: 1\nb: 2\na: 3\n", 3, "key a stands twice, first in line 1"},
           {"tab before a key", "a:\n  b: 1\n\tc: 2\n", 3, "a tab in the indentation"},
           {"tab before a nested key", "a:\n\tb: 1\n", 2, "a tab in the indentation"},
           {"tab before a list", "a:\n\t- b\n", 2, "a tab in the indentation"},
           {"tab before a scalar", "a:\n\tb\n", 2, "a tab in the indentation"},
           {"Latin-1", "a: 1\nb: caf\xE9\n", 2, "byte 0xe9 is not UTF-8"},
           {"UTF-16",
            std::string("\xFF\xFE"
                        "a\0",
                        4),
            1, "byte 0xff is not UTF-8"},
           {"surrogate", "a: \xED\xA0\x80\n", 1, "is not UTF-8"},
           {"overlong", "a: \xC0\x80\n", 1, "is not UTF-8"},
           {"cut off", "a: 1\nb: \xE2\x82", 2, "is not UTF-8"},
           {"zero byte", std::string("a: 1\nb: \0c\n", 11), 2, "control character 0x00"},
           {"end of transmission",
            "a: 1\nb: 2\n\x04"
            "c: 3\n",
            3, "control character 0x04"},
           {"unclosed", "a: [1,\nb: 2\n", 3, "not YAML"},
           {"unknown alias", "a: 1\nb: *c\n", 2, "not YAML"},
           {"recursive", "a: &x\n  b: *x\n", 2, "an alias inside the value"},
           {"exploding", ManyAliases(), 6, "more than 1000000 values"},
           {"deep flow", std::string(400, '['), 1, "nested deeper than 100 levels"},
           {"deep blocks",
            [] {
              std::string text;
              for (int i = 0; i < 150; ++i)
                absl::StrAppend(&text, std::string(static_cast<size_t>(i), ' '), "a:\n");
              return text;
            }(),
            101, "nested deeper than 100 levels"},
           {"key without name", "a: 1\n? [x]\n: 2\n", 2, "a key must be a word"},
           {"merged text", "a:\n  <<: text\n", 2, "<< takes a mapping"},
           {"documents without end", ", : 1{a[b]:? 2} ", 1, "not YAML: more values than bytes"},
           {"escaped Latin-1", "a: \"\\\xC3\xA9\"\n", 1, "unknown escape character: ?"},
           {"next line", "a: 1\nb: \"\\N\"\n", 2, "the escape \\N or \\_, which is not read"},
           {"too large", std::string(100, '\n') + std::string(kMaxYamlBytes, ' '), 101,
            "the file goes on past 8388608 bytes"},
       }) {
    const YamlFile file = ParseYaml(c.text);
    ASSERT_TRUE(file.error) << c.name;
    EXPECT_EQ(file.error->line, c.line) << c.name << ": " << file.error->message;
    EXPECT_THAT(file.error->message, HasSubstr(c.message)) << c.name;
  }
}

TEST(YamlTree, DocumentsBeforeAnErrorAreKept) {
  const YamlFile file = ParseYaml("kind: A\n---\nkind: B\nkind: C\n");
  ASSERT_TRUE(file.error);
  EXPECT_EQ(file.error->line, 4);
  ASSERT_EQ(file.documents.size(), 1U);
  EXPECT_EQ(file.documents[0].Get("kind").Text(), "A");
}

TEST(YamlTree, EmptyDocumentsAreNone) {
  EXPECT_TRUE(ParseYaml("").documents.empty());
  EXPECT_TRUE(ParseYaml("# nothing\n---\n---\n...\n").documents.empty());
  EXPECT_FALSE(ParseYaml("---\n---\n").error);
}

TEST(YamlTree, WhatIsEmittedReadsBackTheSame) {
  const std::string text =
      "name: \"yes\"\n"
      "count: 8\n"
      "empty: {}\n"
      "none: []\n"
      "colon: \"a: b\"\n"
      "script: |\n"
      "  torchrun \\\n"
      "\n"
      "    train.py\n"
      "list:\n"
      "  - key: a\n"
      "    values:\n"
      "      - x\n"
      "      - \"1\"\n"
      "  - key: b\n";
  const YamlFile file = ParseYaml(text);
  ASSERT_FALSE(file.error);
  EXPECT_EQ(EmitYaml(file.documents[0]), text);
}

// Keys and texts that mean something else without quotes, or that no quotes can hold as they are.
TEST(YamlTree, WhatNeedsQuotesIsEmittedInQuotes) {
  const YamlFile file = ParseYaml(
      "\"a: b\": \"\\0\\r\\x1b\"\n"
      "\"\": \"...\"\n"
      "\"~\": \"Yes\"\n"
      "'null': '0xFF'\n"
      "block: |+\n  two empty lines\n\n\n"
      "inf: \".INF\"\n");
  ASSERT_FALSE(file.error) << file.error->message;
  EXPECT_EQ(EmitYaml(file.documents[0]),
            "\"a: b\": \"\\x00\\x0d\\x1b\"\n"
            "\"\": \"...\"\n"
            "\"~\": \"Yes\"\n"
            "\"null\": \"0xFF\"\n"
            "block: \"two empty lines\\n\\n\\n\"\n"
            "inf: \".INF\"\n");
}

// As `kubectl get -o json | jq -c` prints it.
TEST(YamlTree, AFileOfOneLineTakesTimeByItsSize) {
  std::string text = "[\"a\"";
  for (int i = 0; i < 100'000; ++i) text += ",\"a b\"";
  timespec begin{};
  timespec end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  EXPECT_EQ(ParseYaml(text + "]").documents.at(0).Items().size(), 100'001U);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  EXPECT_LT(end.tv_sec - begin.tv_sec, 10);
}

TEST(YamlTree, AnErrorIsShortHoweverLongTheKeyIs) {
  const std::string key(5'000, 'k');
  const YamlFile file = ParseYaml("? " + key + "\n: 1\n? " + key + "\n: 2\n");
  ASSERT_TRUE(file.error);
  EXPECT_LT(file.error->message.size(), 1'100U);
}

}  // namespace
}  // namespace muster::yaml
