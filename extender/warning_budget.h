// What warnings may cost. Looking an object over takes up to some tens of milliseconds, and whoever
// may create pods may have it done as often as he likes, while everybody's pods wait for the same
// webhook. So a namespace has a part of the processor for it, and all of them together another;
// what comes beyond that is admitted without a look.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace muster::extender {

// Thread-safe.
class WarningBudget {
 public:
  // Who was idle may use so much at once, and from then on a share of one processor.
  struct Part {
    absl::Duration at_once;
    double share;
  };
  static constexpr Part kOfNamespace = {absl::Milliseconds(500), 0.02};
  static constexpr Part kOfAll = {absl::Seconds(1), 0.1};
  // Namespaces that are remembered, beyond which those that have least to make up for are
  // forgotten.
  static constexpr size_t kMostNamespaces = 1'024;

  // Whether an object of the namespace ("" for those of none) may be looked over.
  bool Allows(std::string_view name_space, absl::Time now);
  // What that took.
  void Charge(std::string_view name_space, absl::Duration cpu, absl::Time now);

  size_t namespaces() const;

 private:
  struct Balance {
    absl::Duration left;
    absl::Time at = absl::InfinitePast();
  };
  static absl::Duration Left(const Balance& balance, const Part& part, absl::Time now);
  static void Take(Balance* from, const Part& part, absl::Duration cpu, absl::Time now);
  void Forget(absl::Time now);

  mutable std::mutex mutex_;
  Balance all_;
  std::map<std::string, Balance, std::less<>> of_namespace_;
};

}  // namespace muster::extender
