#include "worker/preflight/all_reduce.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "worker/preflight/bandwidth.h"

namespace muster::worker {
namespace {

// Elements that are made, moved and compared at a time: a prime, so that parts of a message that
// change places aren't equal.
constexpr int64_t kPeriod = 65'521;
// A small message takes other ways through NCCL than a large one.
constexpr int64_t kSmall = 1'000;
constexpr int64_t kLeastTimed = int64_t{1} << 20;
constexpr int kMostTimes = 100'000;

class CpuAllReducer : public AllReducer {
 public:
  CpuAllReducer(Communicator& ranks, std::span<const int> node, int64_t size,
                absl::Duration timeout)
      : ranks_(ranks), node_(node), timeout_(timeout), values_(size) {}

  int64_t size() const override { return static_cast<int64_t>(values_.size()); }

  absl::Status Write(int64_t offset, std::span<const float> values) override {
    std::ranges::copy(values, values_.begin() + offset);
    return absl::OkStatus();
  }

  absl::Status Read(int64_t offset, std::span<float> values) override {
    std::copy_n(values_.begin() + offset, values.size(), values.begin());
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Duration> AllReduce(Reach reach, int64_t count, int times) override {
    const std::span<float> values = std::span(values_).first(count);
    const absl::Time begin = absl::Now();
    for (int i = 0; i < times; ++i) {
      absl::Status status = reach == Reach::kNode
                                ? ranks_.AllReduceWithin(node_, values, Reduction::kSum, timeout_)
                                : ranks_.AllReduce(values, Reduction::kSum, timeout_);
      if (!status.ok()) return status;
    }
    return (absl::Now() - begin) / times;
  }

 private:
  Communicator& ranks_;
  const std::span<const int> node_;
  const absl::Duration timeout_;
  std::vector<float> values_;
};

// A whole number from 0 to `most`, by SplitMix64's finalizer.
float Number(int rank, int64_t element, uint64_t most) {
  uint64_t bits = (static_cast<uint64_t>(rank) << 32U) + static_cast<uint64_t>(element) + 1;
  bits *= 0x9E3779B97F4A7C15;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EB;
  return static_cast<float>((bits ^ (bits >> 31U)) % (most + 1));
}

class Trial {
 public:
  Trial(Communicator& ranks, std::span<const int> nodes, AllReducer& reducer, absl::Duration budget,
        absl::Duration timeout)
      : ranks_(ranks), reducer_(reducer), budget_(budget), timeout_(timeout) {
    own_node_ = RanksOfNode(nodes, ranks.rank());
    alone_ = true;
    for (const int node : nodes) {
      one_node_ = one_node_ && node == nodes[0];
      alone_ = alone_ && std::ranges::count(nodes, node) == 1;
    }
  }

  absl::StatusOr<AllReduceFound> Run() {
    for (const Reach reach : {Reach::kNode, Reach::kAcross}) {
      // Each where there is somebody to reach, on any node: all ranks take part. A job of one rank
      // shows at least that its library works.
      if (reach == Reach::kNode ? alone_ && !one_node_ : one_node_) continue;
      for (const int64_t count : {std::min(kSmall, reducer_.size()), reducer_.size()}) {
        if (absl::Status status = Check(reach, count); !status.ok()) return status;
      }
      const absl::StatusOr<bool> wrong = AgreeOnAny(ranks_, found_.wrong.has_value(), timeout_);
      if (!wrong.ok()) return wrong.status();
      if (*wrong || ranks_.world_size() == 1) break;
      absl::StatusOr<double> best = Time(reach);
      if (!best.ok()) return best.status();
      (reach == Reach::kNode ? found_.node : found_.across) = *best;
    }
    return found_;
  }

 private:
  std::span<const int> Group(Reach reach) const {
    return reach == Reach::kNode ? own_node_ : ranks_.everyone();
  }

  // Every partial sum is below 2^24, so no order of additions rounds it.
  absl::Status Check(Reach reach, int64_t count) {
    const std::span<const int> group = Group(reach);
    const uint64_t most = (uint64_t{1} << 24U) / group.size() - 1;
    const int64_t period = std::min(kPeriod, count);
    std::vector<float> own(period);
    std::vector<float> sums(period);
    for (int64_t i = 0; i < period; ++i) {
      own[i] = Number(ranks_.rank(), i, most);
      for (const int rank : group) sums[i] += Number(rank, i, most);
    }
    for (int64_t offset = 0; offset < count; offset += period) {
      const auto part = std::span(own).first(std::min(period, count - offset));
      if (absl::Status status = reducer_.Write(offset, part); !status.ok()) return status;
    }
    if (auto time = reducer_.AllReduce(reach, count, 1); !time.ok()) return time.status();
    for (int64_t offset = 0; offset < count; offset += period) {
      const auto part = std::span(own).first(std::min(period, count - offset));
      if (absl::Status status = reducer_.Read(offset, part); !status.ok()) return status;
      if (std::equal(part.begin(), part.end(), sums.begin())) continue;
      for (size_t i = 0; i < part.size(); ++i) {
        if (part[i] != sums[i]) Note(reach, offset + static_cast<int64_t>(i), part[i], sums[i]);
      }
    }
    return absl::OkStatus();
  }

