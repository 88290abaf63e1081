// What a GPU does fastest, as timed on it, kept in a file for the next start; and how ranks with
// the same kind of GPU come to the same choices.
//
// Two timings never agree, and plans that differ add up in different orders. If each rank went by
// its own timings, a training's bits would depend on them, and a training that goes on with what
// one of the ranks left in the file would have others than before.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"

namespace muster::worker {

struct TimedPlan {
  float milliseconds = 0;
  std::array<uint64_t, 8> algorithm = {};  // whatever the library that runs it wants to know

  bool operator==(const TimedPlan&) const = default;
};

// Keys have no spaces. Used by one thread; processes may share the file, each of which adds to what
// is there. A file that can't be read or written costs the next start some seconds and nothing
// else.
class PlanCache {
 public:
  // Reads the file, of which lines that make no sense are passed over. An empty path: none.
  explicit PlanCache(std::string path);

  // Null if there is none.
  const TimedPlan* Find(std::string_view key);
  void Keep(std::string_view key, const TimedPlan& plan);

  // What was found or kept so far, for Adopt.
  std::string Used() const;
  // Keeps these, whatever was kept for their keys.
  void Adopt(std::string_view used);

 private:
  struct Entry {
    TimedPlan plan;
    bool used = false;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  static void Read(std::istream& lines, Entries& entries);
  void Write() const;

  const std::string path_;
  Entries entries_;
};

// A collective: `make` finds or keeps plans in `cache`, on the first rank of each `kind` of GPU
// before it does so on the others, who have what the first one used by then. What `make` returns on
// any rank is everyone's, as AgreeOnResult has it.
absl::Status MakePlansAlike(Communicator& communicator, std::string_view kind, PlanCache& cache,
                            absl::FunctionRef<absl::Status()> make, absl::Duration timeout);

}  // namespace muster::worker
