// What users of Kueue may ask for by annotation and Muster doesn't do, told in the same words by
// the scheduler and by lint (sigs.k8s.io/kueue v0.19.2 apis/kueue/v1beta2/topology_types.go,
// pkg/controller/jobs/job/job_controller.go, pkg/constants/constants.go).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"

namespace muster::kube {

struct NotHonoured {
  std::string_view annotation;
  bool of_job = false;     // it stands on the job; else on its pods
  bool must_hold = false;  // who asks for it isn't started without
  std::string_view meaning;
  std::string_view fix;
  std::string ToString() const;  // "annotation A isn't obeyed: MEANING"
  // Its annotation has a value that asks for it.
  bool IsAskedBy(std::string_view value) const { return value != "false"; }
};
std::span<const NotHonoured> AllNotHonoured();

// What the pods and their job ask for, what must hold first; null if nothing. `job` may be null.
const NotHonoured* FindNotHonoured(const std::vector<const Pod*>& pods, const AnyJob* job);

}  // namespace muster::kube
