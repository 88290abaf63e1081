#include "quota/wait_reason.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kube/objects/quantity.h"

namespace muster::quota {
namespace {

using Kind = FlavorRefusal::Kind;

constexpr size_t kMostNamed = 4;  // of flavors, or of victims

class RefusalText {
 public:
  RefusalText(const Ledger& ledger, const Entry& entry)
      : ledger_(ledger),
        entry_(entry),
        queue_(ledger.layout().queue(entry.queue).object->meta.name) {}

  Wait Explain(const Assignment& assignment) const {
    const auto& all = assignment.refusals;
    const std::vector<FlavorRefusal> decisive(
        all.begin() + static_cast<std::ptrdiff_t>(assignment.decisive), all.end());
    const Kind kind = MostHopeful(decisive);
    std::vector<std::string> parts;
    for (const FlavorRefusal& each : decisive) parts.push_back(Describe(each));
    const size_t more = parts.size() > kMostNamed ? parts.size() - kMostNamed : 0;
    parts.resize(parts.size() - more);
    Wait wait;
    wait.code = CodeOf(kind);
    wait.message = absl::StrCat("ClusterQueue ", queue_, " has nothing for ", Asker(decisive), ": ",
                                absl::StrJoin(parts, "; "));
    if (more > 0) absl::StrAppend(&wait.message, "; and ", more, " more like these");
    for (const FlavorRefusal& each : decisive) {
      if (each.kind != kind) continue;
      wait.fix = FixOf(each);
      break;
    }
    return wait;
  }

 private:
  static WaitCode CodeOf(Kind kind) {
    switch (kind) {
      case Kind::kNotCovered:
        return WaitCode::kResourceNotCovered;
      case Kind::kMismatch:
        return WaitCode::kFlavorMismatch;
      case Kind::kTooSmall:
        return WaitCode::kQuotaTooSmall;
      case Kind::kInUse:
        return WaitCode::kQuotaInUse;
      case Kind::kNotPlaceable:
        return WaitCode::kNotPlaceable;
    }
    return WaitCode::kNone;
  }

  // What would have to change is what the flavor that came closest lacks.
  static Kind MostHopeful(const std::vector<FlavorRefusal>& refusals) {
    for (Kind kind : {Kind::kNotCovered, Kind::kInUse, Kind::kNotPlaceable, Kind::kTooSmall}) {
      if (std::any_of(refusals.begin(), refusals.end(),
                      [&](const FlavorRefusal& each) { return each.kind == kind; })) {
        return kind;
      }
    }
    return Kind::kMismatch;
  }

  std::string Asker(const std::vector<FlavorRefusal>& refusals) const {
    const auto& pod_sets = entry_.is_surplus ? entry_.asked : entry_.workload.pod_sets;
    const size_t index = refusals.empty() ? 0 : static_cast<size_t>(refusals.front().pod_set);
    if (index >= pod_sets.size()) return "it";
    const PodSet& pod_set = pod_sets[index];
    const std::string pods = absl::StrCat(pod_set.count, entry_.is_surplus ? " more" : "",
                                          pod_set.count == 1 ? " pod" : " pods");
    return pod_sets.size() == 1 ? pods : absl::StrCat(pods, " of pod set ", pod_set.name);
  }

  std::string Amount(int resource, int64_t amount) const {
    const std::string& name = ledger_.names().ResourceName(resource);
    return absl::StrCat(kube::FormatQuantity(amount, kube::UnitOf(name)), " ", name);
  }

  std::string Unadmitted(const FlavorRefusal& refusal) const {
    if (refusal.unadmitted == 0) return "";
    return absl::StrCat(", ", Amount(refusal.resource, refusal.unadmitted),
                        " of them for what runs in namespace ", entry_.workload.name_space,
                        " without having been admitted");
  }

  std::string Describe(const FlavorRefusal& refusal) const {
    if (refusal.kind == Kind::kNotCovered) {
      return absl::StrCat("none of its spec.resourceGroups covers ",
                          ledger_.names().ResourceName(refusal.resource));
    }
    std::string flavor = absl::StrCat("flavor ", ledger_.names().FlavorName(refusal.flavor));
    switch (refusal.kind) {
      case Kind::kTooSmall:
        return absl::StrCat(flavor, " could give at most ", Amount(refusal.resource, refusal.limit),
                            " of the ", Amount(refusal.resource, refusal.wanted), " asked for",
                            Unadmitted(refusal));
      case Kind::kInUse:
        return absl::StrCat(flavor, " has ", Amount(refusal.resource, refusal.limit),
                            " unused of the ", Amount(refusal.resource, refusal.wanted),
                            " asked for", Unadmitted(refusal));
      case Kind::kMismatch:
        return absl::StrCat(flavor, " doesn't match: ", refusal.detail);
      case Kind::kNotPlaceable:
        return absl::StrCat(flavor, " can't be used: ", refusal.detail);
      case Kind::kNotCovered:
        break;
    }
    return flavor;
  }

