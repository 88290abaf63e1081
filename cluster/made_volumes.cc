#include "cluster/made_volumes.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "cluster/node_affinity.h"
#include "cluster/volumes.h"
#include "fmt/format.h"
#include "kube/objects/quantity.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using kube::PersistentVolume;
using kube::PersistentVolumeClaim;

constexpr size_t kMostSizes = 32;
// More pods of one shape than this have no use for one node's volumes.
constexpr int64_t kMostOnANode = 256;

// The one hostname of the nodes that reach it, or "".
std::string HostOf(const PersistentVolume& volume) {
  if (!volume.required_node_terms || volume.required_node_terms->size() != 1) return "";
  for (const kube::Requirement& one : volume.required_node_terms->front().match_expressions) {
    const bool names_one = one.key == kube::kHostnameLabel &&
                           one.op == kube::SelectorOperator::kIn && one.values.size() == 1;
    if (names_one) return one.values.front();
  }
  return "";
}

bool IsFor(const PersistentVolume& volume, const PersistentVolumeClaim& claim) {
  return volume.claim_ref == claim.meta.FullName() &&
         (volume.claim_uid.empty() || volume.claim_uid == claim.meta.uid);
}

bool IsAlike(const kube::VolumeTraits& wants, const kube::VolumeTraits& has) {
  return wants.block == has.block && wants.attributes_class == has.attributes_class &&
         (wants.access_modes & ~has.access_modes) == 0;
}

bool Reaches(const PersistentVolume& volume, const NodeInfo& info) {
  return !volume.required_node_terms || CouldMatchVolumeTerms(*volume.required_node_terms, info);
}

const MadeVolumes* MadeOf(const Snapshot& snapshot, std::string_view storage_class) {
  const auto& all = snapshot.made_volumes();
  const auto made = all.find(storage_class);
  return made == all.end() ? nullptr : &made->second;
}

// Those that are kept for a claim of this name.
const std::vector<const PersistentVolume*>& KeptFor(const MadeVolumes& made,
                                                    const PersistentVolumeClaim& claim) {
  static const std::vector<const PersistentVolume*> kNone;
  const auto kept = made.kept.find(claim.meta.FullName());
  return kept == made.kept.end() ? kNone : kept->second;
}

// Calls visit(volume) for those that the node may reach, and that aren't kept.
template <typename Visit>
void ForEachNear(const MadeVolumes& made, const NodeInfo& info, Visit visit) {
  const std::string* host = info.node->meta.Label(kube::kHostnameLabel);
  const auto on_host = host == nullptr ? made.on_host.end() : made.on_host.find(*host);
  if (on_host != made.on_host.end()) {
    for (const PersistentVolume* volume : on_host->second) visit(*volume);
  }
  for (const PersistentVolume* volume : made.elsewhere) visit(*volume);
}

// Who chooses, beside what others have chosen.
struct Chooser {
  const Snapshot& snapshot;
  const kube::Pod& pod;
  const NodeInfo& info;
  const TakenVolumes& taken;
  std::set<const PersistentVolume*> chosen = {};

  bool IsTaken(const PersistentVolume& volume) const {
    const auto by = taken.find(volume.meta.name);
    return chosen.contains(&volume) || (by != taken.end() && by->second != pod.meta.uid);
  }

  const PersistentVolume* Choose(const PersistentVolumeClaim& claim) {
    const MadeVolumes* made = MadeOf(snapshot, claim.storage_class);
    if (made == nullptr) return nullptr;
    const PersistentVolume* best = Best(*made, claim);
    if (best != nullptr) chosen.insert(best);
    return best;
  }

 private:
  const PersistentVolume* Best(const MadeVolumes& made, const PersistentVolumeClaim& claim) const {
    for (const PersistentVolume* kept : KeptFor(made, claim)) {
      const kube::VolumeTraits& has = kept->has;
      if (IsFor(*kept, claim) && has.bytes >= claim.wants.bytes && has.block == claim.wants.block &&
          has.attributes_class == claim.wants.attributes_class && !chosen.contains(kept)) {
        // If the node doesn't reach it no other will do.
        return Reaches(*kept, info) ? kept : nullptr;
      }
    }
    const PersistentVolume* best = nullptr;
    ForEachNear(made, info, [&](const PersistentVolume& volume) {
      const kube::VolumeTraits& has = volume.has;
      if (IsTaken(volume) || has.bytes < claim.wants.bytes || !IsAlike(claim.wants, has)) return;
      if (claim.selector && !claim.selector->Matches(volume.meta.labels)) return;
      if (!Reaches(volume, info)) return;
      if (best == nullptr || has.bytes < best->has.bytes) best = &volume;
    });
    return best;
  }
};

