// Who stands before whom among those who wait, and whose nodes are kept from whom: the scheduler's
// rule (coscheduling/placement/README.md), read from what it tells and what pods say.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/pod.h"
#include "muster/v1/admission.pb.h"

namespace muster::simulation {

absl::Time TimeOf(const google::protobuf::Timestamp& time);

// Some member of it is bound or has succeeded.
bool Stands(const v1::Gang& gang);

// The higher priority; of one priority those first of whom members stand that need the rest, those
// last that have all they need; then the older one.
bool ComesBefore(const v1::Gang& one, const v1::Gang& other);

// Nodes are kept for `holder`, this one among them, and `gang`, which comes later, might stand
// there when all of them are free, if it starts now. `unbound`: its pods.
bool IsKeptFrom(const v1::Gang& gang, const std::vector<const kube::Pod*>& unbound,
                const v1::Gang& holder, const std::string& node, absl::Time now);

}  // namespace muster::simulation
