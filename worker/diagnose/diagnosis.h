// Explains saved logs: workers' output, NCCL's and libfabric's, kernel logs, and what kubectl
// describes.
//
//   Diagnosis diagnosis;
//   RETURN_IF_ERROR(diagnosis.ReadFile("train-0.log"));
//   RETURN_IF_ERROR(diagnosis.ReadFile("train-1.log"));
//   const Explanation explanation = diagnosis.Explain();
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "worker/diagnose/log_reader.h"
#include "worker/diagnose/ranking.h"

namespace muster::worker {

// Not safe for use by several threads at once.
class Diagnosis {
 public:
  // Reads a log of any size in bounded memory; "-" is standard input. Bytes may be anything. An
  // error names the file; what was read before it counts.
  absl::Status ReadFile(const std::string& path);

  // The same of a log in memory.
  void ReadText(std::string name, std::string_view text);

  // Puts together what was read; call it once.
  Explanation Explain();

 private:
  std::vector<LogFacts> logs_;
};

}  // namespace muster::worker
