// What a gang's state is and why, told everywhere: PodGroup status, events, filter answers, log,
// and the admission API's messages. Reads all owners, is read by none, and decides nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cluster/journal.h"
#include "cluster/snapshot.h"
#include "cluster/suspect_nodes.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/admission/records.h"
#include "coscheduling/agenda.h"
#include "coscheduling/commit/commit.h"
#include "coscheduling/commit/job_starts.h"
#include "coscheduling/commit/repair.h"
#include "coscheduling/commit/restarts.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"
#include "coscheduling/placement/placement.h"
#include "coscheduling/provisioning/holds.h"
#include "coscheduling/provisioning/placeability.h"
#include "coscheduling/provisioning/provisioning.h"
#include "coscheduling/report/step_output.h"

namespace muster::v1 {
class Gang;
class Node;
}  // namespace muster::v1

namespace muster::coscheduling {

// Whom it asks. All of them outlive it.
struct ReportSources {
  const EngineOptions& options;
  const cluster::Snapshot& snapshot;
  const Gangs& gangs;
  const Records& records;
  const QuotaAdmission& quota;
  const Placement& placement;
  const cluster::SuspectNodes& suspects;
  const Placeability& placeability;
  const Provisioning& provisioning;
  const NodeHolds& holds;
  const Commit& commit;
  const Repair& repair;
  const Restarts& restarts;
  const JobStarts& job_starts;
};

// Into a message that has all of it.
void Set(const Reason& reason, auto* out) {
  out->set_code(reason.code);
  out->set_message(reason.message);
  out->set_fix(reason.fix);
}

class Report {
 public:
  Report(const ReportSources& sources, Agenda* agenda, Outbox* outbox)
      : from_(sources), agenda_(agenda), outbox_(outbox) {}

  void Observe(const cluster::Journal& journal);
  // Reasons say so while pods aren't gated. True if that is new.
  bool SetGatingActive(bool active) { return std::exchange(gating_active_, active) != active; }
  // Other nodes are kept for somebody than before.
  void NoteReservations() { nodes_changed_ = true; }
  // Of what NodePools make has changed, or until when it is theirs.
  void NotePools();
  // A node's suspicion changed.
  void NoteSuspect(const std::string& node);

  // --- steps of a gang ---
  // Its state is settled; `before` is the one it came from.
  void Tell(const Gang& gang, v1::GangState before);
  void WriteStatus(const Gang& gang);
  void AnswerFilters(const Gang& gang);
  // Its description is compared with the one that was shown last.
  void Show(const Gang& gang);
  void Leave(const std::string& pod);
  void Forget(GangId gang, const GangKey& key);

  // --- the end of a step ---
  // Everything to be told since the last call.
  void Fill(StepOutput* out);
  // Nothing is answered any more.
  void RetractAnswers();

  // --- questions ---
  const Reason& ReasonOf(const Gang& gang) const { return parts_.Of(gang.id).reason; }
  // Why a gang waits for quota.
  Reason EvictionReason(const Gang& gang) const;
  Reason QuotaReason(const Gang& gang) const;
  void Describe(const Gang& gang, v1::Gang* out) const;
  void DescribeNodes(std::vector<v1::Node>* nodes) const;
  // Times that were measured since the last call.
  struct Moments {
    // From the last of its nodes becoming usable to the last binding, per gang.
    std::vector<absl::Duration> bind_latencies;
    std::vector<std::pair<v1::GangState, absl::Duration>> state_times;
  };
  Moments TakeMoments() { return std::exchange(moments_, {}); }
  uint64_t gangs_bound() const { return gangs_bound_; }

 private:
  struct Part {
    Reason reason;
    absl::Time entered = absl::InfinitePast();      // its state
    absl::Time event_due = absl::InfiniteFuture();  // of its reason; told, if infinite
    std::optional<absl::Time> bound_at;
    bool on_reserved = false;  // members of it are on reserved capacity
    uint64_t revision = 0;
    size_t shown_digest = 0;             // of the description shown last; 0: none
    std::set<std::string> shown_places;  // in it
    absl::Time status_written = absl::InfinitePast();
    std::string status_digest;  // of the status written last
    v1::GangState status_state = v1::GANG_STATE_UNSPECIFIED;
  };

  // --- reasons.cc ---
  Reason FindReason(const Gang& gang) const;
  Reason ProvisioningReason(const Gang& gang) const;
  // " in one zone, which X requires"
  std::string WhereText(const Gang& gang) const;
  Reason CapacityReason(const Gang& gang, std::string_view meanwhile) const;
  // What is kept for it, and from it.
  std::string ReservationText(const Gang& gang) const;
  Reason ComingReason(const Gang& gang) const;
  Reason ReadyReason(const Gang& gang) const;
  Reason RepairReason(const Gang& gang) const;
  std::optional<Reason> RiskReason(const Gang& gang) const;
  std::string SuspectText(const Gang& gang) const;
  void AddSuspects(const Gang& gang, Reason* reason) const;
  // --- report.cc ---
  std::vector<const kube::Node*> NodesUnder(const Gang& gang) const;
  void Emit(const Gang& gang, const Reason& reason);
  void NoteBindLatency(const Gang& gang, Part* part);
  void PublishAnswer(const std::string& uid, FilterAnswer answer);
  // --- describe.cc ---
  void DescribeNode(const cluster::NodeInfo& info, v1::Node* out) const;
  void Unshow(GangId gang, Part* part);
  void ShowAgain(const std::string& place);

  const ReportSources from_;
  Agenda* agenda_;
  Outbox* outbox_;

  bool gating_active_ = false;
  PerGang<Part> parts_;
  absl::flat_hash_map<std::string, absl::flat_hash_set<GangId>> shown_on_;  // by place
  absl::flat_hash_map<std::string, absl::Time> usable_since_;               // by node
  absl::flat_hash_map<std::string, FilterAnswer> answers_;                  // by pod
  std::set<std::string> answers_changed_;
  std::map<GangKey, std::shared_ptr<const v1::Gang>> changed_gangs_;  // null: gone
  std::vector<DecisionNote> notes_;
  bool nodes_changed_ = false;
  uint64_t next_revision_ = 1;
  Moments moments_;
  uint64_t gangs_bound_ = 0;
};

}  // namespace muster::coscheduling
