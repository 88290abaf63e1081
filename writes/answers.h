// What the answer to a write tells the engine.
#pragma once

#include <functional>
#include <string_view>

#include "coscheduling/engine.h"
#include "writes/action_requests.h"

namespace muster::writes {

// To be run by the thread that owns the engine, as what a watch tells.
using Observation = std::function<void(coscheduling::Engine&)>;

// `body` is decoded at once and not kept. Empty if no object comes back, or one that can't be
// decoded: its watch tells the rest.
Observation ObservationOf(AnswerKind kind, std::string_view body);

}  // namespace muster::writes
