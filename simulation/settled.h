// What must be so once nothing goes wrong any more: everything has come to rest, for a reason that
// is true.
#pragma once

#include "absl/status/status.h"

namespace muster::coscheduling {
class Engine;
}

namespace muster::kube::embedded {
class ApiServer;
}

namespace muster::simulation {

// OK, or FailedPrecondition with the first thing that isn't so:
// - queries show no gang, member or node that the API server doesn't have, and every member that it
//   has;
// - every gang is whole, over, infeasible, backs off until a time to come, or waits; none is bound
//   in part, unless its minMember was edited;
// - a reason is true: a gang that is short of capacity wouldn't fit, one that misses members has
//   too few, one that waits for quota would exceed what its flavors have;
// - nothing is left of what nobody needs: holds, requests for nodes, marks of restarts.
//
// It sees what the API server has, and what queries show; it plans by itself and proves that a gang
// fits only by a place for each member, so it never calls a true reason untrue. A moment in which
// one thing follows the other isn't at rest: ask again for longer than room may be kept for others.
absl::Status CheckSettled(kube::embedded::ApiServer& server, const coscheduling::Engine& engine);

}  // namespace muster::simulation
