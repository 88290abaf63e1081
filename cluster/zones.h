// Zones in which nodes can be made for members that must be in one, and their order.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "cluster/pool_capacity.h"
#include "cluster/snapshot.h"
#include "kube/objects/topology_asked.h"

namespace muster::cluster {

struct Zone {
  std::string name;
  int64_t room = 0;       // for members, there or coming
  int64_t makeable = 0;   // for so many more NodePools can make nodes there within their limits
  int64_t needed = 0;     // by the gang
  bool suffices = false;  // both together
  absl::Time failed_until = absl::InfinitePast();  // for those who ask
  absl::Time refused_at = absl::InfinitePast();    // to anybody, a moment ago
};

// "" if the node is unknown or has no zone.
std::string ZoneOf(const NodeInfo* info);

// Those that the pools' requirements name. A pool that names none makes nodes where its subnets
// are, as the nodes that are there tell.
std::set<std::string> ZonesOf(const NodePools& pools, const std::vector<const NodeInfo*>& nodes);

// Best first: that haven't failed, that suffice, that nobody was refused in, that have most room.
void Order(std::vector<Zone>* zones);

// It suffices and hasn't failed: it may be tried.
bool IsOpen(const Zone& zone);

// What is in the way of trying it, in numbers; "" if nothing is.
std::string LackOf(const Zone& zone);

// Where nodes can be made for a gang: in a zone, or of a flavor of its queue.
struct NodeSource {
  std::string zone = {};     // "": any, or chosen when its turn comes
  std::string flavor = {};   // "": the gang has no queue
  std::string lacking = {};  // what is in the way, in words
  bool is_open = false;      // it may be tried all the same
};

// Of these zones: the one that is being tried, and the others as they are.
std::vector<NodeSource> SourcesIn(const std::vector<Zone>& zones, const std::string& tried);
// The one that is being tried, on flavor `own`, then those that may be tried, zones before flavors,
// then what lacks something. Empty if there are no zones and no other flavors.
std::vector<NodeSource> InOrder(std::vector<NodeSource> zones, const std::string& own,
                                const std::vector<NodeSource>& flavors);
// What is tried after the first of them; the end if nothing can be.
std::vector<NodeSource>::const_iterator NextOf(const std::vector<NodeSource>& sources);

// Of sources in their order, the first of which is being tried: "; nodes are made in zone a, next
// zone b, flavor f (failed, not before 10:00:00Z)". "" if there are none.
std::string NodeSourcesText(const std::vector<NodeSource>& sources);

// Of members on these nodes that should be in one domain of the level that is preferred, or else in
// one zone: over how many they are, and what one of them would have needed. "" if they are in one,
// or nothing is preferred.
std::string BeyondOneText(const kube::TopologyAsked& asked,
                          const std::vector<const kube::Node*>& nodes);

}  // namespace muster::cluster
