#include "worker/preflight/apart.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "worker/communicator/deadline.h"
#include "worker/diagnose/text.h"

extern char** environ;

namespace muster::worker {
namespace {

constexpr size_t kMostAnswer = size_t{1} << 20;
constexpr int kLookMilliseconds = 100;
// A process in a driver's hands can't be killed; whoever waits for it mustn't be held, too.
constexpr absl::Duration kForItsDeath = absl::Seconds(5);

// Waits for more of the answer for a moment. False at its end.
bool ReadSome(int file, std::string* answer) {
  pollfd ready = {.fd = file, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, kLookMilliseconds) <= 0) return true;
  std::array<char, 4096> buffer;
  const ssize_t size = read(file, buffer.data(), buffer.size());
  if (size < 0) return errno == EINTR;
  if (answer->size() < kMostAnswer) answer->append(buffer.data(), static_cast<size_t>(size));
  return size > 0;
}

bool IsGone(pid_t process, int* status) {
  const pid_t ended = waitpid(process, status, WNOHANG);
  return ended == process || (ended < 0 && errno == ECHILD);
}

void Kill(pid_t process) {
  kill(process, SIGKILL);
  int status = 0;
  const Deadline deadline = DeadlineAfter(kForItsDeath);
  while (!IsGone(process, &status) && TimeLeft(deadline) > absl::ZeroDuration()) {
    poll(nullptr, 0, 1);
  }
}

}  // namespace

absl::StatusOr<ApartEnd> RunApart(std::vector<std::string> words, const ApartOptions& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::UnavailableError("no pipe");
  const absl::Cleanup close_end = [&] { close(ends[0]); };
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int error =
      posix_spawn(&process, options.program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    return absl::UnavailableError(Concat("no process of its own: ", std::strerror(error)));
  }
  ApartEnd end;
  const Deadline deadline = DeadlineAfter(options.timeout);
  for (bool open = true;;) {
    if (open) {
      open = ReadSome(ends[0], &end.answer);
    } else {
      poll(nullptr, 0, 1);
    }
    int status = 0;
    if (!open && IsGone(process, &status)) {
      end.how = WIFSIGNALED(status) ? ApartEnd::How::kSignalled : ApartEnd::How::kExited;
      end.number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
      return end;
    }
    const bool stopped = options.stopped != nullptr && options.stopped();
    if (!stopped && TimeLeft(deadline) > absl::ZeroDuration()) continue;
    end.how = stopped ? ApartEnd::How::kStopped : ApartEnd::How::kLate;
    Kill(process);
    return end;
  }
}

}  // namespace muster::worker
