// The one function that moves a gang between its states. Drawn in coscheduling/README.md.
#pragma once

#include <cstdint>

#include "muster/v1/states.pb.h"

namespace muster::coscheduling {

// What the state depends on, and nothing else. Counts are of pods that are not being deleted;
// `bound` ones are live (neither succeeded nor failed), and their nodes aren't lost.
struct GangFacts {
  int64_t min_member = 1;
  int64_t live = 0;
  int64_t bound = 0;
  int64_t lost = 0;  // live, but on nodes that are (node_trouble.h)
  int64_t succeeded = 0;
  int64_t failed = 0;
  bool made_anew = false;    // fewer than min_member succeeded, and the gang's job goes on
  bool terminating = false;  // members that are going away still stand on nodes
  bool blocked = false;      // too few members, or something must be put right first
  bool admitted = false;     // the admission record is written and ours
  bool waits_for_quota = false;
  bool waits_for_room = false;  // gave its quota back, because nobody makes the room that it lacks
  bool infeasible = false;      // its nodes can't exist
  bool evicting = false;        // gives back its quota, or its room: all its members are to go
  bool without_quota = false;   // it needs none
  bool backing_off = false;
  bool bound_before = false;  // this attempt once had minMember members bound
  bool planned = false;       // the required members all have a place on usable nodes
  bool committing = false;    // a commit has begun
};

v1::GangState NextState(const GangFacts& facts);

}  // namespace muster::coscheduling
