// The owners that a test of one of them needs, joined as owners.h joins them. Each test calls the
// steps of its owner itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/snapshot.h"
#include "cluster/test_objects.h"
#include "coscheduling/admission/attempts.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/quota_admission.h"
#include "coscheduling/admission/workloads.h"
#include "coscheduling/commit/commit.h"
#include "coscheduling/commit/repair.h"
#include "coscheduling/commit/restarts.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"
#include "coscheduling/placement/placement.h"
#include "coscheduling/provisioning/placeability.h"
#include "coscheduling/provisioning/provisioning.h"

namespace muster::coscheduling {

class TestOwners {
 public:
  explicit TestOwners(EngineOptions engine_options = {})
      : options(std::move(engine_options)),
        outbox(&agenda),
        gangs(options, snapshot, &agenda, &outbox),
        records(&agenda, &outbox),
        attempts(
            options, records, [](const Gang&) { return absl::Minutes(20); },
            [](const Gang&) { return kube::TriedFlavors(); }, agenda),
        workloads(options, gangs, &agenda, &outbox),
        common(options, snapshot, gangs, records, &agenda, &outbox),
        quota(common, &records, &workloads, attempts),
        suspects(options.suspect_time),
        placement(
            common, &snapshot, &quota, suspects, [](const Gang&) { return Placement::Capacity(); },
            [](const Gang&) { return false; }),
        placeability(common, quota,
                     [](const Gang&, const kube::ResourceFlavor&) { return absl::InfinitePast(); }),
        provisioning(common, quota, placeability, &placement, [](const Gang&) { return false; }),
        commit(common, &placement),
        restarts(common, workloads, &quota, placement, &placeability, provisioning),
        repair(common, &restarts) {
    agenda.AdvanceTo(absl::FromUnixSeconds(1'700'000'000));
  }

  void Pass(absl::Duration time) { agenda.AdvanceTo(agenda.now() + time); }

  void Add(kube::Node node) {
    snapshot.Upsert(std::move(node));
    const cluster::Journal journal = snapshot.TakeJournal();
    placement.Observe(journal);
    repair.Observe(journal);
  }

  void Add(kube::Pod pod) {
    pod.scheduler_name = options.scheduler_name;
    gangs.Join(pod);
    snapshot.Upsert(std::move(pod));
  }

  // An admitted gang of these members, in state READY. One of several members has a PodGroup, whose
  // minMember is their number.
  const Gang& AddGang(const std::string& name, std::vector<kube::Pod> members) {
    kube::PodGroup group;
    group.meta.name = name;
    group.meta.name_space = "default";
    group.meta.uid = "group-" + name;
    group.meta.creation_time = agenda.now();
    group.min_member = static_cast<int64_t>(members.size());
    AdmissionRecord record;
    record.uid = group.meta.uid;
    record.identity = options.identity;
    record.admitted_at = agenda.now();
    record.deadline = agenda.now() + absl::Minutes(20);
    group.meta.annotations[kRecordAnnotation] = EncodeRecord(record);
    gangs.Adopt(std::make_shared<const kube::PodGroup>(std::move(group)));
    for (kube::Pod& pod : members) {
      Add(cluster::test::Labelled(std::move(pod), kube::kPodGroupLabel, name));
    }
    return Admit(*gangs.Find(GangKey{"default", name}));
  }

  // Reads its members and its record again.
  const Gang& Admit(const Gang& gang) {
    records.Read(gang);
    gangs.Read(gang.id, std::nullopt);
    GangFacts facts = gang.facts;
    facts.admitted = true;
    gangs.Settle(gang.id, facts);
    gangs.Enter(gang.id, v1::READY);
    return gang;
  }

  // It enters the list, and all in it that could be placed are.
  const Places& Place(const Gang& gang) {
    placement.Sync(gang);
    placement.PlanWaiting();
    return placement.Of(gang);
  }

  // What was asked for of this kind since the last call of Take.
  template <typename T>
  std::vector<T> Asked() const {
    std::vector<T> asked;
    for (const NumberedAction& action : taken_) {
      if (const T* one = std::get_if<T>(&action.action)) asked.push_back(*one);
    }
    return asked;
  }
  void Take() { taken_ = outbox.Take(); }
  // All that was taken ends like this.
  void FinishAll(const absl::Status& status) {
    for (const NumberedAction& action : taken_) outbox.Finish(action.id, status);
  }

  const EngineOptions options;
  Agenda agenda;
  cluster::Snapshot snapshot;
  Outbox outbox;
  Gangs gangs;
  Records records;
  Attempts attempts;
  Workloads workloads;
  const Owner common;
  QuotaAdmission quota;
  cluster::SuspectNodes suspects;
  Placement placement;
  Placeability placeability;
  Provisioning provisioning;
  Commit commit;
  Restarts restarts;
  Repair repair;

 private:
  std::vector<NumberedAction> taken_;
};

}  // namespace muster::coscheduling
