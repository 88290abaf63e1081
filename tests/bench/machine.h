// What else the machine was doing while something was measured, and CPU time.
#pragma once

#include <string>

namespace muster::bench {

// CPU time in seconds, user and system.
double ProcessCpu();
double ThreadCpu();  // of the calling thread

// Watches the machine from its construction on.
class MachineLoad {
 public:
  MachineLoad();
  // Share of all cores' time that went to anything but this process, 0 to 1.
  double OthersShare() const;
  // "2 cores, load average 5.2 before and 6.1 after, other processes used 61 % of the CPU time"
  std::string Describe() const;

 private:
  struct Jiffies {
    double busy = 0;
    double all = 0;
  };
  static Jiffies Read();
  const double load_before_;
  const double process_before_;
  const Jiffies before_;
};

}  // namespace muster::bench
