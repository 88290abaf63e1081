// Members that a gang has lost since it was last whole.
#pragma once

#include <map>
#include <string>

#include "kube/objects/pod.h"

namespace muster::coscheduling {

struct Loss {
  std::string text;      // "job-2 on node-a, which isn't Ready since 10:00:40Z: ..."
  bool by_node = false;  // its node was lost, not only the pod
  // The gang has been whole since; its pod is still there.
  bool over = false;
};

// By the member's UID.
using Losses = std::map<std::string, Loss>;

// What became of a member that ended or is being deleted.
std::string EndText(const kube::Pod& pod);

// The first few of those that aren't over, one after the other; "" if there is none.
std::string LossesText(const Losses& losses);

}  // namespace muster::coscheduling
