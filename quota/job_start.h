// A suspended job is started by what admission adds to its pod templates, and resumed, in one
// write; once it is suspended again its templates get back what they had.
//
// What is added is what Kueue adds (sigs.k8s.io/kueue v0.19.2 pkg/podset/podset.go, and startJob of
// pkg/controller/jobframework/reconciler.go): the flavors' nodeSelector and tolerations, label
// podset, annotation workload. What Muster writes on members (pod_sets.h) isn't: templates are
// their user's, and what a pod brings along isn't believed. What they had stands in the Workload's
// pod sets.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/any_job.h"
#include "kube/objects/quota.h"
#include "quota/pod_sets.h"
#include "quota/workload.h"

namespace muster::quota {

// Of one template, what is added or, where `original` isn't empty, what it gets back.
struct TemplateChange {
  std::string path;  // AnyJob::PodSet::path
  std::string now;   // JSON, as it is
  FlavorAdditions added;
  std::string original;  // kube::Workload::PodSet::original
};

// One pod of each pod set of a job, as it will be made.
std::vector<kube::Pod> PodsOf(const kube::AnyJob& job);
// The PriorityClass that counts for it: that of its schedulingPolicy, else the first that a pod set
// names; empty: none (pkg/controller/jobframework/reconciler.go:1716).
std::string PriorityClassOf(const kube::AnyJob& job);
// All that it asks for, by the names that its pods will give (PodSetOf).
std::vector<PodSet> PodSetsOf(const kube::AnyJob& job);
// The same beside what is asked for already.
std::vector<PodSet> WithOthersOf(const kube::AnyJob& job, std::vector<PodSet> asked);

// What the flavors that it holds add to it; null flavors don't exist any more.
std::vector<TemplateChange> WithFlavors(
    const kube::AnyJob& job, const kube::Workload& workload, const Admission& held,
    const std::function<const kube::ResourceFlavor*(std::string_view)>& find_flavor);

// What its templates had, if something was added to them and the Workload tells; else nothing.
std::vector<TemplateChange> WithoutFlavors(const kube::AnyJob& job, const kube::Workload& workload);

}  // namespace muster::quota
