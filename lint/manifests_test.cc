// The manifests in tests/lint: each file in bad/ says in its first comment lines which rules find
// what at which lines, "# expect: RULE LINE", and lint must find exactly that; in those of good/
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lint/lint.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

namespace fs = std::filesystem;

struct ManifestFile {
  std::string name;
  SourceText source;
  std::vector<std::string> expected;  // "RULE LINE"
};

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<ManifestFile> ReadFolder(const fs::path& folder) {
  constexpr std::string_view kExpect = "# expect: ";
  std::vector<ManifestFile> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    ManifestFile& file = files.emplace_back();
    file.name = entry.path().filename().string();
    file.source = {file.name, ReadAll(entry.path())};
    for (const std::string_view line : Split(file.source.text, "\n")) {
      if (!line.starts_with('#')) break;
      if (line.starts_with(kExpect)) file.expected.emplace_back(line.substr(kExpect.size()));
    }
    std::ranges::sort(file.expected);
  }
  std::ranges::sort(files, {}, &ManifestFile::name);
  return files;
}

const std::vector<ManifestFile>& BadFiles() {
  static const auto* files = new std::vector(ReadFolder("tests/lint/bad"));
  return *files;
}
const std::vector<ManifestFile>& GoodFiles() {
  static const auto* files = new std::vector(ReadFolder("tests/lint/good"));
  return *files;
}

LintResult LintAlone(const ManifestFile& file) {
  return Lint({file.source}, cluster::InstanceTypes::BuiltIn());
}

std::string Describe(const LintResult& result) {
  std::string text;
  for (const Finding& finding : result.findings) {
    Append(&text, finding.line, ": ", finding.message, " [", finding.rule, "]\n");
  }
  for (const FileError& error : result.errors) {
    Append(&text, error.line, ": cannot be read: ", error.message, "\n");
  }
  return text;
}

TEST(LintManifests, EveryMistakeIsFoundAtItsLine) {
  ASSERT_GE(BadFiles().size(), 60U);
  for (const ManifestFile& file : BadFiles()) {
    ASSERT_FALSE(file.expected.empty()) << file.name;
    const LintResult result = LintAlone(file);
    std::vector<std::string> found;
    for (const Finding& finding : result.findings) {
      found.push_back(Concat(finding.rule, " ", finding.line));
    }
    std::ranges::sort(found);
    EXPECT_EQ(found, file.expected) << file.name << "\n" << Describe(result);
    EXPECT_TRUE(result.errors.empty()) << file.name << "\n" << Describe(result);
    EXPECT_EQ(result.ExitCode(), 1) << file.name;
  }
}

TEST(LintManifests, NothingIsFoundInCorrectOnes) {
  ASSERT_GE(GoodFiles().size(), 30U);
  for (const ManifestFile& file : GoodFiles()) {
    const LintResult result = LintAlone(file);
    EXPECT_EQ(result.ExitCode(), 0) << file.name << "\n" << Describe(result);
  }
}

// Labelled by what users wrote, not by the rules: "# mistake: LINE|LINE WORD ..." has the lines of
// which one must be named, and words of the sentence with its fix.
bool IsFound(const ManifestFile& file, std::string_view label) {
  const std::vector<std::string_view> words = SplitWords(label, " ");
  const std::vector<std::string_view> lines = Split(words.front(), "|");
  const LintResult result = LintAlone(file);
  const auto matches = [&](int line, std::string text) {
    const auto lower = [](std::string all) {
      std::ranges::transform(all, all.begin(), [](unsigned char c) { return std::tolower(c); });
      return all;
    };
    text = lower(std::move(text));
    return std::ranges::find(lines, Concat(line)) != lines.end() &&
           std::all_of(words.begin() + 1, words.end(), [&](std::string_view word) {
             return text.find(lower(std::string(word))) != std::string::npos;
           });
  };
  return std::ranges::any_of(result.findings,
                             [&](const Finding& each) {
                               return matches(each.line,
                                              Concat(each.message, " ", each.fix, " ", each.yaml));
                             }) ||
         std::ranges::any_of(result.errors, [&](const FileError& each) {
           return matches(each.line, each.message);
         });
}

