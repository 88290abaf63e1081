#include "worker/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/checkpoint/checkpoint_names.h"
#include "worker/checkpoint/test_directory.h"
#include "worker/checkpoint/test_small_disk.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kParameters = 30'000;

// What element i of each kind is at that step.
float ValueAt(StateKind kind, int64_t step, int64_t i) {
  return static_cast<float>(step * 7 + static_cast<int64_t>(kind)) + static_cast<float>(i) / 64;
}

struct State {
  explicit State(int64_t step, int64_t begin = 0, int64_t end = kParameters) : offset(begin) {
    for (int64_t i = begin; i < end; ++i) {
      parameters.push_back(ValueAt(StateKind::kParameters, step, i));
      first.push_back(ValueAt(StateKind::kFirstMoment, step, i));
      second.push_back(ValueAt(StateKind::kSecondMoment, step, i));
    }
  }
  StateRange range() const {
    return {
        .offset = offset, .parameters = parameters, .first_moment = first, .second_moment = second};
  }
  int64_t offset;
  std::vector<float> parameters, first, second;
};

// Writes and commits that step as `world_size` ranks would, or drops what they have written of it.
absl::Status Save(const std::string& directory, int64_t step, int world_size, int keep = 2) {
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  for (int rank = 0; rank < world_size; ++rank) {
    auto writer = CheckpointWriter::Create({directory, rank, world_size, keep});
    if (!writer.ok()) {
      return writer.status();
    }
    writers.push_back(*std::move(writer));
  }
  const CheckpointInfo info = {
      .step = step, .parameters = kParameters, .world_size = world_size, .identity = "tiny"};
  absl::Status status;
  for (int rank = 0; rank < world_size; ++rank) {
    const State state(step, kParameters * rank / world_size, kParameters * (rank + 1) / world_size);
    status.Update(writers[rank]->Begin(info, CopyState({state.range()})));
  }
  for (const auto& writer : writers) {
    status.Update(writer->Wait());
  }
  if (status.ok()) {
    status = writers[0]->Commit();
  }
  if (!status.ok()) {
    EXPECT_TRUE(writers[0]->Drop().ok());
  }
  return status;
}

// OK if the last committed checkpoint holds exactly what was written at its step.
absl::StatusOr<int64_t> LoadLast(const std::string& directory) {
  const absl::StatusOr<std::vector<int64_t>> steps = CommittedSteps(directory);
  if (!steps.ok() || steps->empty()) {
    return absl::NotFoundError("no committed checkpoint");
  }
  absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(directory, steps->back());
  if (!reader.ok()) {
    return reader.status();
  }
  for (const StateKind kind :
       {StateKind::kParameters, StateKind::kFirstMoment, StateKind::kSecondMoment}) {
    std::vector<float> values(kParameters);
    if (absl::Status status = reader->Read(kind, 0, values); !status.ok()) {
      return status;
    }
    for (int64_t i = 0; i < kParameters; ++i) {
      if (values[i] != ValueAt(kind, steps->back(), i)) {
        return absl::DataLossError("a value of another step");
      }
    }
  }
  return steps->back();
}

