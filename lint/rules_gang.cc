// Counts, timeouts and schedulers that must agree for a gang to start, and what keeps its nodes.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/quota.h"
#include "kube/objects/well_known.h"
#include "lint/launch_command.h"
#include "lint/pool_fit.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

constexpr const char* kScheduler = "coscheduling";

std::string Of(const PodTemplate& pods) {
  return pods.role.empty() ? "its pods" : Concat("its ", pods.role, " pods");
}

// How many pods there are can't be told: a runtime that isn't given says it.
bool SizeIsUnknown(const LintGang& gang) {
  return std::ranges::any_of(gang.templates, [](const PodTemplate* pods) {
    return pods->incomplete && pods->pods_line == 0;
  });
}

void CheckMinMember(const LintGang& gang, Findings* findings) {
  const LocatedCount least = gang.MinMember();
  if (!least.present() || SizeIsUnknown(gang) || gang.pods == 0) return;
  const std::string field = gang.group != nullptr ? "minMember" : "minAvailable";
  const std::string yaml = Concat(field, ": ", gang.pods, "\n");
  if (least.value > gang.pods) {
    findings->Add("min-member-above-job", gang.PolicyFile(), least.line,
                  fmt::format("{} is {}, but {} makes {} at once, so the gang is never complete",
                              field, least.value, gang.Name(), Counted(gang.pods, "pod")),
                  Concat("set it to ", gang.pods, ", or make as many pods as it says"), yaml);
  } else if (least.value < gang.least) {
    findings->Add("min-member-below-job", gang.PolicyFile(), least.line,
                  fmt::format("{} is {}, but {} makes {}: the job may start with {} missing, "
                              "and its ranks wait for them until their rendezvous times out",
                              field, least.value, gang.Name(), Counted(gang.pods, "pod"),
                              gang.pods - least.value),
                  Concat("set it to ", gang.pods), yaml);
  }
}

// What the pods themselves say, or the default.
int64_t RendezvousSeconds(const LintGang& gang) {
  int64_t seconds = 0;
  for (const PodTemplate* pods : gang.templates) {
    for (const Container& container : pods->containers) {
      for (const TorchrunCall& call : FindTorchrun(container)) {
        if (!call.rendezvous_seconds) continue;
        seconds =
            seconds == 0 ? *call.rendezvous_seconds : std::min(seconds, *call.rendezvous_seconds);
      }
    }
  }
  return seconds == 0 ? kRendezvousSeconds : seconds;
}

void CheckShortTimeout(const LocatedCount& timeout, const std::string& file, Findings* findings) {
  if (!timeout.present() || timeout.value >= kNodeStartSeconds) return;
  findings->Add("schedule-timeout-short", file, timeout.line,
                fmt::format("scheduleTimeoutSeconds is {}, but a node with GPUs takes up to {} s "
                            "from its launch until its devices are there",
                            timeout.value, kNodeStartSeconds),
                "give the nodes at least as long as they take, better twice that",
                "scheduleTimeoutSeconds: 1200\n");
}

void CheckTimeout(const LintGang& gang, Findings* findings) {
  const LocatedCount timeout = gang.TimeoutSeconds();
  if (!timeout.present()) return;
  if (gang.WantsDevices()) CheckShortTimeout(timeout, gang.PolicyFile(), findings);
  const LocatedCount least = gang.MinMember();
  const int64_t rendezvous = RendezvousSeconds(gang);
  if (least.present() && least.value < gang.pods && timeout.value > rendezvous) {
    findings->Add(
        "schedule-timeout-long", gang.PolicyFile(), timeout.line,
        fmt::format("scheduleTimeoutSeconds is {}, but the {} that may start before the others "
                    "give up their rendezvous after {} s",
                    timeout.value, Counted(least.value, "pod"), rendezvous),
        fmt::format("wait for all {} pods (minMember: {}), or at most {} s", gang.pods, gang.pods,
                    rendezvous),
        fmt::format("minMember: {}\nscheduleTimeoutSeconds: {}\n", gang.pods, timeout.value));
  } else if (timeout.value > kLongestRendezvousSeconds) {
    findings->Add(
        "schedule-timeout-long", gang.PolicyFile(), timeout.line,
        fmt::format("scheduleTimeoutSeconds is {}: nodes that came early are paid for as long "
                    "while the gang can't start; the longest that PyTorch waits for a rank is {} s",
                    timeout.value, kLongestRendezvousSeconds),
        "give up earlier: the gang tries again by itself", "scheduleTimeoutSeconds: 1200\n");
  }
}

