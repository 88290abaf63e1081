// The volumes among the manifests, for a judge who asks whether pods have room.
#pragma once

#include <set>
#include <string>

#include "coscheduling/engine.h"
#include "lint/manifests.h"

namespace muster::lint {

// Tells the engine of volumes, classes and claims as they are by the time that pods want them: a
// claim whose volume isn't given, and that doesn't wait for a pod, has one that all nodes reach.
// False: no claim is told. `untold`: full names of claims left out, since on which nodes somebody
// makes their volumes isn't known.
bool GiveVolumes(const Manifests& manifests, coscheduling::Engine* engine,
                 std::set<std::string>* untold);

}  // namespace muster::lint
