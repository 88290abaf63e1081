// Labels, annotations and selectors: a small map from string to string, sorted by key.
//
// Reads like std::map, but keeps its entries in one vector: a cluster has some hundred thousand of
// them, and looking one up is what predicates do most. Every change invalidates iterators and
// references. Keys must not be changed through iterators.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::kube {

class StringMap {
 public:
  using key_type = std::string;
  using mapped_type = std::string;
  using value_type = std::pair<std::string, std::string>;
  using iterator = std::vector<value_type>::iterator;
  using const_iterator = std::vector<value_type>::const_iterator;
  using size_type = size_t;

  StringMap() = default;
  StringMap(std::initializer_list<value_type> entries)
      : StringMap(entries.begin(), entries.end()) {}
  // The first of equal keys wins.
  template <typename Iterator>
  StringMap(Iterator first, Iterator last) {
    for (; first != last; ++first) emplace(first->first, first->second);
  }

  iterator begin() { return entries_.begin(); }
  iterator end() { return entries_.end(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }
  void reserve(size_t size) { entries_.reserve(size); }
  void shrink_to_fit() { entries_.shrink_to_fit(); }

  iterator find(std::string_view key) {
    return entries_.begin() + (std::as_const(*this).find(key) - entries_.cbegin());
  }
  const_iterator find(std::string_view key) const {
    const_iterator it = lower_bound(key);
    return it != entries_.end() && it->first == key ? it : entries_.end();
  }
  bool contains(std::string_view key) const { return find(key) != end(); }
  size_t count(std::string_view key) const { return contains(key) ? 1 : 0; }
  const_iterator lower_bound(std::string_view key) const {
    return std::lower_bound(
        entries_.begin(), entries_.end(), key,
        [](const value_type& entry, std::string_view wanted) { return entry.first < wanted; });
  }
  const std::string& at(std::string_view key) const {
    const_iterator it = find(key);
    if (it == end()) throw std::out_of_range("StringMap: no such key");
    return it->second;
  }
  std::string& operator[](std::string_view key) {
    return emplace(std::string(key), std::string()).first->second;
  }

  // Doesn't change an entry that is there; the second is true if there was none.
  template <typename Key, typename Value>
  std::pair<iterator, bool> emplace(Key&& key, Value&& value) {
    const std::string_view wanted = key;
    const_iterator at =
        entries_.empty() || entries_.back().first < wanted ? entries_.cend() : lower_bound(wanted);
    if (at != entries_.cend() && at->first == wanted) {
      return {entries_.begin() + (at - entries_.cbegin()), false};
    }
    return {entries_.emplace(at, std::string(std::forward<Key>(key)),
                             std::string(std::forward<Value>(value))),
            true};
  }
  std::pair<iterator, bool> try_emplace(std::string key, std::string value = {}) {
    return emplace(std::move(key), std::move(value));
  }
  std::pair<iterator, bool> insert(value_type entry) {
    return emplace(std::move(entry.first), std::move(entry.second));
  }
  template <typename Iterator>
  void insert(Iterator first, Iterator last) {
    for (; first != last; ++first) emplace(first->first, first->second);
  }
  std::pair<iterator, bool> insert_or_assign(std::string key, std::string value) {
    auto result = emplace(std::move(key), std::string());
    result.first->second = std::move(value);
    return result;
  }
  template <typename Key, typename Value>
  iterator emplace_hint(const_iterator, Key&& key, Value&& value) {
    return emplace(std::forward<Key>(key), std::forward<Value>(value)).first;
  }
  iterator erase(const_iterator at) { return entries_.erase(at); }
  size_t erase(std::string_view key) {
    const_iterator it = find(key);
    if (it == end()) return 0;
    entries_.erase(it);
    return 1;
  }

  bool operator==(const StringMap&) const = default;

 private:
  std::vector<value_type> entries_;
};

}  // namespace muster::kube