ClaimPlan PlanWith(Chooser* chooser) {
  const Snapshot& snapshot = chooser->snapshot;
  ClaimPlan plan;
  std::vector<const PersistentVolumeClaim*> claims = UnboundClaims(snapshot, chooser->pod);
  std::ranges::stable_sort(claims, {}, [](const auto* claim) { return claim->wants.bytes; });
  for (const PersistentVolumeClaim* claim : claims) {
    if (SelectedNode(*claim) == nullptr) {
      if (const PersistentVolume* volume = chooser->Choose(*claim)) {
        plan.bind.push_back({claim, volume});
        continue;
      }
    }
    const bool is_made = !IsOfMadeVolumes(snapshot, *claim);
    if (is_made && IsMadeFor(snapshot, *claim, chooser->info)) {
      plan.make.push_back(claim);
      continue;
    }
    const char* format =
        is_made ? "storage class {} of PersistentVolumeClaim {} makes no such volume for this node "
                  "(allowedTopologies, CSIStorageCapacity)"
                : "storage class {} of PersistentVolumeClaim {} has no volume left that this node "
                  "reaches";
    return {
        {},
        {},
        Rejection{RejectionCode::kVolume,
                  fmt::format(fmt::runtime(format), claim->storage_class, claim->meta.FullName())}};
  }
  return plan;
}

// "made volume SIZE MODES BLOCK ATTRIBUTES CLASS": names of classes have no spaces.
struct MadeNeed {
  int64_t bytes = 0;
  kube::VolumeTraits traits;
  std::string_view storage_class;
};

std::string TextOf(const MadeNeed& need) {
  return fmt::format("{}{} {} {} {} {}", kMadeVolume, need.bytes, need.traits.access_modes,
                     need.traits.block ? 1 : 0, need.traits.attributes_class, need.storage_class);
}

MadeNeed NeedOf(std::string_view text) {
  text.remove_prefix(kMadeVolume.size());
  std::array<std::string_view, 4> parts;
  for (std::string_view& part : parts) {
    const size_t end = text.find(' ');
    part = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  MadeNeed need;
  std::from_chars(parts[0].data(), parts[0].data() + parts[0].size(), need.bytes);
  std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), need.traits.access_modes);
  need.traits.block = parts[2] == "1";
  need.traits.attributes_class = parts[3];
  need.storage_class = text;
  return need;
}

}  // namespace

AllMadeVolumes FindMadeVolumes(const Snapshot& snapshot) {
  AllMadeVolumes all;
  std::map<std::string_view, std::set<int64_t>> sizes;
  for (const auto& [name, volume] : snapshot.persistent_volumes()) {
    if (!volume->error.empty() || volume->meta.deletion_time) continue;
    if (!volume->claim_ref.empty()) {
      const PersistentVolumeClaim* claim = snapshot.FindPersistentVolumeClaim(volume->claim_ref);
      if (claim == nullptr || !IsUnbound(*claim)) continue;
      all[volume->storage_class].kept[volume->claim_ref].push_back(volume.get());
    } else if (volume->available) {
      MadeVolumes& made = all[volume->storage_class];
      const std::string host = HostOf(*volume);
      (host.empty() ? made.elsewhere : made.on_host[host]).push_back(volume.get());
      sizes[volume->storage_class].insert(volume->has.bytes);
    }
  }
  for (const auto& [storage_class, of_class] : sizes) {
    std::vector<int64_t>& some = all.find(storage_class)->second.sizes;
    const size_t step = (of_class.size() + kMostSizes - 1) / kMostSizes;
    size_t i = 0;
    for (const int64_t size : of_class) {
      if (++i % step == 0 || i == of_class.size()) some.push_back(size);
    }
  }
  return all;
}

