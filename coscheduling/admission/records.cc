#include "coscheduling/admission/records.h"

#include <algorithm>
#include <utility>

#include "coscheduling/gangs/gangs.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

// How far the clock of another process may be ahead.
constexpr absl::Duration kClockSkew = absl::Minutes(5);
// Far less than an attempt's deadline: until then, who takes over a gang that has just lost members
// takes it for a commit that was cut off.
constexpr absl::Duration kNoted = absl::Minutes(1);

}  // namespace

void Records::Read(const Gang& gang) {
  if (gang.key.is_pod) return;  // it is in memory only
  const kube::ObjectMeta* meta = gang.group == nullptr ? nullptr : &gang.group->meta;
  Kept& kept = kept_[gang.id];
  const std::string* annotation = meta == nullptr ? nullptr : meta->Annotation(kRecordAnnotation);
  const std::string group = meta == nullptr ? "" : meta->uid;
  const std::string text = annotation == nullptr ? "" : *annotation;
  if (kept.group == group && kept.text == text) return;
  kept.group = group;
  kept.text = text;
  kept.due = absl::InfiniteFuture();
  std::optional<AdmissionRecord> before = std::exchange(kept.record, std::nullopt);
  if (text.empty()) return;
  // Its user may have written it. One that isn't believed is replaced, as one that was never there.
  absl::StatusOr<AdmissionRecord> read = DecodeRecord(text);
  std::string why = read.ok() ? WhyNotBelieved(*read, group) : std::string(read.status().message());
  if (why.empty() && before && before->uid == group && read->epoch < before->epoch) {
    why = fmt::format("epoch {} is over: it was {}", read->epoch, before->epoch);
    kept.record = std::move(before);
  } else if (why.empty()) {
    kept.record = *std::move(read);
  }
  if (why.empty()) return;
  outbox_->Tell(EmitEvent{"PodGroup", gang.key.name_space, gang.key.name, group, true,
                          "RecordIgnored",
                          fmt::format("annotation {}: {}", kRecordAnnotation, why)});
}

// "" if it can be this PodGroup's own.
std::string Records::WhyNotBelieved(const AdmissionRecord& record, const std::string& group) const {
  if (record.uid != group)
    return fmt::format("it is that of another PodGroup (UID {})", record.uid);
  const absl::Time latest = agenda_->now() + kClockSkew;
  if (record.admitted_at > latest || record.bound_at.value_or(absl::InfinitePast()) > latest ||
      record.repairing_since.value_or(absl::InfinitePast()) > latest) {
    return "it says what is still to come";
  }
  return "";
}

const AdmissionRecord* Records::Of(const Gang& gang) const {
  const std::optional<AdmissionRecord>& record = kept_.Of(gang.id).record;
  return record ? &*record : nullptr;
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

void Records::Note(const Gang& gang, const AdmissionRecord& record) {
  if (gang.group == nullptr) return Write(gang, record);
  Kept& kept = kept_[gang.id];
  kept.record = record;
  kept.due = std::min(kept.due, agenda_->now() + kNoted);
}

void Records::WriteNoted(const Gang& gang) {
  const Kept& kept = kept_.Of(gang.id);
  if (agenda_->now() >= kept.due) return Write(gang, AdmissionRecord(*kept.record));
  if (kept.due < absl::InfiniteFuture()) agenda_->NoteAt(gang.id, kept.due);
}

void Records::Write(const Gang& gang, const AdmissionRecord& record) {
  std::string text = gang.group == nullptr ? "" : EncodeRecord(record);
  Kept& kept = kept_[gang.id];
  // It is in memory only, or what had only been noted is taken back.
  if (gang.group == nullptr || (kept.due < absl::InfiniteFuture() && text == kept.text)) {
    kept.record = record;
    kept.due = absl::InfiniteFuture();
    return agenda_->Note(gang.id);
  }
  const kube::ObjectMeta& meta = gang.group->meta;
  // It would name a version that is being replaced. The end of that write brings the gang back.
  if (outbox_->IsUnderWay("status/" + meta.uid)) return;
  outbox_->Act(gang.id, "record/" + meta.uid, WriteRecord{RefOf(meta), std::move(text)},
               [this, id = gang.id](const absl::Status& status, absl::Time) {
                 const bool refused = IsRefusal(status);
                 Kept* known = kept_.Find(id);
                 if (known != nullptr) known->error = refused ? std::string(status.message()) : "";
               });
}

}  // namespace muster::coscheduling
