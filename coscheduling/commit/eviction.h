// Eviction of whole gangs, or of what they have beyond minMember: written into the record first,
// then asked of the API server pod by pod, and quota is given back once nothing of it stands.
#pragma once

#include "cluster/snapshot.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/commit/restarts.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"

namespace muster::coscheduling {

// Keeps nothing: what is to be evicted stands in the record, who is left is seen.
class Evictions {
 public:
  // All of them outlive it.
  Evictions(const cluster::Snapshot& snapshot, const Records& records, QuotaAdmission* quota,
            Restarts* restarts, Outbox* outbox)
      : snapshot_(snapshot),
        records_(records),
        quota_(quota),
        restarts_(restarts),
        outbox_(outbox) {}

  // `posted`: some binding of it was accepted and isn't seen yet.
  void Decide(const Gang& gang, bool posted);

 private:
  bool MustGo(const Gang& gang) const;

  const cluster::Snapshot& snapshot_;
  const Records& records_;
  QuotaAdmission* quota_;
  Restarts* restarts_;
  Outbox* outbox_;
};

}  // namespace muster::coscheduling
