// When the Workload of what somebody else places has come to its end: a cluster that had Kueue has
// jobs that run under its admission, whoever schedules their pods.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"

namespace muster::quota {

class WorkloadEnds {
 public:
  // A pod that has ended, and then that it is gone.
  void Note(const kube::Pod& pod);
  void Forget(const std::string& uid) { ended_.erase(uid); }

  // Kueue's reason of condition Finished; nullopt while its pods may run. `job`: its owner, if that
  // is a job that exists. `stands`: a pod of this UID, in whichever namespace, is on a node.
  std::optional<std::string_view> EndOf(
      const kube::Workload& workload, const kube::AnyJob* job,
      const std::function<bool(const std::string& uid)>& stands) const;

 private:
  struct Ended {
    std::string name_space;
    bool succeeded = false;
  };
  absl::flat_hash_map<std::string, Ended> ended_;  // by UID
};

// One that has quota, and no gang here. Going: it uses that no more, and is being let go.
struct Orphan {
  const kube::Workload* workload;
  bool going;
};

}  // namespace muster::quota
