#include "kube/objects/resource_list.h"

#include <algorithm>

#include "fmt/format.h"
#include "kube/objects/quantity.h"

namespace muster::kube {
namespace {

using Entries = std::vector<ResourceList::Entry>;

Entries::const_iterator LowerBound(const Entries& entries, std::string_view name) {
  return std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const ResourceList::Entry& entry, std::string_view key) { return entry.first < key; });
}

absl::Status Overflow(const std::string& name, int64_t a, char sign, int64_t b) {
  return absl::OutOfRangeError(fmt::format("{}: {} {} {} doesn't fit 64 bits", name, a, sign, b));
}

}  // namespace

// There are a few, and their lengths tell most of them apart.
const ResourceList::Entry* ResourceList::Find(std::string_view name) const {
  const auto it = std::ranges::find(entries_, name, &Entry::first);
  return it == entries_.end() ? nullptr : &*it;
}

int64_t ResourceList::Get(std::string_view name) const {
  const Entry* entry = Find(name);
  return entry == nullptr ? 0 : entry->second;
}

bool ResourceList::Has(std::string_view name) const { return Find(name) != nullptr; }

void ResourceList::Set(std::string_view name, int64_t amount) {
  auto it = entries_.begin() + (LowerBound(entries_, name) - entries_.cbegin());
  if (it != entries_.end() && it->first == name) {
    it->second = amount;
  } else {
    entries_.emplace(it, std::string(name), amount);
  }
}

absl::Status ResourceList::Add(const ResourceList& other) {
  return Combine(other, '+', [](int64_t a, int64_t b, int64_t* sum) {
    return !__builtin_add_overflow(a, b, sum);
  });
}

absl::Status ResourceList::Subtract(const ResourceList& other) {
  return Combine(other, '-', [](int64_t a, int64_t b, int64_t* difference) {
    return !__builtin_sub_overflow(a, b, difference);
  });
}

// One walk over both, first to see that all fits, then again.
template <typename Operation>
absl::Status ResourceList::Combine(const ResourceList& other, char sign, Operation operation) {
  int64_t result = 0;
  size_t at = 0;
  const auto find = [&](std::string_view name) {
    while (at < entries_.size() && entries_[at].first < name) ++at;
    return at < entries_.size() && entries_[at].first == name;
  };
  for (const auto& [name, amount] : other.entries_) {
    const int64_t current = find(name) ? entries_[at].second : 0;
    if (!operation(current, amount, &result)) return Overflow(name, current, sign, amount);
  }
  at = 0;
  for (const auto& [name, amount] : other.entries_) {
    if (!find(name)) entries_.emplace(entries_.begin() + static_cast<ptrdiff_t>(at), name, 0);
    operation(entries_[at].second, amount, &entries_[at].second);
  }
  return absl::OkStatus();
}

void ResourceList::DropZeros() {
  std::erase_if(entries_, [](const Entry& entry) { return entry.second == 0; });
}

void ResourceList::Max(const ResourceList& other) {
  for (const auto& [name, amount] : other.entries_) {
    if (!Has(name) || Get(name) < amount) Set(name, amount);
  }
}

bool ResourceList::Covers(const ResourceList& request) const {
  return FirstShortage(request) == nullptr;
}

const ResourceList::Entry* ResourceList::FirstShortage(const ResourceList& request) const {
  for (const Entry& wanted : request.entries_) {
    if (wanted.second > 0 && wanted.second > Get(wanted.first)) return &wanted;
  }
  return nullptr;
}

std::string ResourceList::ToString() const {
  std::string text;
  for (const auto& [name, amount] : entries_) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}={}", name, FormatQuantity(amount, UnitOf(name)));
  }
  return text;
}

}  // namespace muster::kube
