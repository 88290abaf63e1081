// Logs in the forms that training programs, launchers and Kubernetes write, each with the cause,
// and the rank where the log says it, that a reader of it names. Those in withheld/ weren't looked
// at when the words of causes.txt were chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "worker/diagnose/diagnosis.h"
#include "worker/diagnose/kubernetes_line.h"
#include "worker/diagnose/line_head.h"
#include "worker/diagnose/log_time.h"
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

// The same logs, as others would have collected them.

using LogText = std::vector<std::string>;

LogText LinesOf(const std::string& path) {
  LogText lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Which lines are of what kubectl tells of objects.
std::vector<bool> OfKubectl(const LogText& lines) {
  std::vector<bool> of_kubectl;
  bool described = false;
  for (const std::string& line : lines) {
    const std::string_view first = std::string_view(line).substr(0, line.find(' '));
    const bool begins = line.starts_with("Name:") || line.starts_with("LAST SEEN ") ||
                        line.starts_with("Events:") || line.starts_with("NAMESPACE ");
    const bool goes_on = line.empty() || line[0] == ' ' || first.ends_with(':') || IsEvent(line);
    described = begins || (described && goes_on && !BeginsPart(line));
    of_kubectl.push_back(described || IsEvent(line) || IsListedPod(line));
  }
  return of_kubectl;
}

// With the lines that are marked before all others, or after them; empty if that says nothing new.
LogText Parted(const LogText& lines, const std::vector<bool>& marked, bool first) {
  LogText before;
  LogText after;
  for (size_t i = 0; i < lines.size(); ++i) {
    (marked[i] == first ? before : after).push_back(lines[i]);
  }
  if (before.empty() || after.empty()) return {};
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

LogText KubectlFirst(const LogText& lines) { return Parted(lines, OfKubectl(lines), true); }
LogText KubectlLast(const LogText& lines) { return Parted(lines, OfKubectl(lines), false); }

// The parts of a text that was put together from several places, the last one first.
LogText PartsTurned(const LogText& lines) {
  LogText turned;
  size_t end = lines.size();
  for (size_t i = lines.size(); i-- > 0;) {
    if (i > 0 && !BeginsPart(lines[i])) continue;
    if (i == 0 && end < lines.size() && !BeginsPart(lines[0])) turned.emplace_back("$ cat log");
    turned.insert(turned.end(), lines.begin() + static_cast<std::ptrdiff_t>(i),
                  lines.begin() + static_cast<std::ptrdiff_t>(end));
    end = i;
  }
  return turned;
}

// Each rank's lines together, in the order of the ranks or the other way round, as from files of
// their own; what is nobody's comes last, as a launcher's does.
LogText ByRank(const LogText& lines, bool down) {
  std::map<std::string, LogText> ranks;
  LogText rest;
  for (const std::string& line : lines) {
    const LineHead head = HeadOf(line);
    if (line.starts_with("[rank") && head.rank) {
      ranks[fmt::format("{:08}", *head.rank)].push_back(line);
    } else {
      rest.push_back(line);
    }
  }
  if (ranks.size() < 2) return {};
  LogText all;
  for (const auto& [rank, own] : ranks) {
    all.insert(down ? all.begin() : all.end(), own.begin(), own.end());
  }
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

LogText RanksUp(const LogText& lines) { return ByRank(lines, false); }
LogText RanksDown(const LogText& lines) { return ByRank(lines, true); }

// Whether all lines may come from one container.
bool IsOfOneContainer(const LogText& lines) {
  return std::ranges::none_of(OfKubectl(lines), std::identity()) &&
         std::ranges::none_of(lines, BeginsPart) && !lines.empty() && lines[0][0] != '{';
}

LogText Each(const LogText& lines,
             const std::function<std::string(size_t, const std::string&)>& make) {
  LogText made;
  for (size_t i = 0; i < lines.size(); ++i) made.push_back(make(i, lines[i]));
  return made;
}

LogText KubectlPrefixed(const LogText& lines) {
  if (!IsOfOneContainer(lines)) return {};
  return Each(lines, [](size_t, const std::string& line) {
    return "[pod/train-7f9c-x7k2p/pytorch] " + line;
  });
}

LogText SternPrefixed(const LogText& lines) {
  if (!IsOfOneContainer(lines)) return {};
  return Each(lines,
              [](size_t, const std::string& line) { return "train-7f9c-x7k2p pytorch " + line; });
}

LogText Collected(const LogText& lines) {
  if (!IsOfOneContainer(lines)) return {};
  return Each(lines, [](size_t, const std::string& line) {
    const nlohmann::json record = {{"message", line},
                                   {"kubernetes", {{"pod_name", "train-7f9c-x7k2p"}}}};
    return record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
}

// A hundred lines a second, where the lines say no time of their own.
LogText Stamped(const LogText& lines) {
  const auto timed = [](const std::string& line) { return TimeOf(line).has_value(); };
  if (!IsOfOneContainer(lines) || std::ranges::any_of(lines, timed)) return {};
  return Each(lines, [](size_t i, const std::string& line) {
    return fmt::format("2026-06-01T{:02}:{:02}:{:02}.{:02}Z stderr F {}", i / 360'000,
                       i / 6000 % 60, i / 100 % 60, i % 100, line);
  });
}

// As supervisors, launchers of jobs and collectors that nobody knew before write it.
LogText WithPrefix(const LogText& lines, std::string_view prefix) {
  if (!IsOfOneContainer(lines)) return {};
  return Each(lines, [&](size_t, const std::string& line) { return Concat(prefix, line); });
}

LogText InBrackets(const LogText& lines) { return WithPrefix(lines, "[trainer] "); }
LogText AfterColon(const LogText& lines) { return WithPrefix(lines, "stderr: "); }
LogText AfterPath(const LogText& lines) { return WithPrefix(lines, "trainer/0 "); }
LogText BehindBar(const LogText& lines) { return WithPrefix(lines, "trainer    | "); }

// With a time, where the lines say none of their own.
LogText Timed(const LogText& lines, std::string_view begin, std::string_view end) {
  const auto timed = [](const std::string& line) { return TimeOf(line).has_value(); };
  if (!IsOfOneContainer(lines) || std::ranges::any_of(lines, timed)) return {};
  return Each(lines, [&](size_t i, const std::string& line) {
    return fmt::format("{}{:02}:{:02}:{:02}{}{}", begin, i / 3600 % 24, i / 60 % 60, i % 60, end,
                       line);
  });
}

LogText Supervised(const LogText& lines) { return Timed(lines, "2026-06-01 ", " trainer | "); }
LogText OfJournal(const LogText& lines) { return Timed(lines, "Jun 01 ", " gpu-7 train[88]: "); }
LogText AfterTime(const LogText& lines) { return Timed(lines, "[2026-06-01 ", "] "); }
LogText OfTask(const LogText& lines) { return Timed(lines, "2026-06-01 ", " [17/train/23] "); }

// Without the times that kubectl writes first.
LogText Unstamped(const LogText& lines) {
  const auto stamped = [](const std::string& line) {
    return line.size() > 30 && line[4] == '-' && line[10] == 'T' && line.find("Z ") < 31;
  };
  if (!std::ranges::all_of(lines, stamped)) return {};
  return Each(lines,
              [](size_t, const std::string& line) { return line.substr(line.find("Z ") + 2); });
}

struct Answer {
  std::string cause = "none";
  std::string rank = {};
  bool is_of_one = true;  // no other rank tells the same
};

Answer AnswerTo(const LogText& lines) {
  Diagnosis diagnosis;
  diagnosis.ReadText("log", absl::StrJoin(lines, "\n"));
  const std::vector<Finding> findings = diagnosis.Explain().findings;
  if (findings.empty() || findings[0].relation != Relation::kFirst) return {};
  const Observation& first = findings[0].observation;
  const auto same = [&](const Finding& finding) {
    return finding.observation.cause == first.cause;
  };
  return {.cause = std::string(CauseOf(first.cause).name),
          .rank = first.rank ? Concat(*first.rank) : "",
          .is_of_one = std::ranges::count_if(findings, same) == 1};
}

struct Variant {
  const char* name;
  LogText (*make)(const LogText& lines);
  bool reorders;  // then of several ranks that tell the same any may be the first
  // Of a hundred, those that may change: whose lines' order is all that tells what came first.
  int may_change;
};

TEST(Corpus, HowALogWasCollectedHardlyChangesTheAnswer) {
  constexpr Variant kVariants[] = {
      {"kubectl's part first", KubectlFirst, true, 2},
      {"kubectl's part last", KubectlLast, true, 0},
      {"parts turned", PartsTurned, true, 2},
      {"ranks up", RanksUp, true, 4},
      {"ranks down", RanksDown, true, 6},
      {"kubectl's prefix", KubectlPrefixed, false, 1},
      {"stern's prefix", SternPrefixed, false, 1},
      {"collected", Collected, false, 1},
      {"stamped", Stamped, false, 1},
      {"unstamped", Unstamped, false, 0},
      {"in brackets", InBrackets, false, 3},
      {"after a colon", AfterColon, false, 3},
      {"after a path", AfterPath, false, 3},
      {"behind a bar", BehindBar, false, 1},
      {"supervised", Supervised, false, 2},
      {"of the journal", OfJournal, false, 2},
      {"after a time", AfterTime, false, 2},
      {"of a task", OfTask, false, 2},
  };
  std::map<std::string, int64_t> made;
  std::map<std::string, std::vector<std::string>> changed;
  for (const char* folder : {"known", "healthy"}) {
    for (const LabelledLog& log : LogsIn(folder)) {
      const LogText lines = LinesOf(log.path);
      const Answer plain = AnswerTo(lines);
      for (const Variant& variant : kVariants) {
        const LogText varied = variant.make(lines);
        if (varied.empty() || varied == lines) continue;
        ++made[variant.name];
        const Answer answer = AnswerTo(varied);
        const bool any_rank = variant.reorders && !plain.is_of_one;
        if (answer.cause == plain.cause && (any_rank || answer.rank == plain.rank)) continue;
        changed[variant.name].push_back(fmt::format("{}: {} {} -> {} {}", log.path, plain.cause,
                                                    plain.rank, answer.cause, answer.rank));
      }
    }
  }
  for (const Variant& variant : kVariants) {
    const auto changes = static_cast<int64_t>(changed[variant.name].size());
    EXPECT_GE(made[variant.name], 1) << variant.name;
    EXPECT_LE(100 * changes, variant.may_change * made[variant.name])
        << variant.name << ", " << made[variant.name] << ":" << Listed(changed[variant.name]);
  }
}

}  // namespace
}  // namespace muster::worker
