// Faults on purpose: what a client of the API server must survive.
//
// Rules are tried in the order in which they were added; the first that matches, still has
// occurrences left and wins its draw decides. http_front.h and direct_transport.h ask here before
// they answer, so that both forms fail in the same way.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>

#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::kube::embedded {

struct FaultRule {
  enum class Action {
    kAnswer,        // an error answer; the request has no effect
    kRefuse,        // the connection ends without an answer; no effect
    kDropAnswer,    // the request takes effect, then the connection ends without an answer
    kDelay,         // everything as usual, but later
    kCutStream,     // watches: the stream ends after `after_items` lines, without an error
    kExpireStream,  // watches: an ERROR line with 410 after `after_items` lines, then the end
  };

  // Which requests. `path` may contain '*' for any text; a watch has its path without the query.
  std::optional<Method> method;
  std::string path = "*";
  enum class Target { kAny, kRequests, kWatches };
  Target target = Target::kAny;

  Action action = Action::kAnswer;
  int status = 500;                           // kAnswer
  std::string reason;                         // kAnswer; empty: the usual one of that status
  std::string message;                        // kAnswer; empty: "injected fault"
  std::optional<absl::Duration> retry_after;  // kAnswer
  absl::Duration delay;                       // kDelay
  size_t after_items = 0;                     // kCutStream, kExpireStream

  size_t skip = 0;              // matching requests that pass first
  std::optional<size_t> count;  // how often it strikes; absent: for ever
  double probability = 1.0;     // of striking, per matching request
};

// What is to happen to one request. At most one of the first four is set.
struct FaultDecision {
  std::optional<Response> answer;
  bool refuse = false;
  bool drop_answer = false;
  absl::Duration delay;
  struct Cut {
    size_t after_items = 0;
    bool expired = false;  // with an ERROR line first
  };
  std::optional<Cut> cut;
};

// Thread-safe. Equal seeds and equal sequences of requests give equal faults.
class Faults {
 public:
  explicit Faults(uint64_t seed = 1);

  // Returns the rule's number, for Remove and Struck.
  int Add(FaultRule rule);
  void Remove(int rule);
  void Clear();
  // How often a rule has struck so far; 0 for one that is unknown.
  size_t Struck(int rule) const;

  FaultDecision Decide(const Request& request, bool is_watch);

 private:
  struct Entry {
    FaultRule rule;
    size_t seen = 0;
    size_t struck = 0;
  };
  bool Strikes(Entry& entry, const Request& request, bool is_watch);

  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::map<int, Entry> rules_;
  int next_rule_ = 1;
};

// The ERROR line of a watch that must start anew.
std::string ExpiredLine();

// True if `text` matches `pattern`, in which '*' stands for any text.
bool MatchesPattern(std::string_view pattern, std::string_view text);

}  // namespace muster::kube::embedded
