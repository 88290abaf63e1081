// What all lines of a log begin with that isn't any of the forms that line_head knows.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

// Learns from the first lines of a log what whoever collected it, or passed it on, put before each:
// a time, names in brackets, before a colon or a bar, or as a path. Programs begin their own
// records in such ways, too, but not the lines of a traceback; a prefix that says a level is taken
// for one only once such a line stands behind it.
class LinePrefix {
 public:
  static constexpr size_t kLines = 48;

  // Takes a line; the prefix is known after kLines of them, or once it is asked for.
  void Learn(std::string_view line);
  bool IsLearned() const { return is_learned_; }
  void Settle();

  // The length of the prefix that `line` begins with, 0 if it has none; `source` is what of it is
  // no time.
  size_t LengthIn(std::string_view line, std::string* source);

 private:
  std::vector<std::string> lines_;
  bool is_learned_ = false;
  std::string shape_;                         // a letter for each piece; empty: there is none
  std::vector<std::set<std::string>> words_;  // that stand in each piece; empty: any
  bool is_proven_ = true;
  int proofs_ = 0;     // lines that show it
  size_t blanks_ = 0;  // before all lines
};

}  // namespace muster::worker
