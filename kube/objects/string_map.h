// Labels, annotations and selectors: a small map from string to string, sorted by key.
//
// Reads like std::map, but keeps its entries in one vector: a cluster has some hundred thousand of
// them, and looking one up is what predicates do most. Copies share the entries until one of them
// is changed, so that the pods of a Deployment can have their labels once (occupants.h). Every
// change invalidates iterators and references; so does, of a copy, any call that is not const. Keys
// must not be changed through iterators. Copies may be used on different threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <memory>
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

  iterator begin() { return entries_ ? Own().begin() : iterator(); }
  iterator end() { return entries_ ? Own().end() : iterator(); }
  const_iterator begin() const { return entries_ ? entries_->cbegin() : const_iterator(); }
  const_iterator end() const { return entries_ ? entries_->cend() : const_iterator(); }
  size_t size() const { return entries_ ? entries_->size() : 0; }
  bool empty() const { return size() == 0; }
  void clear() { entries_.reset(); }
  void reserve(size_t size) { Own().reserve(size); }
  void shrink_to_fit() {
    if (entries_) Own().shrink_to_fit();
  }
  // Whether a copy has the same entries, and not only equal ones.
  bool is_shared() const { return entries_.use_count() > 1; }

  iterator find(std::string_view key) {
    const auto at = std::as_const(*this).find(key) - std::as_const(*this).begin();
    return begin() + at;
  }
  const_iterator find(std::string_view key) const {
    if (!entries_) return {};
    // Keys share prefixes: lengths tell most of them apart, and need no look at what they say.
    if (entries_->size() <= kFew) {
      return std::find_if(entries_->cbegin(), entries_->cend(),
                          [key](const value_type& entry) { return entry.first == key; });
    }
    const_iterator it = lower_bound(key);
    return it != end() && it->first == key ? it : end();
  }
  bool contains(std::string_view key) const { return find(key) != end(); }
  size_t count(std::string_view key) const { return contains(key) ? 1 : 0; }
  const_iterator lower_bound(std::string_view key) const {
    return std::lower_bound(
        begin(), end(), key,
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
    Entries& entries = Own();
    const_iterator at = entries.empty() || entries.back().first < wanted
                            ? entries.cend()
                            : std::as_const(*this).lower_bound(wanted);
    if (at != entries.cend() && at->first == wanted) {
      return {entries.begin() + (at - entries.cbegin()), false};
    }
    return {entries.emplace(at, std::string(std::forward<Key>(key)),
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
  iterator erase(const_iterator at) {
    const auto index = at - std::as_const(*this).begin();
    return Own().erase(begin() + index);
  }
  size_t erase(std::string_view key) {
    const_iterator it = std::as_const(*this).find(key);
    if (it == std::as_const(*this).end()) return 0;
    erase(it);
    return 1;
  }

  bool operator==(const StringMap& other) const {
    return entries_ == other.entries_ || std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  static constexpr size_t kFew = 32;
  using Entries = std::vector<value_type>;

  // The entries, for changing them: nobody else's.
  Entries& Own() {
    if (!entries_) {
      entries_ = std::make_shared<Entries>();
    } else if (entries_.use_count() > 1) {
      entries_ = std::make_shared<Entries>(*entries_);
    } else {
      // After whatever the thread whose copy is gone has read.
      std::atomic_thread_fence(std::memory_order_acquire);
    }
    return *entries_;
  }

  std::shared_ptr<Entries> entries_;  // null: none
};

}  // namespace muster::kube
