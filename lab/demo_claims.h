// What the demo says has happened, each sentence checked on the API server's objects.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lab/demo_observer.h"
#include "lab/demo_view.h"

namespace muster::kube::embedded {
class ApiServer;
}

namespace muster::lab {

struct DemoClaim {
  bool holds = false;
  std::string text;
};

// Of a job whose four nodes came: nobody was bound before the last node was complete, and then all
// were at once (within 1 s of each other, within 2 s of that node); early nodes were held, and no
// hold is left.
std::vector<DemoClaim> BoundAtOnce(kube::embedded::ApiServer& server, const DemoObserver& observer,
                                   const std::string& job, const std::vector<NodeProgress>& nodes);

// Of a job whose fourth node didn't come: the other three were complete and held, and after the
// deadline nobody is bound, every gate is on, no pod asks for a node, no hold is left.
// `released_after`: from the deadline until that was seen.
std::vector<DemoClaim> DeadlineReleased(kube::embedded::ApiServer& server,
                                        const DemoObserver& observer, const std::string& job,
                                        const std::vector<NodeProgress>& nodes,
                                        absl::Duration released_after);

// Pods of the job that are gated, don't ask for a node (PodScheduled's reason is SchedulingGated),
// and aren't bound.
int PodsAtRest(kube::embedded::ApiServer& server, const std::string& job);
// Of these nodes, how many a gang holds, by the annotations on the Nodes.
int HeldNodes(kube::embedded::ApiServer& server, const std::vector<NodeProgress>& nodes);

}  // namespace muster::lab
