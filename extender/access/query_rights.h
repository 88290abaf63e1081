// Which right a query takes: that to PodGroups, which are the gangs in the API server's own words,
// in the namespace that is asked about. What tells of gangs of all namespaces, as queues and nodes
// do, takes it in all of them: nothing is left out for those who have it in some.
#pragma once

#include <string>

#include "extender/access/reviews.h"

namespace muster::extender {

Wanted ToGetGang(std::string name_space, std::string name);
// Without a namespace, of all.
Wanted ToListGangs(std::string name_space = "");
// Without a name, all of the namespace.
Wanted ToWatchGangs(std::string name_space = "", std::string name = "");

}  // namespace muster::extender