// The names of those that aren't found.
std::vector<std::string> Missed(const fs::path& folder, size_t* all) {
  constexpr std::string_view kMistake = "# mistake: ";
  std::vector<std::string> missed;
  for (const ManifestFile& file : ReadFolder(folder)) {
    for (const std::string_view line : Split(file.source.text, "\n")) {
      if (!line.starts_with(kMistake)) continue;
      ++*all;
      if (!IsFound(file, line.substr(kMistake.size()))) missed.push_back(file.name);
    }
  }
  return missed;
}

TEST(LintManifests, MistakesThatUsersMakeAreFound) {
  size_t all = 0;
  EXPECT_THAT(Missed("tests/lint/mistakes", &all), ::testing::IsEmpty());
  EXPECT_GE(all, 60U);
}

TEST(LintManifests, FourFifthsOfTheWithheldMistakesAreFound) {
  size_t all = 0;
  const std::vector<std::string> missed = Missed("tests/lint/withheld", &all);
  EXPECT_GE(all, 50U);
  EXPECT_LE(missed.size() * 5, all) << ::testing::PrintToString(missed);
}

// Two different manifests for every rule, at least.
TEST(LintManifests, EveryRuleHasItsManifests) {
  std::map<std::string, std::set<std::string>> files_of;
  for (const ManifestFile& file : BadFiles()) {
    for (const std::string& expected : file.expected) {
      files_of[std::string(SplitOnce(expected, ' ').first)].insert(file.name);
    }
  }
  for (const char* folder : {"tests/lint/mistakes", "tests/lint/withheld"}) {
    for (const ManifestFile& file : ReadFolder(folder)) {
      for (const Finding& finding : LintAlone(file).findings) {
        files_of[std::string(finding.rule)].insert(file.name);
      }
    }
  }
  for (const RuleInfo& rule : Rules()) {
    EXPECT_GE(files_of[std::string(rule.id)].size(), 2U) << rule.id;
  }
  EXPECT_EQ(files_of.size(), Rules().size());
}

TEST(LintManifests, EveryFindingHasANumberedSentenceAndAFix) {
  for (const ManifestFile& file : BadFiles()) {
    for (const Finding& finding : LintAlone(file).findings) {
      EXPECT_GT(finding.message.size(), 30U) << file.name;
      EXPECT_FALSE(finding.fix.empty()) << file.name << ": " << finding.message;
      EXPECT_EQ(finding.message.find('\n'), std::string::npos) << file.name;
      EXPECT_EQ(finding.file, file.name);
      if (finding.yaml.empty()) continue;
      // What is offered instead is YAML itself.
      const yaml::YamlFile yaml = yaml::ParseYaml(finding.yaml);
      EXPECT_FALSE(yaml.error) << file.name << "\n" << finding.yaml;
    }
  }
}

TEST(LintManifests, TheProjectsOwnExamplesAreClean) {
  std::vector<SourceText> sources;
  for (const char* path :
       {"deploy/examples/nodepools.yaml", "deploy/examples/queues.yaml",
        "deploy/examples/plain-pods.yaml", "deploy/examples/pytorchjob/base/podgroup.yaml",
        "deploy/examples/pytorchjob/base/pytorch-dist-job.yaml"}) {
    sources.push_back({path, ReadAll(path)});
    ASSERT_FALSE(sources.back().text.empty()) << path;
  }
  const LintResult result = Lint(sources, cluster::InstanceTypes::BuiltIn());
  EXPECT_EQ(result.ExitCode(), 0) << Describe(result);
}

