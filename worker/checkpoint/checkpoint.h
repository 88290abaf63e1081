// The training state on disk, and which of its checkpoints count.
//
//   DIRECTORY/step-0000000100/manifest.json                      committed: has its final name
//                            /shard-00000-of-00002.safetensors   what each rank owned
//   DIRECTORY/step-0000000200.partial/...                        being written, or left by a crash
//
// Each rank writes its shard under the partial name and flushes it; when all have, rank 0 writes
// the manifest, flushes, and renames the directory, which commits it. So a kill or a full disk at
// any moment leaves the last committed checkpoint as it was. Older ones are removed only after
// that, by first taking their final name away.
//
// A shard holds ranges of the flat buffer (worker/model/parameter_layout.h): tensors
// "parameters.OFFSET", "first_moment.OFFSET" and "second_moment.OFFSET". How many ranks there were
// doesn't matter to a reader, which asks for ranges of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/safetensors.h"

namespace muster::worker {

struct CheckpointInfo {
  int64_t step = 0;        // steps done
  int64_t parameters = 0;  // of the flat buffer
  int world_size = 1;      // shards
  // Of what can't change between a checkpoint and its resumption, such as the model's sizes.
  std::string identity;
  // Of what decides which step trains on what: seed, batch, data, "NAME=VALUE" each. Empty in
  // checkpoints of version 0.1.
  std::string course = {};
  // The model's config.json; likewise.
  std::string config = {};
  bool operator==(const CheckpointInfo&) const = default;
};

// A range of the flat buffer that a rank owns, all three of one size.
struct StateRange {
  int64_t offset = 0;
  std::span<const float> parameters;
  std::span<const float> first_moment;
  std::span<const float> second_moment;
};

// A rank's part of the state as it was when this was made, perhaps still on its way to here.
class StateCopy {
 public:
  StateCopy() = default;
  StateCopy(const StateCopy&) = delete;
  StateCopy& operator=(const StateCopy&) = delete;
  virtual ~StateCopy() = default;

  // Waits until it is here; valid as long as this. May be called by another thread than made it.
  virtual absl::StatusOr<std::vector<StateRange>> Ranges() const = 0;
};

// Of what lies in this process's memory, at once.
std::unique_ptr<StateCopy> CopyState(const std::vector<StateRange>& ranges);

enum class StateKind { kParameters, kFirstMoment, kSecondMoment };

// One rank's side of writing. Used by one thread; writes on a thread of its own, so that training
// goes on meanwhile.
class CheckpointWriter {
 public:
  struct Options {
    std::string directory;
    int rank = 0;
    int world_size = 1;
    int keep = 3;  // committed checkpoints; at least 1
  };

  // Makes the directory; rank 0 also removes what crashes left, so no rank may begin before rank 0
  // is through with this. PermissionDenied or the like if nothing can be written there.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(Options options);
  ~CheckpointWriter();  // gives up what is being written

  // Begins to write the copy, once it is here, and then drops it. FailedPrecondition if the last
  // one isn't waited for.
  absl::Status Begin(const CheckpointInfo& info, std::unique_ptr<StateCopy> copy);
  // True if there is something to wait for and Wait won't block.
  bool Written() const { return thread_.joinable() && written_; }
  bool under_way() const { return thread_.joinable(); }
  // Returns when this rank's shard is on disk, or with what went wrong; OK if nothing was begun.
  absl::Status Wait();
  // What is being written won't be needed: Wait returns soon, with Cancelled, unless it was as good
  // as done.
  void GiveUp() { thread_.request_stop(); }
  // Rank 0, when every rank's Wait has returned OK: commits what was begun last and removes
  // committed checkpoints beyond those to keep. After an error the older ones are as they were.
  absl::Status Commit();
  // Rank 0, when every rank's Wait has returned and the checkpoint that was begun last doesn't
  // count: gives its room on disk back, which may be just what the next one lacks.
  absl::Status Drop();

 private:
  explicit CheckpointWriter(Options options) : options_(std::move(options)) {}
  absl::Status Write(const StateCopy& copy, const std::stop_token& stop) const;
  absl::Status RemoveOldest();

  Options options_;
  CheckpointInfo info_;
  std::atomic<bool> written_ = false;
  absl::Status result_;  // of the thread; read after written_ or join
  std::jthread thread_;  // last, because it uses the others
};

// Steps of the committed checkpoints, ascending; none if there is no such directory.
absl::StatusOr<std::vector<int64_t>> CommittedSteps(const std::string& directory);

// A committed checkpoint. Used by one thread.
class CheckpointReader {
 public:
  // DataLoss, naming the file, if a shard is missing, damaged, or the shards together don't hold
  // the whole state.
  static absl::StatusOr<CheckpointReader> Open(const std::string& directory, int64_t step);

  const CheckpointInfo& info() const { return info_; }

  // The `values.size()` floats from `offset` of the flat buffer on. The first read from a shard
  // holds all of it to its checksum: DataLoss if it differs.
  absl::Status Read(StateKind kind, int64_t offset, std::span<float> values);

 private:
  struct Piece {
    int64_t size = 0;
    int shard = 0;
    SafetensorsEntry entry;
  };
  struct Shard {
    SafetensorsFile file;
    bool checked = false;
  };

  absl::Status AddShard(const std::string& path);
  absl::Status CheckComplete(const std::string& directory) const;
  static absl::Status CheckSum(const SafetensorsFile& file);

  CheckpointInfo info_;
  std::vector<Shard> shards_;
  std::map<int64_t, Piece> pieces_[3];  // by StateKind, then offset
};

// "DIRECTORY/step-0000000100"
std::string CheckpointPath(const std::string& directory, int64_t step);

}  // namespace muster::worker
