// Admission records: what is known of each, and their writing.
//
// A record stands on the gang's PodGroup; that of a gang of one only in memory.
#pragma once

#include <optional>
#include <string>

#include "coscheduling/admission/record.h"
#include "coscheduling/agenda.h"
#include "coscheduling/gangs/gang.h"
#include "coscheduling/outbox.h"

namespace muster::coscheduling {

class Records {
 public:
  // All of them outlive it.
  Records(Agenda* agenda, Outbox* outbox) : agenda_(agenda), outbox_(outbox) {}

  // Reads the record off the gang's objects as they are now.
  void Read(const Gang& gang);
  // Null if it has none. Valid until the next call of Read, Write or Forget.
  const AdmissionRecord* Of(const Gang& gang) const;
  // It is this gang's own, wasn't copied from elsewhere.
  const AdmissionRecord* OwnOf(const Gang& gang) const;
  // The same, of a run that isn't over.
  const AdmissionRecord* CurrentOf(const Gang& gang) const;
  // How many members the gang was whole with, while some of them stand.
  std::optional<int64_t> WholeWith(const Gang& gang) const;
  // Asks for this record; what is read stays as it is until it is seen. A gang of one has it at
  // once.
  void Write(const Gang& gang, const AdmissionRecord& record);
  // Counts from now on, and is written only after a while, or with the next that is: for what every
  // gang comes to say as it starts, while others wait for their bindings, and what whoever takes it
  // over can see for himself meanwhile.
  void Note(const Gang& gang, const AdmissionRecord& record);
  // Writes what was noted, once it is time.
  void WriteNoted(const Gang& gang);
  bool IsBeingWritten(const Gang& gang) const;
  // The last refusal, until one is accepted.
  const std::string& ErrorOf(const Gang& gang) const { return kept_.Of(gang.id).error; }
  void Forget(GangId gang) { kept_.Forget(gang); }

 private:
  struct Kept {
    std::string group;  // UID of the PodGroup that it was read from
    std::string text;   // what was read
    std::optional<AdmissionRecord> record;
    absl::Time due = absl::InfiniteFuture();  // `record` says more than `text`: when it is written
    std::string error;
  };

  std::string WhyNotBelieved(const AdmissionRecord& record, const std::string& group) const;

  Agenda* agenda_;
  Outbox* outbox_;
  PerGang<Kept> kept_;
};

}  // namespace muster::coscheduling
