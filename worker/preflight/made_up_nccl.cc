// NCCL for tests, as libnccl.so.2, among the threads of one process. MADE_UP_NCCL says what is
// wrong with it: "wrong" (an element of the last rank's sums), "error" and "hang" (as it starts),
// "crash" (in an all-reduce). Built with MADE_UP_OLD it has no ncclCommInitAll.
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <string_view>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kUnhandledCudaError = 1;
constexpr size_t kWrongElement = 5;

bool Is(std::string_view how) {
  const char* said = std::getenv("MADE_UP_NCCL");
  return said != nullptr && how == said;
}

struct Group {
  explicit Group(size_t ranks) : buffers(ranks) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<float*> buffers;  // guarded by mutex
  size_t come = 0;              // guarded by mutex
  size_t rounds = 0;            // guarded by mutex
};
struct Communicator {
  Group* group;
  size_t rank;
};

// They live as long as the process.
std::list<Group> groups;
std::list<Communicator> communicators;

void Sum(const std::vector<float*>& buffers, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const float* buffer : buffers) sum += buffer[i];
    for (float* buffer : buffers) buffer[i] = sum;
  }
  if (Is("wrong")) ++buffers.back()[kWrongElement];
}

}  // namespace

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's.

int ncclGetVersion(int* version) {
  *version = 22'809;
  return kSuccess;
}
const char* ncclGetErrorString(int error) {
  return error == kUnhandledCudaError
             ? "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
             : "made-up error";
}
const char* ncclGetLastError(Communicator* /*of_nobody*/) {
  return Is("error") ? "Cuda failure 802 'system not yet initialized'\n" : "";
}
#ifndef MADE_UP_OLD
int ncclCommInitAll(Communicator** made, int count, const int* /*devices*/) {
  // As with NCCL_DEBUG=VERSION.
  std::printf("NCCL version 2.28.9+made-up\n");
  std::fflush(stdout);
  if (Is("error")) return kUnhandledCudaError;
  while (Is("hang")) pause();
  Group& group = groups.emplace_back(static_cast<size_t>(count));
  for (size_t rank = 0; rank < group.buffers.size(); ++rank) {
    made[rank] = &communicators.emplace_back(Communicator{.group = &group, .rank = rank});
  }
  return kSuccess;
}
#endif
int ncclAllReduce(const void* from, void* to, size_t count, int /*type*/, int /*operation*/,
                  Communicator* communicator, int* /*stream*/) {
  if (Is("crash")) std::raise(SIGSEGV);
  if (from != to) return kUnhandledCudaError;
  Group& group = *communicator->group;
  std::unique_lock lock(group.mutex);
  group.buffers[communicator->rank] = static_cast<float*>(to);
  const size_t round = group.rounds;
  if (++group.come == group.buffers.size()) {
    Sum(group.buffers, count);
    group.come = 0;
    ++group.rounds;
    group.changed.notify_all();
  } else {
    group.changed.wait(lock, [&] { return group.rounds != round; });
  }
  return kSuccess;
}

// NOLINTEND(readability-identifier-naming)

}  // extern "C"
