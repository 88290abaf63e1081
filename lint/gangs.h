// The gangs of the manifests: which pods are to exist at the same time and must start together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lint/manifests.h"

namespace muster::lint {

// One part of a workload. Points into the manifests.
struct LintGang {
  const Workload* workload = nullptr;
  std::vector<const PodTemplate*> templates;
  int64_t pods = 0;   // that exist at once
  int64_t least = 0;  // that it can run with; less than pods only if it is elastic
  const PodGroup* group = nullptr;

  // "PyTorchJob default/x", with the part's name if there are several.
  std::string Name() const;
  // More than one pod, and wants to start as one.
  bool IsGang() const;
  bool WantsDevices() const;
  // What its job or its PodGroup says; absent: line 0.
  LocatedCount MinMember() const;
  LocatedCount TimeoutSeconds() const;
  // The file that the two stand in.
  const std::string& PolicyFile() const;
};

// In the order of the manifests. A PodGroup is that of the label scheduling.x-k8s.io/pod-group of
// the pods, or else the one that the job's operator would name it after.
std::vector<LintGang> FindGangs(const Manifests& manifests);

}  // namespace muster::lint