  std::string FixOf(const FlavorRefusal& refusal) const {
    switch (refusal.kind) {
      case Kind::kNotCovered:
        return absl::StrCat("add ", ledger_.names().ResourceName(refusal.resource),
                            " to coveredResources of a resource group of ClusterQueue ", queue_,
                            ", with its quota, or don't request it");
      case Kind::kMismatch:
        return absl::StrCat(
            "correct nodeSelector, affinity or tolerations of the pods, or "
            "spec.nodeLabels and spec.nodeTaints of ResourceFlavor ",
            ledger_.names().FlavorName(refusal.flavor));
      case Kind::kTooSmall:
        return absl::StrCat("raise nominalQuota, or borrowingLimit, of flavor ",
                            ledger_.names().FlavorName(refusal.flavor), " in ClusterQueue ", queue_,
                            " so that it can give ", Amount(refusal.resource, refusal.wanted),
                            ", or ask for less");
      case Kind::kInUse:
        return absl::StrCat("wait until enough is given back, raise the quota of flavor ",
                            ledger_.names().FlavorName(refusal.flavor),
                            ", or let preemption take it back (spec.preemption of ClusterQueue ",
                            queue_, ")");
      case Kind::kNotPlaceable:
        return "add nodes, or room in the NodePools, for these pods; where they name a level of "
               "the "
               "topology, one that the flavor has";
    }
    return "";
  }

  const Ledger& ledger_;
  const Entry& entry_;
  const std::string& queue_;
};

std::string FullName(const Workload& workload) {
  return absl::StrCat(workload.name_space, "/", workload.name);
}

Wait ExplainPreemption(const Ledger& ledger, const Entry& entry) {
  std::vector<std::string> names;
  for (const Victim& victim : entry.reported) {
    if (names.size() == kMostNamed) break;
    const Reservation* reservation = ledger.Find(victim.id);
    const std::string name = reservation == nullptr ? victim.id : FullName(reservation->workload);
    names.push_back(victim.surplus_only ? absl::StrCat(name, " (beyond its minMember)") : name);
  }
  const size_t more = entry.reported.size() - names.size();
  return {.code = WaitCode::kPreempting,
          .message = absl::StrCat("quota is taken back for it in ClusterQueue ",
                                  ledger.layout().queue(entry.queue).object->meta.name, " from ",
                                  absl::StrJoin(names, ", "),
                                  more > 0 ? absl::StrCat(" and ", more, " more") : ""),
          .fix = "none needed: it is admitted once they have given it back"};
}

Wait ExplainOthers(const Ledger& ledger, const WaitingLine& line, const Entry& entry) {
  const QueueConfig& queue = ledger.layout().queue(entry.queue);
  const Entry* head = line.Head();
  Wait wait;
  wait.code = WaitCode::kBehindOthers;
  if (head == nullptr || head == &entry) {
    wait.message = absl::StrCat("others in the cohort of ClusterQueue ", queue.object->meta.name,
                                " go first, or it wasn't looked at yet");
    wait.fix = "none needed: it is looked at again after them";
    return wait;
  }
  const bool strict = queue.object->strategy == kube::QueueingStrategy::kStrictFifo;
  wait.message = absl::StrCat("it waits behind ", FullName(head->workload), " in ClusterQueue ",
                              queue.object->meta.name,
                              strict ? ", which is StrictFIFO" : ", for which quota is taken back");
  wait.fix = strict ? absl::StrCat("see what ", FullName(head->workload),
                                   " waits for, or set spec.queueingStrategy to BestEffortFIFO")
                    : "none needed: it is looked at next";
  return wait;
}

}  // namespace

Wait ExplainRefusal(const Ledger& ledger, const Entry& entry) {
  return RefusalText(ledger, entry).Explain(entry.assignment);
}

Wait ReasonOf(const Ledger& ledger, const WaitingRoom& room, const Entry& entry) {
  if (entry.kind == nullptr) return entry.blocked;
  const WaitingLine& line = room.line(entry.queue);
  Wait wait;
  const bool refused = !entry.assignment.refusals.empty() && line.Head() == &entry;
  const int root = ledger.layout().queue(entry.queue).root;
  if (entry.is_surplus && entry.parked_alone && entry.assignment.refusals.empty()) {
    wait.code = WaitCode::kQuotaInUse;
    wait.message = "quota of this gang is being taken back for another: nothing is added to it";
    wait.fix = "none needed: it is looked at again once that is over";
  } else if (entry.claimed_pass == room.LastPass(root)) {
    wait = ExplainPreemption(ledger, entry);
  } else if (entry.parked_alone || (refused && entry.targets.empty())) {
    wait = RefusalText(ledger, entry).Explain(entry.assignment);
  } else if (entry.kind->parked) {
    wait = RefusalText(ledger, entry).Explain(entry.kind->refused);
  } else {
    wait = ExplainOthers(ledger, line, entry);
  }
  return wait;
}

}  // namespace muster::quota
