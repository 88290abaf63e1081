#include "worker/launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/launch/processes.h"

namespace muster::worker {
namespace {

constexpr std::array<int, 5> kForwarded = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
// A line without an end doesn't fill the memory.
constexpr size_t kLongestLine = 64 << 10;
constexpr int kSignalBase = 128;
// What ranks leave behind is killed; who is in the kernel's hands isn't waited for any longer.
constexpr absl::Duration kLongestWaitForOrphans = absl::Seconds(5);

void WriteToOwnStreams(absl::string_view line, bool is_error) {
  while (!line.empty()) {
    const ssize_t written =
        write(is_error ? STDERR_FILENO : STDOUT_FILENO, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads: the ranks go on all the same
    line.remove_prefix(static_cast<size_t>(written));
  }
}

// The forwarded signals and SIGCHLD, blocked and read from a descriptor.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGCHLD);
    for (const int signal : kForwarded) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    descriptor_ = Socket(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  int fd() const { return descriptor_.fd(); }
  const sigset_t& before() const { return before_; }

  // The next one that has come; 0 if none has.
  int Next() const {
    signalfd_siginfo info;
    return read(fd(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t signals_;
  sigset_t before_;
  Socket descriptor_;
};

// Processes whose parent ends become children of this one, as of a container's first process.
class Inheritance {
 public:
  Inheritance() {
    prctl(PR_GET_CHILD_SUBREAPER, &before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Inheritance() { prctl(PR_SET_CHILD_SUBREAPER, before_); }
  Inheritance(const Inheritance&) = delete;
  Inheritance& operator=(const Inheritance&) = delete;

 private:
  int before_ = 0;
};

// One of a rank's two streams.
struct Output {
  Socket pipe;
  int rank = 0;
  bool is_error = false;
  std::string line;
};

std::string How(int status) {
  if (WIFEXITED(status)) return absl::StrCat("exited with code ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
}

int ExitCodeOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options) : options_(options) {
    if (!options_.write_line) options_.write_line = WriteToOwnStreams;
  }

  absl::StatusOr<SupervisorResult> Run(const std::vector<RankProcess>& processes) {
    absl::Status started;
    for (const RankProcess& process : processes) {
      started = Start(process);
      if (started.ok()) continue;
      Stop();
      break;
    }
    while (!children_.empty()) {
      Wait();
      while (const int signal = signals_.Next()) Handle(signal);
      ReadOutputs();
      Reap();
      if (TimeLeft(kill_at_) == absl::ZeroDuration()) KillAll();
      if (started.ok()) Look();
    }
    // What they left behind may hold their outputs open.
    KillOrphans();
    ReadOutputs();
    for (Output& output : outputs_) FlushLine(output);
    if (!started.ok()) return started;
    return result_;
  }

 private:
  absl::Status Start(const RankProcess& process) {
    int out[2];
    int err[2];
    int failure[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
        pipe2(failure, O_CLOEXEC) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("pipe: ", std::strerror(errno)));
    }
    const pid_t supervisor = getpid();
    const pid_t pid = fork();
    if (pid == 0) Become(process, supervisor, out[1], err[1], failure[1]);
    for (const int end : {out[1], err[1], failure[1]}) close(end);
    const Socket failed(failure[0]);
    for (const auto& [end, is_error] : {std::pair(out[0], false), std::pair(err[0], true)}) {
      fcntl(end, F_SETFL, O_NONBLOCK);
      outputs_.push_back(
          {.pipe = Socket(end), .rank = process.rank, .is_error = is_error, .line = {}});
    }
    if (pid < 0) return absl::InvalidArgumentError(absl::StrCat("fork: ", std::strerror(errno)));
    setpgid(pid, pid);
    children_.push_back({.rank = process.rank, .pid = pid});
    int error = 0;
    if (read(failed.fd(), &error, sizeof error) != sizeof error) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("rank ", process.rank, ": ", process.command[0],
                                                   " can't be started: ", std::strerror(error)));
  }

  // In the child: never returns. What this program ignores, another one need not.
  void Become(const RankProcess& process, pid_t supervisor, int out, int err, int failure) const {
    // A group of its own: a terminal's Ctrl-C reaches it once only, through the supervisor.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(kSignalBase + SIGKILL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    for (const auto& [name, value] : process.environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments;
    for (const std::string& argument : process.command) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &signals_.before(), nullptr);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    if (write(failure, &error, sizeof error) < 0) _exit(kSignalBase - 2);
    _exit(kSignalBase - 1);
  }

  void Wait() {
    std::vector<pollfd> waits = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (const Output& output : outputs_) {
      // A closed one (-1) is passed over by poll.
      waits.push_back({.fd = output.pipe.fd(), .events = POLLIN, .revents = 0});
    }
    const Deadline next = options_.look ? std::min(kill_at_, look_at_) : kill_at_;
    const int64_t left = absl::ToInt64Milliseconds(TimeLeft(next)) + 1;
    poll(waits.data(), waits.size(), static_cast<int>(std::min<int64_t>(left, 60'000)));
  }

  void Handle(int signal) {
    if (signal == SIGCHLD) return;
    if ((signal == SIGTERM || signal == SIGINT) && !stopping_) {
      stopping_ = true;
      result_.stopped = !result_.first_failure.has_value();
      result_.exit_code = kSignalBase + signal;
      if (result_.stopped && options_.on_stop) options_.on_stop();
    }
    for (const StartedRank& child : children_) kill(child.pid, signal);
  }

  void Look() {
    if (!options_.look || children_.empty() || TimeLeft(look_at_) > absl::ZeroDuration()) return;
    const NextLook next = options_.look(children_);
    look_at_ = DeadlineAfter(next.after);
    if (next.verdict == NextLook::Verdict::kGoOn) return;
    result_.ended_by_look = true;
    if (next.verdict == NextLook::Verdict::kEnd) Stop();
  }

  void Stop() {
    if (kill_at_ != Deadline::max()) return;
    kill_at_ = DeadlineAfter(options_.grace);
    for (const StartedRank& child : children_) {
      kill(child.pid, SIGTERM);
      // One that is stopped doesn't get it.
      kill(child.pid, SIGCONT);
    }
  }

  void KillAll() {
    kill_at_ = Deadline::max();
    // With what they have started.
    for (const StartedRank& child : children_) kill(-child.pid, SIGKILL);
  }

  // Launchers start their ranks in groups of their own, which KillAll() doesn't reach. Whatever has
  // lost its parent is a child of this process by now; the next generation becomes one.
  void KillOrphans() const {
    const Deadline deadline = DeadlineAfter(kLongestWaitForOrphans);
    while (TimeLeft(deadline) > absl::ZeroDuration()) {
      pid_t reaped = 0;
      while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) continue;
      if (reaped < 0) return;  // there is no child
      for (const ProcessSample& process : ProcessesBelow(getpid())) kill(process.pid, SIGKILL);
      poll(nullptr, 0, 10);
    }
  }

  void Reap() {
    int status = 0;
    while (const pid_t pid = waitpid(-1, &status, WNOHANG)) {
      if (pid < 0) return;
      const auto child = std::find_if(children_.begin(), children_.end(),
                                      [&](const StartedRank& each) { return each.pid == pid; });
      if (child == children_.end()) continue;  // an orphan
      const int rank = child->rank;
      children_.erase(child);
      if (ExitCodeOf(status) != 0) Failed(rank, status);
    }
  }

  void Failed(int rank, int status) {
    if (result_.ended_by_look) return;
    const int code = ExitCodeOf(status);
    const bool stop_code = code == kSignalBase + SIGTERM || code == kSignalBase + SIGINT;
    if (stop_code && (stopping_ || WIFEXITED(status))) {
      // Stopped in order, perhaps because another pod was told to; the others are still at it.
      if (result_.exit_code == 0) result_.exit_code = code;
      return;
    }
    if (result_.first_failure.has_value()) return;
    result_.first_failure = {.rank = rank,
                             .exit_code = code,
                             .how = How(status),
                             .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                             .at = absl::Now()};
    if (!stopping_) result_.exit_code = code;
    Stop();
  }

  void ReadOutputs() {
    for (Output& output : outputs_) {
      while (output.pipe.open() && ReadOnce(output)) continue;
    }
  }

  bool ReadOnce(Output& output) {
    std::array<char, 16384> buffer;
    const ssize_t size = read(output.pipe.fd(), buffer.data(), buffer.size());
    if (size < 0) return errno == EINTR;
    if (size == 0) {
      FlushLine(output);
      output.pipe.Close();
      return false;
    }
    output.line.append(buffer.data(), static_cast<size_t>(size));
    size_t end = 0;
    while ((end = output.line.find('\n')) != std::string::npos) {
      PassOn(output, absl::string_view(output.line).substr(0, end));
      output.line.erase(0, end + 1);
    }
    if (output.line.size() > kLongestLine) FlushLine(output);
    return true;
  }

  void FlushLine(Output& output) {
    if (output.line.empty()) return;
    PassOn(output, output.line);
    output.line.clear();
  }

  void PassOn(const Output& output, absl::string_view line) const {
    const bool prefix = output.is_error ? options_.prefix_errors : options_.prefix_output;
    options_.write_line(
        prefix ? absl::StrCat("[rank ", output.rank, "] ", line, "\n") : absl::StrCat(line, "\n"),
        output.is_error);
    if (options_.on_line) options_.on_line(output.rank, line, output.is_error);
  }

  SupervisorOptions options_;
  const BlockedSignals signals_;
  const Inheritance inheritance_;
  std::vector<StartedRank> children_;
  std::vector<Output> outputs_;
  SupervisorResult result_;
  bool stopping_ = false;  // was told to
  Deadline kill_at_ = Deadline::max();
  Deadline look_at_ = DeadlineAfter(absl::ZeroDuration());
};

}  // namespace

absl::StatusOr<SupervisorResult> Supervise(const std::vector<RankProcess>& processes,
                                           const SupervisorOptions& options) {
  return Supervisor(options).Run(processes);
}

}  // namespace muster::worker
