// What owners have in common: what they decide by, and whom they tell.
#pragma once

#include "cluster/snapshot.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/agenda.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"

namespace muster::coscheduling {

// An owner that reads the gangs and their records, and acts. All that it is given outlives it.
class Owner {
 public:
  Owner(const EngineOptions& options, const cluster::Snapshot& snapshot, const Gangs& gangs,
        const Records& records, Agenda* agenda, Outbox* outbox)
      : options_(options),
        snapshot_(snapshot),
        gangs_(gangs),
        records_(records),
        agenda_(agenda),
        outbox_(outbox) {}

 protected:
  const EngineOptions& options_;
  const cluster::Snapshot& snapshot_;
  const Gangs& gangs_;
  const Records& records_;
  Agenda* agenda_;
  Outbox* outbox_;
};

}  // namespace muster::coscheduling
