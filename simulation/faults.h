// What goes wrong on the way between Muster and those it talks to, drawn from a scenario's
// `faults`.
//
// One thread. Equal seeds and equal questions in equal order give equal answers.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "simulation/draw.h"
#include "simulation/scenario.h"

namespace muster::simulation {

// A client gives up waiting for an answer after this; kube::Request has 30 s, and what is told
// sooner is no less late.
inline constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);

class Faults {
 public:
  // Without a specification nothing ever goes wrong. `spec` outlives this.
  Faults(const FaultSpec* spec, absl::Time start);

  // From `until` on everything is as without faults, except for what is under way.
  bool Active(absl::Time now) const { return spec_ != nullptr && now < until_; }
  bool any() const { return spec_ != nullptr; }

  // One request, from the decision to its answer.
  struct Trip {
    enum class Fate { kCarriedOut, kLost, kRefused, kUnanswered };
    Fate fate = Fate::kCarriedOut;
    absl::Duration there;
    absl::Duration back;
    int refusal = 0;  // HTTP status
  };
  // `kind` as in writes/action_requests.h.
  Trip OfWrite(std::string_view kind);

  // One event of a stream.
  struct Delivery {
    absl::Duration delay;
    bool breaks = false;  // the stream, for `delay`; then it reads everything anew
    bool repeats_older = false;
  };
  // `kind` as in the names of objects ("pod").
  Delivery OfEvent(std::string_view kind);

  struct Call {
    absl::Duration there;
    absl::Duration back;
    bool lost = false;        // it never reaches Muster
    bool unanswered = false;  // its answer never reaches kube-scheduler
    bool repeated = false;
  };
  Call OfBind();
  bool FilterFails();

 private:
  const FaultSpec* spec_;
  absl::Time until_;
  Draw writes_, watches_, calls_;
};

}  // namespace muster::simulation
