#include "coscheduling/admission/attempts.h"

#include <map>
#include <utility>

namespace muster::coscheduling {

AdmissionRecord Attempts::Begin(const Gang& gang) const {
  const AdmissionRecord* known = records_.Of(gang);
  const AdmissionRecord* current = records_.CurrentOf(gang);
  const absl::Time now = agenda_.now();
  AdmissionRecord record;
  record.uid = gang.uid();
  record.identity = options_.identity;
  record.epoch = known != nullptr ? known->epoch : 1;
  if (known != nullptr && known->identity != options_.identity) ++record.epoch;
  record.attempt = current == nullptr ? tried_before_(gang).attempt + 1
                                      : current->attempt + (current->retry_after ? 1 : 0);
  record.admitted_at = now;
  record.deadline = now + deadline_of_(gang);
  if (known != nullptr && !known->bound_at && !known->TriesAnewAtOnce()) {
    record.given_up = known->given_up;
  }
  record.flavors_tried = known != nullptr ? known->flavors_tried : tried_before_(gang).flavors;
  std::erase_if(record.flavors_tried, [now](const auto& tried) { return tried.second <= now; });
  return record;
}

AdmissionRecord Attempts::GiveUp(const Gang& gang, absl::Time retry_after,
                                 std::optional<Reason> why,
                                 const std::set<std::string>& flavors) const {
  AdmissionRecord record = *records_.Of(gang);
  record.given_up = std::move(why);
  record.retry_after = retry_after;
  record.deadline = agenda_.now();
  // As long again as it backs off.
  const absl::Time tried_until = retry_after + (retry_after - record.deadline);
  for (const std::string& name : flavors) record.flavors_tried[name] = tried_until;
  return record;
}

AdmissionRecord Attempts::TakeOver(const Gang& gang) const {
  AdmissionRecord record = *records_.Of(gang);
  record.identity = options_.identity;
  ++record.epoch;
  return record;
}

absl::Time Attempts::TriedUntil(const Gang& gang, const kube::ResourceFlavor& flavor) const {
  const AdmissionRecord* record = records_.Of(gang);
  const std::map<std::string, absl::Time> tried =
      record != nullptr ? record->flavors_tried : tried_before_(gang).flavors;
  const auto found = tried.find(flavor.meta.name);
  return found == tried.end() ? absl::InfinitePast() : found->second;
}

}  // namespace muster::coscheduling
