// Attempts: a gang begins one with a record of its own, and ends it in the record when it gives up.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/agenda.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gang.h"
#include "kube/objects/job_restart.h"
#include "kube/objects/quota.h"

namespace muster::coscheduling {

// Keeps nothing: what an attempt came to stands in the record.
class Attempts {
 public:
  // How long the gang's nodes may take to come.
  using DeadlineOf = std::function<absl::Duration(const Gang&)>;
  // What its job remembers of attempts whose record is gone.
  using TriedBefore = std::function<kube::TriedFlavors(const Gang&)>;

  // All of them outlive it.
  Attempts(const EngineOptions& options, const Records& records, DeadlineOf deadline_of,
           TriedBefore tried_before, const Agenda& agenda)
      : options_(options),
        records_(records),
        deadline_of_(std::move(deadline_of)),
        tried_before_(std::move(tried_before)),
        agenda_(agenda) {}

  // The record of the attempt that begins now.
  AdmissionRecord Begin(const Gang& gang) const;
  // Its record once it ends: the gang asks for nothing until `retry_after`. `flavors`: those that
  // it had.
  AdmissionRecord GiveUp(const Gang& gang, absl::Time retry_after, std::optional<Reason> why,
                         const std::set<std::string>& flavors) const;
  // Its record, if another process wrote it.
  AdmissionRecord TakeOver(const Gang& gang) const;
  // Until when other flavors are preferred to this one; in the past if they aren't.
  absl::Time TriedUntil(const Gang& gang, const kube::ResourceFlavor& flavor) const;

 private:
  const EngineOptions& options_;
  const Records& records_;
  const DeadlineOf deadline_of_;
  const TriedBefore tried_before_;
  const Agenda& agenda_;
};

}  // namespace muster::coscheduling