ClaimPlan PlanClaims(const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info,
                     const TakenVolumes& taken) {
  Chooser chooser{snapshot, pod, info, taken};
  return PlanWith(&chooser);
}

std::vector<SelectNode> SelectionsFor(const Snapshot& snapshot, std::string_view pod_uid,
                                      std::string_view node) {
  std::vector<SelectNode> selections;
  const kube::Pod* pod = snapshot.FindPod(pod_uid);
  const NodeInfo* info = snapshot.FindNode(node);
  if (pod == nullptr || info == nullptr) return selections;
  const ClaimPlan plan = PlanClaims(snapshot, *pod, *info, snapshot.taken_volumes());
  for (const auto& [claim, volume] : plan.bind) {
    const bool was_kept = IsFor(*volume, *claim);
    if (was_kept && !volume->claim_uid.empty()) continue;
    selections.push_back(
        {kube::RefOf(claim->meta), std::string(node), kube::RefOf(volume->meta), was_kept});
  }
  for (const PersistentVolumeClaim* claim : plan.make) {
    if (SelectedNode(*claim) != nullptr) continue;
    selections.push_back({kube::RefOf(claim->meta), std::string(node)});
  }
  return selections;
}

int64_t MadeRoom(const Snapshot& snapshot, const kube::Pod& pod, const NodeInfo& info) {
  Chooser chooser{snapshot, pod, info, snapshot.taken_volumes()};
  int64_t room = 0;
  while (room < kMostOnANode) {
    const ClaimPlan plan = PlanWith(&chooser);
    if (plan.why_not) return room;
    if (plan.bind.empty()) return kManyPods;
    ++room;
  }
  return room;
}

void AddMadeNeeds(const Snapshot& snapshot, const kube::Pod& pod,
                  std::vector<std::pair<std::string, int64_t>>* needs) {
  for (const PersistentVolumeClaim* claim : UnboundClaims(snapshot, pod)) {
    const MadeVolumes* made = MadeOf(snapshot, claim->storage_class);
    if (made == nullptr || !IsOfMadeVolumes(snapshot, *claim)) continue;
    const auto is_for = [&](const PersistentVolume* kept) { return IsFor(*kept, *claim); };
    if (std::ranges::any_of(KeptFor(*made, *claim), is_for)) continue;
    for (const int64_t size : made->sizes) {
      const std::string name = TextOf({size, claim->wants, claim->storage_class});
      const auto known = std::ranges::find(
          *needs, name, [](const auto& need) -> const std::string& { return need.first; });
      if (known != needs->end()) {
        ++known->second;
      } else {
        needs->emplace_back(name, 1);
      }
      if (size >= claim->wants.bytes) break;
    }
  }
}

int64_t FreeMadeVolumes(const Snapshot& snapshot, const NodeInfo& info, std::string_view text) {
  const MadeNeed need = NeedOf(text);
  const TakenVolumes& taken = snapshot.taken_volumes();
  const MadeVolumes* made = MadeOf(snapshot, need.storage_class);
  if (made == nullptr) return 0;
  int64_t free = 0;
  ForEachNear(*made, info, [&](const PersistentVolume& volume) {
    free += volume.has.bytes >= need.bytes && IsAlike(need.traits, volume.has) &&
            !taken.contains(volume.meta.name) && Reaches(volume, info);
  });
  return free;
}

Rejection LacksMadeVolumes(std::string_view text, int64_t wanted, int64_t free) {
  const MadeNeed need = NeedOf(text);
  return {
      RejectionCode::kVolume,
      fmt::format("volumes of storage class {} of {} or more: wants {}, {} free",
                  need.storage_class, kube::FormatQuantity(need.bytes, kube::QuantityUnit::kWhole),
                  wanted, std::max<int64_t>(0, free))};
}

std::string WhyNotCounted(const Snapshot& snapshot, const PersistentVolumeClaim& claim) {
  if (claim.selector) return "by their labels (spec.selector)";
  const MadeVolumes* made = MadeOf(snapshot, claim.storage_class);
  if (made == nullptr || made->elsewhere.empty()) return "";
  return fmt::format("and more than one node reaches {}", made->elsewhere.front()->meta.name);
}

}  // namespace muster::cluster
