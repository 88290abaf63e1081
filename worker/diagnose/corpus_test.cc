// Logs in the forms that training programs, launchers and Kubernetes write, each with the cause,
// and the rank where the log says it, that a reader of it names. Those in withheld/ weren't looked
// at when the words of causes.txt were chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "worker/diagnose/diagnosis.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

struct LabelledLog {
  std::string path;
  std::vector<std::string> causes;  // any of them is right
  std::string rank;                 // empty: any
};

std::vector<LabelledLog> LogsIn(const std::string& folder) {
  const std::string path = Concat("worker/diagnose/logs/", folder, "/");
  std::vector<LabelledLog> logs;
  std::ifstream labels(path + "labels.tsv");
  for (std::string line; std::getline(labels, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    logs.push_back({.path = Concat(path, fields[0], ".log"),
                    .causes = absl::StrSplit(fields.at(1), '|'),
                    .rank = fields.size() > 2 ? fields[2] : ""});
  }
  return logs;
}

// Says that something ended, or that an exception was raised, without why: of no help, but not
// wrong.
bool IsVague(const Cause& cause) {
  constexpr std::string_view kVague[] = {
      "process-ended",    "process-aborted",   "program-crash",       "killed",
      "restarts-used-up", "nccl-system-error", "nccl-internal-error", "nccl-misuse",
      "cuda-failure",     "python-exception"};
  return std::ranges::find(kVague, cause.name) != std::end(kVague);
}

struct Score {
  int right = 0;
  int all = 0;
  std::vector<std::string> wrong;
  std::vector<std::string> missed;
};

Score ScoreOf(const std::vector<LabelledLog>& logs) {
  Score score;
  for (const LabelledLog& log : logs) {
    ++score.all;
    Diagnosis diagnosis;
    EXPECT_TRUE(diagnosis.ReadFile(log.path).ok()) << log.path;
    const Explanation explanation = diagnosis.Explain();
    const bool told =
        !explanation.findings.empty() && explanation.findings[0].relation == Relation::kFirst;
    if (!told) {
      score.missed.push_back(log.path);
      continue;
    }
    const Observation& first = explanation.findings[0].observation;
    const Cause& cause = CauseOf(first.cause);
    const std::string rank = first.rank ? Concat(*first.rank) : "";
    if (std::ranges::find(log.causes, cause.name) != log.causes.end()) {
      const bool right = log.rank.empty() || log.rank == rank;
      score.right += right ? 1 : 0;
      if (!right) score.wrong.push_back(Concat(log.path, ": rank ", rank));
    } else if (IsVague(cause)) {
      score.missed.push_back(Concat(log.path, ": ", cause.name));
    } else {
      score.wrong.push_back(Concat(log.path, ": ", cause.name));
    }
  }
  return score;
}

std::string Listed(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) Append(&text, "\n  ", line);
  return text;
}

TEST(Corpus, LogsThatTheWordsWereChosenByAreAllRight) {
  const Score score = ScoreOf(LogsIn("known"));
  EXPECT_GE(score.all, 100);
  EXPECT_EQ(score.right, score.all) << Listed(score.wrong) << Listed(score.missed);
}

TEST(Corpus, OfLogsThatWereWithheldNineOfTenAreRightAndNoneIsWrong) {
  const Score score = ScoreOf(LogsIn("withheld"));
  EXPECT_GE(score.all, 50);
  EXPECT_GE(10 * score.right, 9 * score.all) << Listed(score.wrong) << Listed(score.missed);
  EXPECT_TRUE(score.wrong.empty()) << Listed(score.wrong);
}

TEST(Corpus, HealthyLogsRaiseNoAlarm) {
  const std::vector<LabelledLog> logs = LogsIn("healthy");
  EXPECT_GE(logs.size(), 20U);
  for (const LabelledLog& log : logs) {
    Diagnosis diagnosis;
    EXPECT_TRUE(diagnosis.ReadFile(log.path).ok()) << log.path;
    for (const Finding& finding : diagnosis.Explain().findings) {
      EXPECT_EQ(finding.relation, Relation::kWarning)
          << log.path << ": " << CauseOf(finding.observation.cause).name;
    }
  }
}

}  // namespace
}  // namespace muster::worker
