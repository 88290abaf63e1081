// A pod of a test: a process with an environment, whose output is read as it comes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "worker/communicator/deadline.h"
#include "worker/communicator/tcp_socket.h"
#include "worker/launch/environment.h"

namespace muster::worker {

// Used by one thread. Killed with the object; its ranks die with it.
class Pod {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  // `words` are the program, looked up in PATH, and its arguments; `environment` is on top of this
  // process's.
  Pod(const std::vector<std::string>& words, const Environment& environment) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_ = Socket(ends[0]);
    Environment whole = CurrentEnvironment();
    for (const auto& [name, value] : environment) whole[name] = value;
    std::vector<std::string> variables;
    for (const auto& [name, value] : whole) variables.push_back(absl::StrCat(name, "=", value));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    const int error = posix_spawnp(&pid_, words[0].c_str(), &actions, /*attrp=*/nullptr,
                                   Pointers(words).data(), Pointers(variables).data());
    EXPECT_EQ(error, 0) << words[0] << ": " << std::strerror(error);
    if (error != 0) pid_ = 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    reader_ = std::thread([this] { ReadAll(); });
  }

  ~Pod() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    reader_.join();
  }
  Pod(const Pod&) = delete;
  Pod& operator=(const Pod&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
  }

  // Waits until `text` stands in what was printed from character `from` on. False if it doesn't in
  // time, or at the output's end.
  bool Prints(const std::string& text, absl::Duration within = kPatience, size_t from = 0) {
    const Deadline deadline = DeadlineAfter(within);
    std::unique_lock lock(mutex_);
    bool found = false;
    changed_.wait_until(lock, deadline, [&] {
      found = printed_.find(text, from) != std::string::npos;
      return found || ended_;
    });
    return found;
  }

  // Waits for the end; 128 + the signal that it died of. A pod that doesn't end is killed, and the
  // test has failed.
  int ExitCode() {
    constexpr int kNotStarted = 127;
    if (pid_ <= 0) return kNotStarted;
    {
      std::unique_lock lock(mutex_);
      const bool ended =
          changed_.wait_until(lock, DeadlineAfter(kPatience), [&] { return ended_; });
      EXPECT_TRUE(ended) << "the pod doesn't end; it printed:\n" << printed_;
      if (!ended) Signal(SIGKILL);
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string printed() const {
    const std::lock_guard lock(mutex_);
    return printed_;
  }

 private:
  static std::vector<char*> Pointers(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    return pointers;
  }

  void ReadAll() {
    std::array<char, 4096> buffer;
    while (true) {
      const ssize_t size = read(output_.fd(), buffer.data(), buffer.size());
      const std::lock_guard lock(mutex_);
      if (size > 0) {
        printed_.append(buffer.data(), static_cast<size_t>(size));
      } else {
        ended_ = true;
      }
      changed_.notify_all();
      if (ended_) return;
    }
  }

  pid_t pid_ = 0;
  Socket output_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string printed_;  // guarded by mutex_
  bool ended_ = false;   // guarded by mutex_
  std::thread reader_;
};

// Outside the range that connections take theirs from.
inline std::string FreePort() {
  static uint16_t port = static_cast<uint16_t>(10'000 + getpid() % 10'000);
  while (!Listen(++port).ok()) continue;
  return absl::StrCat(port);
}

// As PyTorchJob gives it to pods that have so many processes each.
inline Environment PodEnvironment(int pod, int pods, const std::string& port, int processes = 2,
                                  const std::string& master = "127.0.0.1") {
  return {{"MASTER_ADDR", master},
          {"MASTER_PORT", port},
          {"WORLD_SIZE", absl::StrCat(processes * pods)},
          {"RANK", absl::StrCat(pod)},
          {"PET_NNODES", absl::StrCat(pods)},
          {"PET_NODE_RANK", absl::StrCat(pod)},
          {"PET_NPROC_PER_NODE", absl::StrCat(processes)},
          {"CUDA_VISIBLE_DEVICES", ""}};
}

}  // namespace muster::worker
