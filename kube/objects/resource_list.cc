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

int64_t ResourceList::Get(std::string_view name) const {
  auto it = LowerBound(entries_, name);
  return it != entries_.end() && it->first == name ? it->second : 0;
}

bool ResourceList::Has(std::string_view name) const {
  auto it = LowerBound(entries_, name);
  return it != entries_.end() && it->first == name;
}

void ResourceList::Set(std::string_view name, int64_t amount) {
  auto it = entries_.begin() + (LowerBound(entries_, name) - entries_.cbegin());
  if (it != entries_.end() && it->first == name) {
    it->second = amount;
  } else {
    entries_.emplace(it, std::string(name), amount);
  }
}

absl::Status ResourceList::Add(const ResourceList& other) {
  int64_t sum = 0;
  for (const auto& [name, amount] : other.entries_) {
    int64_t current = Get(name);
    if (__builtin_add_overflow(current, amount, &sum)) return Overflow(name, current, '+', amount);
  }
  for (const auto& [name, amount] : other.entries_) Set(name, Get(name) + amount);
  return absl::OkStatus();
}

absl::Status ResourceList::Subtract(const ResourceList& other) {
  int64_t difference = 0;
  for (const auto& [name, amount] : other.entries_) {
    int64_t current = Get(name);
    if (__builtin_sub_overflow(current, amount, &difference)) {
      return Overflow(name, current, '-', amount);
    }
  }
  for (const auto& [name, amount] : other.entries_) Set(name, Get(name) - amount);
  return absl::OkStatus();
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