TEST(Checkpoint, IsReadAtAnyWorldSize) {
  const TestDirectory directory;
  ASSERT_TRUE(Save(directory.path(), 5, 3).ok());
  CheckpointReader reader = *CheckpointReader::Open(directory.path(), 5);
  EXPECT_EQ(reader.info().world_size, 3);
  EXPECT_EQ(reader.info().identity, "tiny");
  // A fourth rank of seven, across the first shard's end.
  const State expected(5, 8'571, 12'857);
  std::vector<float> values(expected.first.size());
  ASSERT_TRUE(reader.Read(StateKind::kFirstMoment, 8'571, values).ok());
  EXPECT_EQ(values, expected.first);
  EXPECT_EQ(reader.Read(StateKind::kFirstMoment, kParameters - 1, values).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(Checkpoint, OnlyTheLastOnesAreKeptAndOnlyCommittedOnesCount) {
  const TestDirectory directory;
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(Save(directory.path(), step, 1, /*keep=*/2).ok());
  }
  auto writer = *CheckpointWriter::Create({directory.path(), 0, 1, 2});
  const State state(5);
  ASSERT_TRUE(writer
                  ->Begin({.step = 5, .parameters = kParameters, .identity = "t"},
                          CopyState({state.range()}))
                  .ok());
  EXPECT_EQ(writer->Begin({.step = 6, .identity = "t"}, CopyState({})).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(writer->Wait().ok());
  EXPECT_THAT(*CommittedSteps(directory.path()), ElementsAre(3, 4));
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(*CommittedSteps(directory.path()), ElementsAre(4, 5));
}

// A copy that comes, or fails to, when the test says so.
class LateCopy : public StateCopy {
 public:
  explicit LateCopy(std::shared_future<absl::StatusOr<std::vector<StateRange>>> ranges)
      : ranges_(std::move(ranges)) {}
  absl::StatusOr<std::vector<StateRange>> Ranges() const override { return ranges_.get(); }

 private:
  std::shared_future<absl::StatusOr<std::vector<StateRange>>> ranges_;
};

TEST(Checkpoint, ACopyThatIsStillOnItsWayIsWaitedForByTheWriterAlone) {
  const TestDirectory directory;
  auto writer = *CheckpointWriter::Create({directory.path(), 0, 1, 2});
  std::promise<absl::StatusOr<std::vector<StateRange>>> ranges;
  ASSERT_TRUE(writer
                  ->Begin({.step = 5, .parameters = kParameters, .identity = "t"},
                          std::make_unique<LateCopy>(ranges.get_future().share()))
                  .ok());
  EXPECT_FALSE(writer->Written());
  const State state(5);
  ranges.set_value(std::vector<StateRange>{state.range()});
  ASSERT_TRUE(writer->Wait().ok());
  ASSERT_TRUE(writer->Commit().ok());
  std::vector<float> values(kParameters);
  ASSERT_TRUE(
      CheckpointReader::Open(directory.path(), 5)->Read(StateKind::kSecondMoment, 0, values).ok());
  EXPECT_EQ(values, state.second);
}

TEST(Checkpoint, ACopyThatFailsIsTheWritersError) {
  const TestDirectory directory;
  auto writer = *CheckpointWriter::Create({directory.path(), 0, 1, 2});
  std::promise<absl::StatusOr<std::vector<StateRange>>> ranges;
  ranges.set_value(absl::InternalError("the device is gone"));
  ASSERT_TRUE(writer
                  ->Begin({.step = 5, .parameters = kParameters, .identity = "t"},
                          std::make_unique<LateCopy>(ranges.get_future().share()))
                  .ok());
  EXPECT_EQ(writer->Wait().message(), "the device is gone");
  EXPECT_THAT(*CommittedSteps(directory.path()), ElementsAre());
}

TEST(Checkpoint, AWriteThatIsGivenUpLeavesNoCheckpoint) {
  const TestDirectory directory;
  ASSERT_TRUE(Save(directory.path(), 5, 1).ok());
  auto writer = *CheckpointWriter::Create({directory.path(), 0, 1, 2});
  const State state(6);
  std::promise<absl::StatusOr<std::vector<StateRange>>> ranges;
  ASSERT_TRUE(writer
                  ->Begin({.step = 6, .parameters = kParameters, .identity = "tiny"},
                          std::make_unique<LateCopy>(ranges.get_future().share()))
                  .ok());
  writer->GiveUp();
  ranges.set_value(std::vector<StateRange>{state.range()});
  EXPECT_EQ(writer->Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(*LoadLast(directory.path()), 5);
  // The next one is written all the same.
  ASSERT_TRUE(writer
                  ->Begin({.step = 6, .parameters = kParameters, .identity = "tiny"},
                          CopyState({state.range()}))
                  .ok());
  ASSERT_TRUE(writer->Wait().ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(*LoadLast(directory.path()), 6);
}

TEST(Checkpoint, ACopyKeepsWhatWasThere) {
  State state(5);
  const std::unique_ptr<StateCopy> copy = CopyState({state.range()});
  const State before = state;
  for (auto* values : {&state.parameters, &state.first, &state.second}) values->assign(3, -1);
  const StateRange range = copy->Ranges()->front();
  EXPECT_TRUE(std::ranges::equal(range.parameters, before.parameters));
  EXPECT_TRUE(std::ranges::equal(range.first_moment, before.first));
  EXPECT_TRUE(std::ranges::equal(range.second_moment, before.second));
}

TEST(Checkpoint, AStepThatIsThereAlreadyIsReplaced) {
  const TestDirectory directory;
  ASSERT_TRUE(Save(directory.path(), 5, 3).ok());
  ASSERT_TRUE(Save(directory.path(), 5, 2).ok());
  EXPECT_EQ(CheckpointReader::Open(directory.path(), 5)->info().world_size, 2);
  EXPECT_EQ(*LoadLast(directory.path()), 5);
}

TEST(Checkpoint, DamageIsFoundAndNamed) {
  const TestDirectory directory;
  ASSERT_TRUE(Save(directory.path(), 5, 2).ok());
  const std::string shard = ShardPath(CheckpointPath(directory.path(), 5), 1, 2);
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file.put('\x55');
  }
  EXPECT_THAT(std::string(LoadLast(directory.path()).status().message()),
              HasSubstr("shard-00001-of-00002.safetensors: damaged: its checksum is"));
  std::filesystem::resize_file(shard, 5000);
  EXPECT_THAT(std::string(LoadLast(directory.path()).status().message()), HasSubstr("cut short"));
  std::filesystem::remove(shard);
  EXPECT_EQ(LoadLast(directory.path()).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(ManifestPath(CheckpointPath(directory.path(), 5))) << "{}";
  EXPECT_THAT(std::string(LoadLast(directory.path()).status().message()),
              HasSubstr("is not a checkpoint's manifest"));
}

TEST(Checkpoint, ADirectoryThatCannotBeMadeIsSaidBeforeTraining) {
  const TestDirectory directory;
  std::ofstream(directory / "file") << "x";
  EXPECT_FALSE(CheckpointWriter::Create({directory / "file", 0, 1, 1}).ok());
  EXPECT_EQ(CheckpointWriter::Create({directory / "d", 0, 1, 0}).status().message(),
            "0 checkpoints to keep; there must be at least 1");
}

// What a training process does until it is killed.
[[noreturn]] void SaveForEver(const std::string& directory, int64_t step) {
  while (Save(directory, step, 2).ok()) {
    ++step;
  }
  ::_exit(1);
}

TEST(Checkpoint, AfterAKillAtAnyMomentTheLastCommittedOneLoads) {
  constexpr int kKills = 50;
  const TestDirectory directory;
  ASSERT_TRUE(Save(directory.path(), 1, 2).ok());
  std::mt19937 random(7);
  std::uniform_int_distribution<int> delay(0, 40'000);
  int64_t last = 1;
  int interrupted = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      SaveForEver(directory.path(), last + 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
      interrupted += entry.path().extension() == kPartialSuffix ? 1 : 0;
    }
    const absl::StatusOr<int64_t> loaded = LoadLast(directory.path());
    ASSERT_TRUE(loaded.ok()) << "kill " << kill << ": " << loaded.status();
    ASSERT_GE(*loaded, last);
    last = *loaded;
  }
  RecordProperty("committed", static_cast<int>(last));
  RecordProperty("interrupted", interrupted);
  EXPECT_GT(interrupted, 0) << "no kill came during a write: nothing was tested";
}

void ExpectToldToMakeRoom(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("free or add space"));
}

TEST(Checkpoint, AfterAFullDiskTheLastCommittedOneLoadsAndNothingIsLeftOfTheOther) {
  constexpr int kRounds = 20;
  const TestDirectory directory;
  SmallDisk disk(directory.path(), 2 << 20);
  ASSERT_EQ(disk.error(), "") << "this test needs root and mount namespaces";
  const int64_t empty = disk.free();
  ASSERT_TRUE(Save(directory.path(), 1, 2).ok());
  const int64_t needed = empty - disk.free();
  std::mt19937 random(7);
  std::uniform_int_distribution<int64_t> pages(0, needed / disk.page() - 1);
  for (int round = 0; round < kRounds; ++round) {
    // The first time all that is missing is the manifest's place.
    const int64_t room = round == 0 ? needed - disk.page() : pages(random) * disk.page();
    ASSERT_TRUE(disk.LeaveFree(room));
    ASSERT_EQ(disk.free(), room);
    const absl::Status status = Save(directory.path(), 2 + round, 2);
    ExpectToldToMakeRoom(status);
    EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
    EXPECT_EQ(disk.free(), room) << "what room there is should be the next checkpoint's";
    ASSERT_EQ(*LoadLast(directory.path()), 1);
  }
  ASSERT_TRUE(disk.LeaveFree(needed));
  EXPECT_TRUE(Save(directory.path(), 30, 2).ok());
  EXPECT_EQ(*LoadLast(directory.path()), 30);
}

TEST(Checkpoint, AFileThatMayNotGrowIsAsAFullDisk) {
  const TestDirectory directory;
  ASSERT_TRUE(Save(directory.path(), 1, 2).ok());
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 100'000;  // a shard takes 180,000 bytes and a header
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = Save(directory.path(), 2, 2);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ExpectToldToMakeRoom(status);
  EXPECT_EQ(*LoadLast(directory.path()), 1);
}

}  // namespace
}  // namespace muster::worker
