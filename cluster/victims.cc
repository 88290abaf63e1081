#include "cluster/victims.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "cluster/free_devices.h"

namespace muster::cluster {
namespace {

using Pods = std::vector<const kube::Pod*>;

// A member that its group can do without, or a group.
struct Entry {
  size_t group = 0;
  bool whole = false;
  Pods pods;
  int64_t devices = 0;
};

int64_t DevicesOf(const Pods& pods) {
  int64_t devices = 0;
  for (const kube::Pod* pod : pods) {
    for (const auto& [resource, amount] : pod->spec->requests.entries()) {
      if (!FreeDevices::Counts(resource)) continue;
      devices = std::min(devices + std::min(amount, FreeDevices::kMost), FreeDevices::kMost);
    }
  }
  return devices;
}

class Choice {
 public:
  Choice(const std::vector<EvictableGroup>& groups, const DisruptionBudgets& budgets,
         const Pods& leaving, const FitsWithout& fits)
      : budgets_(budgets), fits_(fits) {
    // Beyond a budget that has shrunk since they can only use it up.
    for (const kube::Pod* pod : leaving) {
      leaving_.push_back(pod);
      if (!budgets_.Allow(leaving_)) leaving_.pop_back();
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      const EvictableGroup& group = groups[i];
      for (size_t at = group.members.size(); at > group.needed; --at) {
        Add({.group = i, .pods = {group.members[at - 1]}});
      }
      if (group.needed > 0) Add({.group = i, .whole = true, .pods = group.members});
    }
    std::ranges::stable_sort(entries_, {}, [&groups](const Entry& entry) {
      const EvictableGroup& of = groups[entry.group];
      return std::tuple(entry.whole, of.priority, -absl::ToUnixNanos(of.created), entry.devices,
                        std::string_view(of.name));
    });
  }

  std::optional<Victims> Make() {
    std::optional<Indices> found = Least(All());
    if (!found) return std::nullopt;
    if (!IsAllowed(*found)) {
      Indices chosen;
      found = Search(static_cast<int>(entries_.size()) - 1, chosen)
                  ? std::optional(std::move(chosen))
                  : std::nullopt;
      if (!found && trials_ > kMostTrials) found = Least(WithinBudgets());
    }
    if (!found) return std::nullopt;
    return VictimsOf(*found);
  }

 private:
  using Indices = std::vector<size_t>;  // of entries_, in any order

  void Add(Entry entry) {
    entry.devices = DevicesOf(entry.pods);
    entries_.push_back(std::move(entry));
    // What no budget allows by itself needn't be tried with others.
    if (!IsAllowed({entries_.size() - 1})) entries_.pop_back();
  }

  bool GoesAnyway(size_t index, const Indices& chosen) const {
    const Entry& entry = entries_[index];
    return !entry.whole && std::ranges::any_of(chosen, [&](size_t other) {
      return entries_[other].whole && entries_[other].group == entry.group;
    });
  }

  Pods PodsOf(const Indices& chosen) const {
    Pods pods;
    for (size_t index : chosen) {
      if (!GoesAnyway(index, chosen))
        std::ranges::copy(entries_[index].pods, std::back_inserter(pods));
    }
    return pods;
  }

  bool IsAllowed(const Indices& chosen) const {
    Pods pods = PodsOf(chosen);
    pods.insert(pods.end(), leaving_.begin(), leaving_.end());
    return budgets_.Allow(pods);
  }

  Indices All() const {
    Indices all(entries_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  Indices WithinBudgets() const {
    Indices within;
    for (size_t i = 0; i < entries_.size(); ++i) {
      within.push_back(i);
      if (!IsAllowed(within)) within.pop_back();
    }
    return within;
  }

  // The least set among these, in order, budgets aside.
  std::optional<Indices> Least(const Indices& among) const {
    if (!fits_(PodsOf(among))) return std::nullopt;
    Indices chosen;
    size_t undecided = among.size();
    while (true) {
      // The first so many of them suffice, besides those that are chosen, and no fewer do.
      size_t low = 0;
      size_t high = undecided;
      while (low < high) {
        const size_t middle = (low + high) / 2;
        Indices gone = chosen;
        gone.insert(gone.end(), among.begin(), among.begin() + static_cast<ptrdiff_t>(middle));
        if (fits_(PodsOf(gone))) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      if (high == 0) return chosen;
      chosen.push_back(among[high - 1]);
      undecided = high - 1;
    }
  }

  // Decides about the entries up to this one, the least dispensable first: it stays, if what is
  // left may still suffice, and goes otherwise.
  bool Search(int index, Indices& chosen) {
    if (++trials_ > kMostTrials) return false;
    Indices most = chosen;
    for (int i = 0; i <= index; ++i) {
      chosen.push_back(static_cast<size_t>(i));
      if (IsAllowed(chosen)) most.push_back(static_cast<size_t>(i));
      chosen.pop_back();
    }
    if (!fits_(PodsOf(most))) return false;
    if (index < 0 || Search(index - 1, chosen)) return true;
    const auto entry = static_cast<size_t>(index);
    if (GoesAnyway(entry, chosen)) return false;
    chosen.push_back(entry);
    if (IsAllowed(chosen) && Search(index - 1, chosen)) return true;
    chosen.pop_back();
    return false;
  }

  Victims VictimsOf(Indices chosen) const {
    std::ranges::sort(chosen);
    Victims victims;
    for (size_t index : chosen) {
      const Entry& entry = entries_[index];
      if (entry.whole) {
        victims.whole.push_back(entry.group);
      } else if (!GoesAnyway(index, chosen)) {
        victims.surplus.push_back(entry.pods.front());
      }
    }
    victims.pods = PodsOf(chosen);
    return victims;
  }

  const DisruptionBudgets& budgets_;
  Pods leaving_;
  const FitsWithout& fits_;
  std::vector<Entry> entries_;
  int trials_ = 0;
};

}  // namespace

std::optional<Victims> ChooseVictims(const std::vector<EvictableGroup>& groups,
                                     const DisruptionBudgets& budgets,
                                     const std::vector<const kube::Pod*>& leaving,
                                     const FitsWithout& fits) {
  return Choice(groups, budgets, leaving, fits).Make();
}

}  // namespace muster::cluster
