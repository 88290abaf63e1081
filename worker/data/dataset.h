// Which tokens each step trains on.
//
// The token files are cut into windows of T + 1 tokens, each beginning T after the one before, so
// that every token is a target once; no window crosses files, and what is left at a file's end is
// not used. Sample 0, 1, 2, ... are the windows in an order that the seed decides, all of them once
// in each epoch, in another order each time. Step s of a run with G sequences a step takes samples
// s * G to s * G + G - 1, and each rank a part of those: so the order depends neither on the number
// of ranks nor on when a run was interrupted, and to resume needs nothing but the step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/token_file.h"

namespace muster::worker {

// A permutation of [0, size) that is computed place by place, without a table: a Feistel network on
// the next power of four, walked until it falls into range.
class ShuffledOrder {
 public:
  ShuffledOrder(int64_t size, uint64_t seed);
  int64_t At(int64_t place) const;  // of 0 <= place < size

 private:
  int64_t size_;
  uint64_t seed_;
  int half_bits_ = 1;
};

// May be read by several threads.
class Dataset {
 public:
  // The files' order counts. InvalidArgument if their vocabulary is above `vocabulary`, or if there
  // isn't a single window of `sequence` + 1 tokens.
  static absl::StatusOr<Dataset> Open(const std::vector<std::string>& paths, int sequence,
                                      int64_t vocabulary, uint64_t seed);

  int64_t windows() const { return windows_; }
  int64_t tokens() const { return windows_ * sequence_; }

  // The same for files of the same tokens, wherever they lie; most likely another one for others:
  // of each file it has the size, the vocabulary and 64 tokens at each of 64 places.
  std::string Fingerprint() const;

  // Sequences `first` to `first` + n - 1 of the run, n = tokens.size() / T: T ids each, and the id
  // that follows each. The sizes must be equal multiples of T.
  void Samples(int64_t first, std::span<int32_t> tokens, std::span<int32_t> targets) const;

 private:
  Dataset(int sequence, uint64_t seed) : sequence_(sequence), seed_(seed) {}
  void Window(int64_t window, std::span<int32_t> ids) const;

  int sequence_;
  uint64_t seed_;
  std::vector<TokenFile> files_;
  std::vector<int64_t> first_window_;  // of each file
  int64_t windows_ = 0;
};

}  // namespace muster::worker
