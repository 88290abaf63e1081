// The processes below this one, as /proc shows them: which of them are ranks, and what each has
// done so far.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::worker {

struct ProcessSample {
  pid_t pid = 0;
  pid_t parent = 0;
  int64_t started = 0;  // with pid: this process and no later one
  char state = '?';     // of its main thread, as ps shows it: R, S, D, T, Z, ...
  // All that follow are counted from its start.
  int64_t ticks = 0;  // of CPU time, by all its threads; TicksPerSecond()
  // What only a thread that does something causes: page faults of the process, reads and writes,
  // and the times that its main thread went to sleep by itself. Memory that is shared by threads
  // that wait for each other in user space has none of it.
  int64_t events = 0;
};

// Nothing if it has ended, or never was.
std::optional<ProcessSample> SampleOf(pid_t pid);

// All below `root`, without it, parents before children. A process that ends meanwhile is left out.
// Looks at every process of the machine, or container.
std::vector<ProcessSample> ProcessesBelow(pid_t root);

int64_t TicksPerSecond();

// A variable that a process was started with; nothing if it has none or can't be asked.
std::optional<std::string> VariableOf(pid_t pid, const std::string& name);

// Where the kernel has put a process's main thread: "futex_wait_queue", "hrtimer_nanosleep"; empty
// if it runs, or if it isn't told.
std::string WaitChannelOf(pid_t pid);

}  // namespace muster::worker
