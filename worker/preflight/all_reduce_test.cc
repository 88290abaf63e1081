#include "worker/preflight/all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "worker/preflight/bandwidth.h"
#include "worker/training/on_ranks.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kBudget = absl::Milliseconds(50);

// All-reduces of another one, after which something happens to the sums.
class Meddling : public AllReducer {
 public:
  using Meddler = std::function<void(AllReducer&, Reach, int64_t count)>;
  Meddling(AllReducer& real, Meddler meddle) : real_(real), meddle_(std::move(meddle)) {}

  int64_t size() const override { return real_.size(); }
  absl::Status Write(int64_t offset, std::span<const float> values) override {
    return real_.Write(offset, values);
  }
  absl::Status Read(int64_t offset, std::span<float> values) override {
    return real_.Read(offset, values);
  }
  absl::StatusOr<absl::Duration> AllReduce(Reach reach, int64_t count, int times) override {
    largest = std::max(largest, count);
    const auto time = real_.AllReduce(reach, count, times);
    meddle_(real_, reach, count);
    return time;
  }

  int64_t largest = 0;

 private:
  AllReducer& real_;
  const Meddler meddle_;
};

struct Trials {
  std::vector<absl::Status> statuses;
  std::vector<AllReduceFound> found;
};

// Tries on ranks whose nodes these are; `meddle` is called by rank `meddler`.
Trials Try(const std::vector<int>& nodes, int64_t size, int meddler = -1,
           const Meddling::Meddler& meddle = nullptr) {
  Trials trials;
  trials.found.resize(nodes.size());
  trials.statuses = OnRanks(static_cast<int>(nodes.size()), [&](Communicator& ranks) {
    const std::vector<int> node = RanksOfNode(nodes, ranks.rank());
    const auto reducer = MakeCpuAllReducer(ranks, node, size, kLong);
    Meddling meddling(*reducer, [&](AllReducer& real, Reach reach, int64_t count) {
      if (ranks.rank() == meddler) meddle(real, reach, count);
    });
    auto found = TryAllReduces(ranks, nodes, meddling, kBudget, kLong);
    if (found.ok()) trials.found[ranks.rank()] = *found;
    return found.status();
  });
  for (const absl::Status& status : trials.statuses) EXPECT_TRUE(status.ok()) << status;
  return trials;
}

TEST(AllReduces, AreTimedInsideNodesAndAcross) {
  for (const AllReduceFound& found : Try({0, 0, 1, 1}, 3'000'001).found) {
    EXPECT_FALSE(found.wrong.has_value());
    EXPECT_GT(found.node, 0);
    EXPECT_GT(found.across, 0);
  }
}

TEST(AllReduces, ReachOnlyWhereSomebodyIs) {
  for (const AllReduceFound& found : Try({0, 0, 0}, 1000).found) {
    EXPECT_GT(found.node, 0);
    EXPECT_EQ(found.across, 0);
  }
  for (const AllReduceFound& found : Try({0, 1, 2}, 1000).found) {
    EXPECT_EQ(found.node, 0);
    EXPECT_GT(found.across, 0);
  }
  EXPECT_EQ(Try({0}, 1000).found[0].across, 0);
}

// As replaced pods and uneven launchers make them.
TEST(AllReduces, NodesMayBeUnequalAndTheirRanksAnywhere) {
  const Trials trials = Try({0, 1, 0, 0}, 100'000);
  EXPECT_GT(trials.found[0].node, 0);
  EXPECT_EQ(trials.found[1].node, 0);
  for (const AllReduceFound& found : trials.found) {
    EXPECT_FALSE(found.wrong.has_value());
    EXPECT_GT(found.across, 0);
  }
}

TEST(AllReduces, AWrongElementIsFoundOnItsRankWhereverItIs) {
  for (const Reach wrong : {Reach::kNode, Reach::kAcross}) {
    for (const int64_t element : {int64_t{0}, int64_t{999}, int64_t{65'521}, int64_t{199'999}}) {
      const Trials trials =
          Try({0, 0, 1, 1}, 200'000, 2, [&](AllReducer& real, Reach reach, int64_t count) {
            if (reach != wrong || element >= count) return;
            float value = 0;
            ASSERT_TRUE(real.Read(element, {&value, 1}).ok());
            ++value;
            ASSERT_TRUE(real.Write(element, {&value, 1}).ok());
          });
      for (const int rank : {0, 1, 3}) EXPECT_FALSE(trials.found[rank].wrong.has_value());
      const auto& found = trials.found[2].wrong;
      ASSERT_TRUE(found.has_value()) << element;
      EXPECT_EQ(found->reach, wrong);
      EXPECT_EQ(found->element, element);
      EXPECT_EQ(found->found, found->expected + 1);
      // What is wrong isn't timed, by nobody.
      for (const AllReduceFound& each : trials.found) EXPECT_EQ(each.across, 0);
    }
  }
}

// Both halves of the message hold right sums, of other elements.
TEST(AllReduces, PartsThatChangedPlacesAreFound) {
  const Trials trials = Try({0, 0}, 1 << 18, 1, [](AllReducer& real, Reach, int64_t count) {
    std::vector<float> first(count / 2);
    std::vector<float> second(count / 2);
    ASSERT_TRUE(real.Read(0, first).ok());
    ASSERT_TRUE(real.Read(count / 2, second).ok());
    ASSERT_TRUE(real.Write(0, second).ok());
    ASSERT_TRUE(real.Write(count / 2, first).ok());
  });
  ASSERT_TRUE(trials.found[1].wrong.has_value());
  EXPECT_GT(trials.found[1].wrong->wrong_elements, 100);
}

TEST(AllReduces, GrowOnlyAsFarAsTheTimeGoes) {
  const std::vector<int> nodes = {0, 0};
  std::vector<int64_t> largest_timed(2);
  for (const absl::Status& status : OnRanks(2, [&](Communicator& ranks) {
         const std::vector<int> node = {0, 1};
         const auto reducer = MakeCpuAllReducer(ranks, node, int64_t{1} << 24, kLong);
         bool checked = false;
         Meddling meddling(*reducer, [&](AllReducer&, Reach, int64_t count) {
           if (checked) {
             largest_timed[ranks.rank()] = std::max(largest_timed[ranks.rank()], count);
           }
           checked = checked || count == reducer->size();
         });
         return TryAllReduces(ranks, nodes, meddling, absl::ZeroDuration(), kLong).status();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_THAT(largest_timed, ElementsAre(1 << 20, 1 << 20));
}

TEST(AllReduces, ARankThatIsGoneIsNamed) {
  const std::vector<int> nodes = {0, 0, 1};
  const auto statuses = OnRanks(3, [&](Communicator& ranks) -> absl::Status {
    if (ranks.rank() == 1) {
      const absl::Status lost = WithRanksAtFault(absl::UnavailableError("rank 1 was killed"), {1});
      ranks.Abort(lost);
      return lost;
    }
    const std::vector<int> node = RanksOfNode(nodes, ranks.rank());
    const auto reducer = MakeCpuAllReducer(ranks, node, 1000, kLong);
    return TryAllReduces(ranks, nodes, *reducer, kBudget, kLong).status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(RanksAtFault(status), ElementsAre(1)) << status;
  }
}

}  // namespace
}  // namespace muster::worker
