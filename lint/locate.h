// Where in a manifest stands what a reason speaks of.
#pragma once

#include <string>

#include "lint/gangs.h"
#include "lint/judge.h"

namespace muster::lint {

struct Place {
  std::string file;
  int line = 0;
};

// The line of the field, label or resource that the sentence names; else that of the queue's label,
// of the PodGroup, or of the pods.
Place PlaceOf(const Judgement& judgement, const Workload& workload, const LintGang* gang,
              const Manifests& manifests);
Place PlaceOf(const QueueFault& fault);

}  // namespace muster::lint
