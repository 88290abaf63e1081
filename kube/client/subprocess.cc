#include "kube/client/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>

extern char** environ;

namespace muster::kube {
namespace {

constexpr size_t kErrorTextBytes = 256;
// How often the child is looked at when its pipes are silent.
constexpr int kPollMilliseconds = 20;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> fds;
  if (pipe2(fds.data(), O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(fmt::format("pipe: {}", strerror(errno)));
  }
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return Pipe{Descriptor(fds[0]), Descriptor(fds[1])};
}

// "NAME=value" strings of this process's environment with the additions in place.
std::vector<std::string> MergedEnvironment(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) merged[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : additions) merged[name] = value;
  std::vector<std::string> result;
  for (const auto& [name, value] : merged) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

absl::StatusOr<pid_t> Spawn(const Subprocess& subprocess, const Pipe& output, const Pipe& errors) {
  std::vector<std::string> arguments = {subprocess.program};
  arguments.insert(arguments.end(), subprocess.arguments.begin(), subprocess.arguments.end());
  std::vector<std::string> environment = MergedEnvironment(subprocess.environment);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, output.write_end.get(), 1);
  if (!subprocess.interactive) {
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, errors.write_end.get(), 2);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  // A group of its own, so that children it leaves behind can be killed with it; and no signal
  // masked, whatever the calling thread masks. In a group of its own the terminal would stop it.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(subprocess.interactive ? POSIX_SPAWN_SETSIGMASK
                                                : POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK));

  pid_t pid = 0;
  const int error = posix_spawnp(&pid, subprocess.program.c_str(), &actions, &attributes,
                                 Pointers(arguments).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::NotFoundError(
        fmt::format("can't run \"{}\": {}", subprocess.program, strerror(error)));
  }
  return pid;
}

// Reads what is there. False at the end of the stream.
bool Drain(int fd, std::string& text, size_t keep) {
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t size = read(fd, buffer.data(), buffer.size());
    if (size > 0) {
      if (text.size() < keep) text.append(buffer.data(), size);
      continue;
    }
    return size < 0 && (errno == EAGAIN || errno == EINTR);
  }
}

void Kill(const Subprocess& subprocess, pid_t pid) {
  kill(subprocess.interactive ? pid : -pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, std::min(text.find('\n'), kErrorTextBytes));
}

}  // namespace

absl::StatusOr<SubprocessOutput> RunSubprocess(const Subprocess& subprocess) {
  auto output = MakePipe();
  if (!output.ok()) return output.status();
  auto errors = MakePipe();
  if (!errors.ok()) return errors.status();
  const auto pid = Spawn(subprocess, *output, *errors);
  if (!pid.ok()) return pid.status();
  output->write_end.Close();
  errors->write_end.Close();

  const auto deadline =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(subprocess.timeout);
  SubprocessOutput result;
  std::string error_text;
  while (true) {
    // Asked before the last reading, so that nothing printed before the end is missed. A child of
    // its own that keeps the pipes open is not waited for.
    int status = 0;
    const bool ended = waitpid(*pid, &status, WNOHANG) == *pid;
    const bool output_open =
        Drain(output->read_end.get(), result.output, subprocess.max_output + 1);
    const bool errors_open = Drain(errors->read_end.get(), error_text, kErrorTextBytes);
    if (result.output.size() > subprocess.max_output) {
      if (!ended) Kill(subprocess, *pid);
      return absl::ResourceExhaustedError(fmt::format("\"{}\" printed more than {} bytes",
                                                      subprocess.program, subprocess.max_output));
    }
    if (ended) {
      result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      result.error_text = FirstLine(error_text);
      return result;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      Kill(subprocess, *pid);
      return absl::DeadlineExceededError(fmt::format("\"{}\" ran longer than {}",
                                                     subprocess.program,
                                                     absl::FormatDuration(subprocess.timeout)));
    }
    std::array<pollfd, 2> waits = {{{output_open ? output->read_end.get() : -1, POLLIN, 0},
                                    {errors_open ? errors->read_end.get() : -1, POLLIN, 0}}};
    poll(waits.data(), waits.size(), kPollMilliseconds);
  }
}

}  // namespace muster::kube
