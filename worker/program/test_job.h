// Jobs of the program itself, on a tiny model: what the tests of it start and look at.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/test_directory.h"
#include "worker/program/test_pod.h"

namespace muster::worker {

inline std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ran {
  int exit_code = 0;
  std::string printed;
};

// Runs the program to its end.
inline Ran RunWorker(std::vector<std::string> words, const Environment& environment = {}) {
  words.insert(words.begin(), MUSTER_WORKER);
  Pod pod(words, environment);
  const int exit_code = pod.ExitCode();
  return {exit_code, pod.printed()};
}

// A folder with a text as a token file, in which each part follows from those before.
class JobDirectory : public TestDirectory {
 public:
  JobDirectory() {
    std::ofstream text(*this / "text");
    for (int i = 0; i < 600; ++i) {
      text << "gang " << i % 7 << " waits for node " << (i * 3) % 10 << ", and then all bind.\n";
    }
    text.close();
    const Ran ran = RunWorker({"convert", "--output=" + tokens(), *this / "text"});
    EXPECT_EQ(ran.exit_code, 0) << ran.printed;
  }

  std::string tokens() const { return *this / "tokens"; }

  // A run of some seconds whose loss falls fast.
  std::vector<std::string> TrainFlags() const {
    return {"train",
            "--engine=cpu",
            "--model=gpt2-tiny",
            "--layers=1",
            "--width=32",
            "--heads=2",
            "--vocabulary=257",
            "--context=32",
            "--batch=16",
            "--steps=40",
            "--warmup-steps=4",
            "--learning-rate=2e-2",
            "--report-every=1",
            "--data=" + tokens()};
  }
};

using Flags = std::vector<std::string>;

inline Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// The losses that a file of events tells, by step; where a step was done twice, the last one.
inline std::map<int64_t, double> Losses(const std::string& events) {
  std::map<int64_t, double> losses;
  std::istringstream lines(Contents(events));
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") != "step") continue;
    losses[event.at("step").get<int64_t>()] = event.at("loss").get<double>();
  }
  return losses;
}

// Where a pod of a test leaves its termination message, as the kubelet makes it.
inline std::string MakeTerminationLog(const TestDirectory& directory, const std::string& name) {
  const std::string path = directory / ("termination-" + name);
  std::ofstream(path) << "";
  return path;
}

inline nlohmann::json TerminationOf(const std::string& path) {
  return nlohmann::json::parse(Contents(path), nullptr, /*allow_exceptions=*/false);
}

inline int64_t ParentOf(int64_t process) {
  // "12 (name) S 11 ..."
  const std::string text = Contents(absl::StrCat("/proc/", process, "/stat"));
  const size_t name_end = text.rfind(')');
  int64_t parent = 0;
  if (name_end != std::string::npos && name_end + 4 < text.size()) {
    std::from_chars(text.data() + name_end + 4, text.data() + text.size(), parent);
  }
  return parent;
}

// The process of that rank among the supervisor's children; 0 if there is none.
inline pid_t RankProcessOf(pid_t supervisor, int rank) {
  const std::string variable = absl::StrCat("RANK=", rank);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int process = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &process)) continue;
    if (ParentOf(process) != supervisor) continue;
    const std::string environment = Contents(absl::StrCat("/proc/", process, "/environ"));
    const std::vector<std::string> variables = absl::StrSplit(environment, '\0');
    if (std::find(variables.begin(), variables.end(), variable) != variables.end()) return process;
  }
  return 0;
}

}  // namespace muster::worker
