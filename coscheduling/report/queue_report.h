// What users see of quota: the status of queues, and the messages about queues and flavors.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/agenda.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/outbox.h"
#include "coscheduling/report/report.h"

namespace muster::v1 {
class Queue;
class Flavor;
}  // namespace muster::v1

namespace muster::coscheduling {

class QueueReport {
 public:
  // All of them outlive it.
  QueueReport(const EngineOptions& options, const QuotaAdmission& quota, const Report& gangs,
              Agenda* agenda, Outbox* outbox)
      : options_(options), quota_(quota), gangs_(gangs), agenda_(agenda), outbox_(outbox) {}

  // Writes the status of queues that differs from what was written, and keeps what is used by its
  // finalizer; `changed`: some may.
  void Write(bool changed);
  // ClusterQueues, then LocalQueues, each in order of their names.
  void DescribeQueues(std::vector<v1::Queue>* queues) const;
  void DescribeFlavors(std::vector<v1::Flavor>* flavors) const;

 private:
  // The status of a queue that was written last.
  struct Shown {
    std::optional<quota::QueueStatus> status;
    bool active = false;
    absl::Time since = absl::InfinitePast();  // of `active`
    absl::Time written = absl::InfinitePast();
  };
  // False if it is to be tried again.
  bool Write(const quota::QueueStatus& status, bool of_cohort);

  const EngineOptions& options_;
  const QuotaAdmission& quota_;
  const Report& gangs_;
  Agenda* agenda_;
  Outbox* outbox_;
  bool stale_ = false;  // some queue's status may differ from what was written
  std::map<std::pair<bool, std::string>, Shown> shown_;  // by whether it is a Cohort, and name
};

}  // namespace muster::coscheduling
