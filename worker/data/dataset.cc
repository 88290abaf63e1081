#include "worker/data/dataset.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {
namespace {

constexpr int kRounds = 6;

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

}  // namespace

ShuffledOrder::ShuffledOrder(int64_t size, uint64_t seed) : size_(size), seed_(Mix(seed + 1)) {
  while ((int64_t{1} << (2 * half_bits_)) < size) {
    ++half_bits_;
  }
}

int64_t ShuffledOrder::At(int64_t place) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(place);
  // The network permutes a range that holds ours, so walking on from a value outside leads back.
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      left ^= Mix(seed_ + round * 0x9E3779B97F4A7C15ULL + right) & mask;
      std::swap(left, right);
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

absl::StatusOr<Dataset> Dataset::Open(const std::vector<std::string>& paths, int sequence,
                                      int64_t vocabulary, uint64_t seed) {
  if (sequence < 1) {
    return absl::InvalidArgumentError(
        fmt::format("sequences of {} tokens; there must be at least 1", sequence));
  }
  Dataset dataset(sequence, seed);
  for (const std::string& path : paths) {
    absl::StatusOr<TokenFile> file = TokenFile::Open(path);
    if (!file.ok()) {
      return file.status();
    }
    if (file->vocabulary() > vocabulary) {
      return absl::InvalidArgumentError(
          fmt::format("{}: has a vocabulary of {}, the model only {}; convert the text with the "
                      "model's tokenizer, or choose another model",
                      path, file->vocabulary(), vocabulary));
    }
    dataset.first_window_.push_back(dataset.windows_);
    dataset.windows_ += std::max<int64_t>(0, (file->tokens() - 1) / sequence);
    dataset.files_.push_back(*std::move(file));
  }
  if (dataset.windows_ == 0) {
    return absl::InvalidArgumentError(fmt::format(
        "{} token files hold no sequence of {} tokens and one more", paths.size(), sequence));
  }
  return dataset;
}

void Dataset::Samples(int64_t first, std::span<int32_t> tokens, std::span<int32_t> targets) const {
  std::vector<int32_t> ids(sequence_ + 1);
  for (size_t at = 0; at < tokens.size(); at += sequence_, ++first) {
    const int64_t epoch = first / windows_;
    const ShuffledOrder order(windows_, seed_ + static_cast<uint64_t>(epoch) * 0x100000001ULL);
    Window(order.At(first % windows_), ids);
    std::copy(ids.begin(), ids.end() - 1, tokens.begin() + static_cast<ptrdiff_t>(at));
    std::copy(ids.begin() + 1, ids.end(), targets.begin() + static_cast<ptrdiff_t>(at));
  }
}

std::string Dataset::Fingerprint() const {
  constexpr int64_t kPlaces = 64;
  constexpr int64_t kTokens = 64;
  uint64_t hash = 0;
  const auto add = [&hash](int64_t value) {
    hash = Mix(hash * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(value) + 1);
  };
  for (const TokenFile& file : files_) {
    add(file.tokens());
    add(file.vocabulary());
    std::vector<int32_t> ids(std::min(kTokens, file.tokens()));
    const int64_t last = file.tokens() - static_cast<int64_t>(ids.size());
    for (int64_t place = 0; place < kPlaces; ++place) {
      file.Read(last * place / (kPlaces - 1), ids);
      std::ranges::for_each(ids, add);
    }
  }
  return fmt::format("{:016x}", hash);
}

void Dataset::Window(int64_t window, std::span<int32_t> ids) const {
  // The last file that begins at or before it; one without windows begins where the next does.
  const auto next = std::upper_bound(first_window_.begin(), first_window_.end(), window);
  const auto file = next - first_window_.begin() - 1;
  files_[file].Read((window - first_window_[file]) * sequence_, ids);
}

}  // namespace muster::worker
