// What tests have in common that ask the oracle of tests/kueue, and replay what it said before.
#pragma once

#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::quota::testing {

// Of the environment; none if it is empty.
inline std::optional<std::string> Setting(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

inline int64_t NumberSetting(const char* name, int64_t otherwise) {
  const auto text = Setting(name);
  return text ? std::stoll(*text) : otherwise;
}

// Of a file with one record on each line, from the root of the tree. Returns how many there are.
inline int64_t ForEachRecord(const std::string& path,
                             const std::function<void(const nlohmann::json& record)>& replay) {
  std::ifstream file(path);
  int64_t count = 0;
  for (std::string line; std::getline(file, line); ++count) replay(nlohmann::json::parse(line));
  return count;
}

// Such a file is written where MUSTER_RECORD names one.
class Recorder {
 public:
  Recorder() {
    if (const auto path = Setting("MUSTER_RECORD")) file_.open(*path);
  }
  void Add(const nlohmann::json& record) {
    if (file_.is_open()) file_ << record.dump() << "\n";
  }

 private:
  std::ofstream file_;
};

// A test that is handed the path of the oracle. There is one only where MUSTER_KUEUE_ORACLE has it:
// `./run test --full` builds it.
inline bool RegisterOracleTest(const char* suite, const char* name, const char* file, int line,
                               std::function<void(const std::string& oracle)> body) {
  class OracleTest : public ::testing::Test {
   public:
    OracleTest(std::string oracle, std::function<void(const std::string&)> body)
        : oracle_(std::move(oracle)), body_(std::move(body)) {}
    void TestBody() override { body_(oracle_); }

   private:
    const std::string oracle_;
    const std::function<void(const std::string&)> body_;
  };
  const auto oracle = Setting("MUSTER_KUEUE_ORACLE");
  if (!oracle) return false;
  ::testing::RegisterTest(suite, name, nullptr, nullptr, file, line,
                          [oracle = *oracle, body = std::move(body)]() -> ::testing::Test* {
                            return new OracleTest(oracle, body);
                          });
  return true;
}

}  // namespace muster::quota::testing
