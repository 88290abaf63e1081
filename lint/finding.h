// What lint finds, and the rules that it can find.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::lint {

// kError: the job can't start, or the API server refuses or drops what is written. kWarning: it can
// start, but may waste nodes, wait for ever, or lose its nodes.
enum class Severity { kWarning, kError };

struct RuleInfo {
  std::string_view id;  // stable
  Severity severity = Severity::kError;
  std::string_view what;  // one sentence
};

// By id. README.md lists the same with their reasons.
const std::vector<RuleInfo>& Rules();

struct Finding {
  std::string file;
  int line = 0;
  std::string_view rule;
  Severity severity = Severity::kError;
  std::string message;  // one sentence, with the numbers
  std::string fix;
  std::string yaml;  // what to write instead; empty if that can't be told mechanically
};

class Findings {
 public:
  // `rule` must be one of Rules().
  void Add(std::string_view rule, const std::string& file, int line, std::string_view message,
           std::string_view fix, std::string yaml = "");
  // The same as a warning: what the rule speaks of is likely, but can't be known.
  void AddWarning(std::string_view rule, const std::string& file, int line,
                  std::string_view message, std::string_view fix, std::string yaml = "");
  // One that says more than that something can't be used. Without a file lines say nothing.
  bool HasErrorAt(const std::string& file, int line) const;
  // By file as they were added first, then by line; equal ones once, and of one line none that only
  // says that something can't be used beside one that says what.
  std::vector<Finding> Take();

 private:
  std::vector<Finding> findings_;
};

std::string_view SeverityName(Severity severity);  // "warning", "error"

}  // namespace muster::lint
