#include "coscheduling/admission/records.h"

#include <utility>

#include "coscheduling/gangs/gangs.h"

namespace muster::coscheduling {

void Records::Read(const Gang& gang) {
  const kube::ObjectMeta* meta = gang.group == nullptr ? nullptr : &gang.group->meta;
  if (gang.key.is_pod && !gang.pods.empty()) {
    const kube::Pod* pod = snapshot_.FindPod(*gang.pods.begin());
    if (pod != nullptr) meta = &pod->meta;
  }
  Kept& kept = kept_[gang.id];
  const std::string* annotation = meta == nullptr ? nullptr : meta->Annotation(kRecordAnnotation);
  if (gang.key.is_pod && annotation == nullptr) return;  // it may be in memory only
  const std::string group = meta == nullptr ? "" : meta->uid;
  const std::string text = annotation == nullptr ? "" : *annotation;
  if (kept.group == group && kept.text == text) return;
  kept.group = group;
  kept.text = text;
  // One that can't be read is replaced, as one that was never there.
  std::optional<AdmissionRecord> record;
  if (auto decoded = DecodeRecord(text); decoded.ok()) record = *std::move(decoded);
  if (gang.key.is_pod && (!record || record->uid != group)) return;
  kept.record = std::move(record);
}

const AdmissionRecord* Records::Of(const Gang& gang) const {
  const auto it = kept_.find(gang.id);
  return it == kept_.end() || !it->second.record ? nullptr : &*it->second.record;
}

const AdmissionRecord* Records::OwnOf(const Gang& gang) const {
  const AdmissionRecord* record = Of(gang);
  return record == nullptr || record->uid != gang.uid() ? nullptr : record;
}

// A record whose gang was bound and has no bound member left belongs to a run that is over.
const AdmissionRecord* Records::CurrentOf(const Gang& gang) const {
  const AdmissionRecord* record = OwnOf(gang);
  const bool spent = record != nullptr && record->bound_at && gang.bound.empty() &&
                     gang.facts.succeeded < gang.facts.min_member;
  return spent ? nullptr : record;
}

std::optional<int64_t> Records::WholeWith(const Gang& gang) const {
  const AdmissionRecord* record = OwnOf(gang);
  return record == nullptr || !record->bound_at ? std::nullopt : record->whole_with;
}

bool Records::IsBeingWritten(const Gang& gang) const {
  return gang.group != nullptr && outbox_->IsUnderWay("record/" + gang.group->meta.uid);
}

void Records::Write(const Gang& gang, const AdmissionRecord& record) {
  const AdmissionRecord* known = Of(gang);
  if (gang.group == nullptr && !record.quota && (known == nullptr || !known->quota)) {
    kept_[gang.id].record = record;
    agenda_->Note(gang.id);
    return;
  }
  if (gang.group == nullptr) {
    // What holds quota must be known after a restart: the pod itself keeps it.
    if (gang.pods.empty()) return;
    const kube::Pod& pod = *snapshot_.FindPod(*gang.pods.begin());
    outbox_->Act(gang.id, "record/" + pod.meta.uid,
                 AnnotatePod{RefOf(pod), {{std::string(kRecordAnnotation), EncodeRecord(record)}}});
    return;
  }
  const kube::ObjectMeta& meta = gang.group->meta;
  // It would name a version that is being replaced. The end of that write brings the gang back.
  if (outbox_->IsUnderWay("status/" + meta.uid)) return;
  outbox_->Act(gang.id, "record/" + meta.uid, WriteRecord{RefOf(meta), EncodeRecord(record)},
               [this, id = gang.id](const absl::Status& status, absl::Time) {
                 const auto it = kept_.find(id);
                 if (it == kept_.end()) return;
                 it->second.error = IsRefusal(status) ? std::string(status.message()) : "";
               });
}

const std::string& Records::ErrorOf(const Gang& gang) const {
  static const std::string kNone;
  const auto it = kept_.find(gang.id);
  return it == kept_.end() ? kNone : it->second.error;
}

}  // namespace muster::coscheduling
