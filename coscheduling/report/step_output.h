// What one step of the engine puts out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coscheduling/actions.h"
#include "coscheduling/gang_key.h"
#include "muster/v1/states.pb.h"

namespace muster::v1 {
class Gang;
}

namespace muster::coscheduling {

// What /filter answers for a pod. Published by value; readers never touch the engine.
struct FilterAnswer {
  enum class Kind {
    kPlanned,       // only `node` passes
    kUnresolvable,  // no node passes; the pod becomes Unschedulable, which provisioners see
    kHold,          // an error; the pod waits, invisible to provisioners
  };
  Kind kind = Kind::kHold;
  std::string node;
  std::string message;
  bool operator==(const FilterAnswer&) const = default;
};

// One decision, for the log: "gang=default/g state=READY reason=GATES_LIFTING 4 of 4 ...".
struct DecisionNote {
  GangKey gang;
  v1::GangState state;
  v1::ReasonCode reason;
  std::string message;
};

struct StepOutput {
  std::vector<NumberedAction> actions;
  // Gangs that are described otherwise than before, as Engine::Describe would now; null: gone.
  std::vector<std::pair<GangKey, std::shared_ptr<const v1::Gang>>> changed_gangs;
  bool nodes_changed = false;
  bool queues_changed = false;
  // Pods whose filter answer changed; an empty optional removes it.
  std::vector<std::pair<std::string, std::optional<FilterAnswer>>> filter_answers;
  std::vector<DecisionNote> notes;
};

}  // namespace muster::coscheduling
