// A conversation with the oracle of tests/kueue: one case in, one answer out.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace muster::quota::testing {

class OracleProcess {
 public:
  // Starts the binary; aborts if that fails.
  explicit OracleProcess(const std::string& binary);
  ~OracleProcess();
  OracleProcess(const OracleProcess&) = delete;
  OracleProcess& operator=(const OracleProcess&) = delete;

  nlohmann::json Ask(const nlohmann::json& quota_case);

 private:
  int process_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
};

}  // namespace muster::quota::testing