void CheckSchedulerNames(const LintGang& gang, Findings* findings) {
  std::string name;
  for (const PodTemplate* pods : gang.templates) {
    if (pods->scheduler_name.present() && name.empty()) name = pods->scheduler_name.value;
  }
  const bool belongs = gang.group != nullptr || gang.templates.front()->group.present();
  if (!belongs && !gang.IsGang()) return;
  for (const PodTemplate* pods : gang.templates) {
    if (pods->incomplete) continue;
    if (pods->scheduler_name.present()) {
      if (pods->scheduler_name.value == name) continue;
      findings->Add("scheduler-name-differs", pods->file, pods->scheduler_name.line,
                    fmt::format("{} names scheduler {} for {}, and {} for others; no scheduler "
                                "ever sees the whole gang",
                                gang.Name(), pods->scheduler_name.value, Of(*pods), name),
                    "name the same scheduler everywhere", Concat("schedulerName: ", name, "\n"));
    } else if (!name.empty() || belongs) {
      const std::string wanted = name.empty() ? kScheduler : name;
      findings->Add("scheduler-name-missing", pods->file, pods->spec_line,
                    fmt::format("{} gives {} no schedulerName{}, so the default scheduler starts "
                                "them one by one",
                                gang.Name(), Of(*pods),
                                name.empty() ? "" : Concat(", but ", name, " to others")),
                    Concat("set schedulerName: ", wanted, " in each pod template"),
                    Concat("spec:\n  schedulerName: ", wanted, "\n"));
    }
  }
}

void CheckOneByOne(const LintGang& gang, Findings* findings) {
  const LocatedText& policy = gang.workload->one_by_one;
  if (!policy.present() || !gang.IsGang()) return;
  findings->Add("stateful-set-one-by-one", gang.workload->file, policy.line,
                fmt::format("podManagementPolicy is {}: {} makes each of its {} pods once the one "
                            "before is ready, so they never exist together and the gang never "
                            "starts",
                            policy.value, gang.Name(), gang.pods),
                "let it make its pods in parallel", "podManagementPolicy: Parallel\n");
}

void CheckDoNotDisrupt(const LintGang& gang, Findings* findings) {
  for (const PodTemplate* pods : gang.templates) {
    if (pods->incomplete || !pods->WantsDevices()) continue;
    const std::string yaml =
        Concat("metadata:\n  annotations:\n    ", kube::kDoNotDisruptAnnotation, ": \"true\"\n");
    const auto annotation = pods->annotations.find(kube::kDoNotDisruptAnnotation);
    if (annotation == pods->annotations.end()) {
      findings->Add("do-not-disrupt-missing", pods->file, pods->metadata_line,
                    fmt::format("{} gives {} no annotation {}: Karpenter may take the node of one "
                                "away, and that ends all {}",
                                gang.Name(), Of(*pods), kube::kDoNotDisruptAnnotation,
                                Counted(gang.pods, "pod")),
                    "annotate the pod template", yaml);
    } else if (annotation->second.value == "false" || !annotation->second.quoted) {
      const bool off = annotation->second.value == "false";
      findings->Add(
          "do-not-disrupt-missing", pods->file, annotation->second.line,
          fmt::format("{} is {}: {}", kube::kDoNotDisruptAnnotation, annotation->second.value,
                      off ? "Karpenter may take the nodes away"
                          : "an annotation must be text, and the API server refuses this"),
          "write it as text, in quotes", yaml);
    }
  }
}

bool AsksForSpot(const Requirement& requirement) {
  return requirement.key == kCapacityTypeLabel && requirement.Accepts("spot") &&
         requirement.op == Requirement::Operator::kIn;
}

bool RulesOutSpot(const Requirements& needs) {
  return std::ranges::any_of(needs, [](const Requirement& need) {
    return need.key == kCapacityTypeLabel && !need.Accepts("spot");
  });
}

void CheckSpot(const LintGang& gang, const Surroundings& around, Findings* findings) {
  const std::string why = "one interrupted node, or one that isn't to be had, ends the whole job";
  for (const PodTemplate* pods : gang.templates) {
    if (!pods->WantsDevices()) continue;
    bool asks = false;
    bool rules_out = true;
    for (const Requirements& needs : AlternativesOf(*pods)) {
      rules_out = rules_out && RulesOutSpot(needs);
      for (const Requirement& need : needs) {
        if (!AsksForSpot(need)) continue;
        asks = true;
        findings->Add("spot-for-gang", pods->file, need.line,
                      fmt::format("{} asks for spot instances for its {} pods; {}", gang.Name(),
                                  gang.pods, why),
                      "select on-demand, or reserved, capacity",
                      Concat("nodeSelector:\n  ", kCapacityTypeLabel, ": on-demand\n"));
      }
    }
    if (asks || rules_out) continue;
    for (const NodePool* pool : around.pools.For(*pods)) {
      const auto spot = std::ranges::find_if(pool->requirements, AsksForSpot);
      if (spot == pool->requirements.end()) continue;
      findings->Add(
          "spot-for-gang", pool->file, spot->line,
          fmt::format("NodePool {} may buy spot instances for the {} pods of {}; {}", pool->name,
                      gang.pods, gang.Name(), why),
          "allow on-demand, or reserved, only, or select it in the job",
          Concat("- key: ", kCapacityTypeLabel, "\n  operator: In\n  values: [on-demand]\n"));
    }
  }
}

}  // namespace

