#include "tests/bench/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "fmt/format.h"

namespace muster::bench {
namespace {

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace

double ProcessCpu() { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }
double ThreadCpu() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }

MachineLoad::MachineLoad()
    : load_before_(LoadAverage()), process_before_(ProcessCpu()), before_(Read()) {}

// proc(5), /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of
// user's.
MachineLoad::Jiffies MachineLoad::Read() {
  std::ifstream stat("/proc/stat");
  std::string word;
  stat >> word;
  Jiffies jiffies;
  double value = 0;
  for (int i = 0; i < 8 && stat >> value; ++i) {
    jiffies.all += value;
    if (i != 3 && i != 4) jiffies.busy += value;
  }
  return jiffies;
}

double MachineLoad::OthersShare() const {
  const Jiffies now = Read();
  const double all = now.all - before_.all;
  if (all <= 0) return 0;
  const double own = (ProcessCpu() - process_before_) * static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::clamp((now.busy - before_.busy - own) / all, 0.0, 1.0);
}

std::string MachineLoad::Describe() const {
  return fmt::format(
      "{} cores, load average {:.1f} before and {:.1f} after, other processes used {:.0f} % of the "
      "CPU time",
      sysconf(_SC_NPROCESSORS_ONLN), load_before_, LoadAverage(), OthersShare() * 100);
}

}  // namespace muster::bench