  void Note(Reach reach, int64_t element, float found, float expected) {
    if (!found_.wrong.has_value()) {
      found_.wrong = {.reach = reach, .element = element, .found = found, .expected = expected};
    }
    ++found_.wrong->wrong_elements;
  }

  // All ranks take the slowest one's times, and so the same way.
  absl::StatusOr<double> Time(Reach reach) {
    const auto ranks = static_cast<int>(Group(reach).size());
    double best = 0;
    absl::Duration spent;
    // What was added up so often is no number any more.
    const std::vector<float> zeros(std::min(reducer_.size(), kLeastTimed));
    for (int64_t at = 0; at < reducer_.size(); at += static_cast<int64_t>(zeros.size())) {
      const auto part = std::span(zeros).first(
          std::min<int64_t>(static_cast<int64_t>(zeros.size()), reducer_.size() - at));
      if (absl::Status status = reducer_.Write(at, part); !status.ok()) return status;
    }
    for (int64_t count = std::min(kLeastTimed, reducer_.size());;
         count = std::min(4 * count, reducer_.size())) {
      const absl::StatusOr<absl::Duration> once = Slowest(reach, count, 1);
      if (!once.ok()) return once.status();
      const bool last = count == reducer_.size();
      // The largest message, whose rate counts most, gets what is left.
      const absl::Duration time = last ? budget_ - spent - *once : budget_ / 8;
      absl::Duration rest;
      const auto times = std::clamp<int64_t>(absl::IDivDuration(time, *once, &rest), 1, kMostTimes);
      const absl::StatusOr<absl::Duration> each = Slowest(reach, count, static_cast<int>(times));
      if (!each.ok()) return each.status();
      best = std::max(best,
                      BusBandwidth(ranks, count * static_cast<int64_t>(sizeof(float)), *own_time_));
      spent += *once + times * *each;
      // The next size takes four times as long, twice.
      if (last || spent + 8 * *each > budget_) return best;
    }
  }

  absl::StatusOr<absl::Duration> Slowest(Reach reach, int64_t count, int times) {
    // Nobody's time holds what another one comes late.
    if (absl::Status status = ranks_.Barrier(timeout_); !status.ok()) return status;
    own_time_ = reducer_.AllReduce(reach, count, times);
    if (!own_time_.ok()) return own_time_.status();
    auto seconds = static_cast<float>(absl::ToDoubleSeconds(*own_time_));
    absl::Status status = ranks_.AllReduce({&seconds, 1}, Reduction::kMax, timeout_);
    if (!status.ok()) return status;
    return std::max(absl::Seconds(seconds), absl::Nanoseconds(1));
  }

  Communicator& ranks_;
  AllReducer& reducer_;
  const absl::Duration budget_;
  const absl::Duration timeout_;
  std::vector<int> own_node_;
  bool one_node_ = true;
  bool alone_ = true;  // every rank on its node
  absl::StatusOr<absl::Duration> own_time_ = absl::ZeroDuration();
  AllReduceFound found_;
};

}  // namespace

std::unique_ptr<AllReducer> MakeCpuAllReducer(Communicator& ranks, std::span<const int> node,
                                              int64_t size, absl::Duration timeout) {
  return std::make_unique<CpuAllReducer>(ranks, node, size, timeout);
}

absl::StatusOr<AllReduceFound> TryAllReduces(Communicator& ranks, std::span<const int> nodes,
                                             AllReducer& reducer, absl::Duration budget,
                                             absl::Duration timeout) {
  return Trial(ranks, nodes, reducer, budget, timeout).Run();
}

std::vector<int> RanksOfNode(std::span<const int> nodes, int rank) {
  std::vector<int> ranks;
  for (size_t other = 0; other < nodes.size(); ++other) {
    if (nodes[other] == nodes[rank]) ranks.push_back(static_cast<int>(other));
  }
  return ranks;
}

}  // namespace muster::worker