void CheckGangPolicy(const LintGang& gang, Findings* findings) {
  CheckMinMember(gang, findings);
  CheckTimeout(gang, findings);
  CheckSchedulerNames(gang, findings);
  CheckOneByOne(gang, findings);
}

void CheckProtection(const LintGang& gang, const Surroundings& around, Findings* findings) {
  if (!gang.IsGang()) return;
  CheckDoNotDisrupt(gang, findings);
  CheckSpot(gang, around, findings);
}

void CheckPodGroup(const PodGroup& group, Findings* findings) {
  CheckMaxSeconds(fmt::format("PodGroup {}/{}", group.name_space, group.name), group.file,
                  group.max_seconds, findings);
  CheckShortTimeout(group.timeout_seconds, group.file, findings);
  if (group.timeout_seconds.value <= kLongestRendezvousSeconds) return;
  findings->Add("schedule-timeout-long", group.file, group.timeout_seconds.line,
                fmt::format("scheduleTimeoutSeconds is {}; the longest that PyTorch waits for a "
                            "rank is {} s",
                            group.timeout_seconds.value, kLongestRendezvousSeconds),
                "give up earlier: the gang tries again by itself",
                "scheduleTimeoutSeconds: 1200\n");
}

void CheckOptOut(const LintGang& gang, const Manifests& manifests, Findings* findings) {
  struct Said {
    const std::string& file;
    const LocatedText& text;
    const std::string& priority_class;
  };
  std::vector<Said> said;
  for (const PodTemplate* pods : gang.templates) {
    const auto found = pods->annotations.find(coscheduling::kPreemptibleAnnotation);
    if (found == pods->annotations.end()) continue;
    said.push_back({pods->file, found->second, pods->priority_class.value});
  }
  if (gang.group != nullptr && gang.group->preemptible.present() && !gang.templates.empty()) {
    said.push_back(
        {gang.group->file, gang.group->preemptible, gang.templates.front()->priority_class.value});
  }
  for (const Said& each : said) {
    if (each.text.value == "true") continue;
    if (each.text.value != "false") {
      findings->Add("preemptible-without-effect", each.file, each.text.line,
                    fmt::format("annotation {} of {} is \"{}\", which says nothing",
                                coscheduling::kPreemptibleAnnotation, gang.Name(), each.text.value),
                    "write \"false\", or leave it out");
      continue;
    }
    const auto its =
        std::ranges::find(manifests.priority_classes, each.priority_class, &PriorityClass::name);
    if (its == manifests.priority_classes.end() || its->may_opt_out.present()) continue;
    findings->Add(
        "preemptible-without-effect", each.file, each.text.line,
        fmt::format("{} opts out of being preempted, which PriorityClass {} doesn't let it: "
                    "it has no annotation {}",
                    gang.Name(), its->name, kube::kMayOptOutAnnotation),
        "have the PriorityClass say up to which priority its pods may, or leave it out");
  }
}

void CheckPriorityClass(const PriorityClass& priority_class, Findings* findings) {
  const LocatedText& text = priority_class.may_opt_out;
  int64_t most = 0;
  if (!text.present() || absl::SimpleAtoi(text.value, &most)) return;
  findings->Add(
      "preemptible-without-effect", priority_class.file, text.line,
      fmt::format("annotation {} of PriorityClass {} is \"{}\", no number: nobody may opt "
                  "out of being preempted",
                  kube::kMayOptOutAnnotation, priority_class.name, text.value),
      "write the priority up to which its pods may");
}

void CheckGang(const LintGang& gang, const Surroundings& around, Findings* findings) {
  CheckGangPolicy(gang, findings);
  CheckProtection(gang, around, findings);
  CheckLaunch(gang, findings);
  CheckPodAffinity(gang, around, findings);
  CheckNodeSelection(gang, around, findings);
  CheckDevices(gang, around, findings);
  CheckQueueOf(gang, around, findings);
  CheckAdmission(gang, around, findings);
  CheckHonoured(gang, around.manifests, findings);
  CheckOptOut(gang, around.manifests, findings);
}

}  // namespace muster::lint
