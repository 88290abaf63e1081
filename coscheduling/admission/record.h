// The admission record: what a gang's placement must not forget when this process dies.
//
// Annotation muster.dev/admission on the PodGroup, JSON, written by compare-and-swap before the
// first signal. The gang's user may write it too, so it says nothing that concerns anybody else:
// quota lies in the gang's Workload (workloads.h). A record whose uid isn't the PodGroup's own was
// copied from elsewhere and counts as absent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coscheduling/labels.h"
#include "coscheduling/reason.h"

namespace muster::coscheduling {

struct AdmissionRecord {
  std::string uid;       // of the PodGroup
  std::string identity;  // of the process that wrote it
  // Grows with each process that takes the gang over. Members carry it in annotation
  // muster.dev/epoch from the second on, so that bindings of the process before fail.
  int64_t epoch = 1;
  int64_t attempt = 1;
  absl::Time admitted_at;
  absl::Time deadline;
  // Set while the gang backs off: no attempt before this.
  std::optional<absl::Time> retry_after;
  // Why it gave up last; stays until it was whole.
  std::optional<Reason> given_up;
  // Set once at least minMember members were bound in this attempt.
  std::optional<absl::Time> bound_at;
  // With how many members it was: what it must keep or get back not to be restarted, whatever
  // minMember was raised to since.
  std::optional<int64_t> whole_with;
  // Set while members that were lost after that are missing: since when.
  std::optional<absl::Time> repairing_since;
  // Set once a gang without quota is to give its room to another one, until the next attempt: why.
  // All its members are to go, whoever leads.
  std::optional<std::string> preempted;
  // Flavors on which an attempt failed, and until when others are preferred: as long again as the
  // gang backs off, and where its members are made anew for another one, as long as that one has to
  // get its nodes as well.
  std::map<std::string, absl::Time> flavors_tried;

  // It gave up and doesn't pause: its next attempt is on another flavor, where what was refused on
  // the last one is no reason.
  bool TriesAnewAtOnce() const { return retry_after && *retry_after <= deadline; }
  bool operator==(const AdmissionRecord&) const = default;
};

std::string EncodeRecord(const AdmissionRecord& record);

// InvalidArgument naming the field. Fields of later versions are ignored.
absl::StatusOr<AdmissionRecord> DecodeRecord(std::string_view text);

}  // namespace muster::coscheduling
