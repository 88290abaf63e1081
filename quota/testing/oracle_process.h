// A conversation with the oracle of tests/kueue: one line of JSON in, one out.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace muster::quota::testing {

class OracleProcess {
 public:
  // Starts the binary, with one argument if it isn't empty; aborts if that fails.
  explicit OracleProcess(const std::string& binary, const std::string& argument = "");
  ~OracleProcess();
  OracleProcess(const OracleProcess&) = delete;
  OracleProcess& operator=(const OracleProcess&) = delete;

  nlohmann::json Ask(const nlohmann::json& question);

 private:
  int process_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
};

}  // namespace muster::quota::testing