// Each is a job of its own; they have the same name.
TEST(LintManifests, TheTrainingWorkersExamplesAreClean) {
  for (const char* path :
       {"deploy/examples/worker/jobset.yaml", "deploy/examples/worker/plain-pods.yaml",
        "deploy/examples/worker/pytorchjob.yaml", "deploy/examples/worker/trainjob.yaml",
        "deploy/examples/launch/python.yaml", "deploy/examples/launch/torchrun.yaml",
        "deploy/examples/launch/accelerate.yaml", "deploy/examples/launch/deepspeed.yaml"}) {
    const std::vector<SourceText> sources = {
        {path, ReadAll(path)},
        {"deploy/examples/nodepools.yaml", ReadAll("deploy/examples/nodepools.yaml")},
        {"deploy/examples/queues.yaml", ReadAll("deploy/examples/queues.yaml")},
        {"deploy/base/muster-config.yaml", ReadAll("deploy/base/muster-config.yaml")}};
    ASSERT_FALSE(sources[0].text.empty()) << path;
    const LintResult result = Lint(sources, cluster::InstanceTypes::BuiltIn());
    EXPECT_EQ(result.ExitCode(), 0) << path << "\n" << Describe(result);
  }
}

// Files that were changed at random never crash it, and what it says has a place in the file.
TEST(LintManifests, ChangedFilesAreReadOrRefused) {
  std::vector<const ManifestFile*> files;
  for (const ManifestFile& file : BadFiles()) files.push_back(&file);
  for (const ManifestFile& file : GoodFiles()) files.push_back(&file);
#ifdef MUSTER_SANITIZED
  constexpr int kRounds = 600;
#else
  constexpr int kRounds = 3000;
#endif
  constexpr std::string_view kPieces[] = {
      "\t",        "\n",          ": ",   "- ",   "&a ",  "*a",
      "{",         "}",           "[",    "]",    "|",    ">",
      "\"",        "'",           "#",    "?",    "!",    "---\n",
      "<<: *a",    "%YAML 9.9\n", "\x80", "\xFF", "-1",   "99999999999999999999",
      "null",      "1e400",       "0x",   "~",    "\r\n", "\xEF\xBB\xBF",
      "!!binary ", "    ",        "@",    "`"};
  int unreadable = 0;
  int findings = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::mt19937 random(static_cast<unsigned>(round));
    const auto pick = [&](size_t below) {
      return std::uniform_int_distribution<size_t>(0, below - 1)(random);
    };
    std::string text = files[pick(files.size())]->source.text;
    for (size_t changes = 1 + pick(4); changes > 0; --changes) {
      const size_t at = pick(text.size() + 1);
      switch (pick(5)) {
        case 0:
          text.insert(at, kPieces[pick(std::size(kPieces))]);
          break;
        case 1:
          text.erase(at, 1 + pick(20));
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(pick(256));
          break;
        case 3:  // one of its pieces somewhere else
          text.insert(at, text.substr(pick(text.size() + 1), pick(200)));
          break;
        default:
          text.resize(at);
          break;
      }
      if (text.empty()) text = "a";
    }
    const auto lines = static_cast<int>(std::ranges::count(text, '\n')) + 1;
    const LintResult result = Lint({{"changed", text}}, cluster::InstanceTypes::BuiltIn());
    for (const FileError& error : result.errors) {
      EXPECT_GE(error.line, 1) << round << ": " << error.message;
      EXPECT_LE(error.line, lines) << round << ": " << error.message;
    }
    for (const Finding& finding : result.findings) {
      EXPECT_GE(finding.line, 1) << round << ": " << finding.message;
      EXPECT_LE(finding.line, lines) << round << ": " << finding.message;
    }
    unreadable += result.errors.empty() ? 0 : 1;
    findings += result.findings.empty() ? 0 : 1;
  }
  // Both ways were taken often.
  EXPECT_GT(unreadable, kRounds / 10);
  EXPECT_GT(findings, kRounds / 10);
}

}  // namespace
}  // namespace muster::lint
