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
  // Of a job's the scheduler says it (judge.h); pods by themselves may yet be made.
  if (gang.workload->kind == "Pods of group" && gang.pods > 1 && gang.pods < least.value) {
    findings->AddWarning(
        "min-member-unreachable", gang.PolicyFile(), least.line,
        fmt::format("{} is {}, but {} are given that belong to {}: it waits for "
                    "{} more",
                    field, least.value, Counted(gang.pods, "pod"), gang.Name(),
                    least.value - gang.pods),
        fmt::format("set {} to {}, or make the pods that are missing", field, gang.pods), yaml);
  }
  if (least.value > 0 && least.value < gang.least) {
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

// The pods without which no rank starts to train: of an elastic training the least that it takes.
int64_t LeastRanks(const LintGang& gang) {
  int64_t least = gang.workload->elastic ? gang.least : gang.pods;
  for (const PodTemplate* pods : gang.templates) {
    for (const Container& container : pods->containers) {
      for (const TorchrunCall& call : FindTorchrun(container)) {
        if (call.min_nodes) least = std::min(least, *call.min_nodes);
      }
    }
  }
  return least;
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
  const bool waited_for = least.present() && least.value < LeastRanks(gang);
  if (waited_for && timeout.value > rendezvous) {
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

// A job's own deadline runs while its nodes are being made.
void CheckDeadline(const LintGang& gang, Findings* findings) {
  if (!gang.WantsDevices()) return;
  const yaml::YamlValue spec = gang.workload->yaml.Get("spec");
  std::vector<yaml::YamlValue> deadlines = {spec.Get("activeDeadlineSeconds"),
                                            spec.At("runPolicy.activeDeadlineSeconds")};
  for (const yaml::YamlValue& job : spec.Get("replicatedJobs").Items()) {
    deadlines.push_back(job.At("template.spec.activeDeadlineSeconds"));
  }
  for (const yaml::YamlValue& deadline : deadlines) {
    int64_t seconds = 0;
    if (!ParseInt(deadline.Text(), &seconds) || seconds >= kNodeStartSeconds) continue;
    findings->Add("schedule-timeout-short", gang.workload->file, deadline.line(),
                  fmt::format("activeDeadlineSeconds of {} is {}, and runs while its nodes are "
                              "made, which takes up to {} s with GPUs",
                              gang.Name(), seconds, kNodeStartSeconds),
                  "give it the time that the nodes take, and that of its work");
  }
}

// Pods beyond the number that their group says are none of it.
void CheckTotalCount(const LintGang& gang, Findings* findings) {
  if (gang.workload->kind != "Pods of group") return;
  for (const PodTemplate* pods : gang.templates) {
    const auto total = pods->annotations.find("kueue.x-k8s.io/pod-group-total-count");
    int64_t count = 0;
    if (total == pods->annotations.end() || !ParseInt(total->second.value, &count) ||
        count >= gang.pods) {
      continue;
    }
    findings->Add(
        "min-member-below-job", pods->file, total->second.line,
        fmt::format("annotation kueue.x-k8s.io/pod-group-total-count is {}, but {} are "
                    "of group {}: it starts without the others",
                    count, Counted(gang.pods, "pod"), gang.workload->name),
        Concat("set kueue.x-k8s.io/pod-group-total-count to \"", gang.pods, "\" in all of them"));
    return;
  }
}

// Where some name one, the scheduler itself says that the others don't (judge.h).
void CheckSchedulerName(const LintGang& gang, Findings* findings) {
  if (gang.group == nullptr && !gang.templates.front()->group.present()) return;
  if (std::ranges::any_of(gang.templates, [](const PodTemplate* pods) {
        return pods->incomplete || pods->scheduler_name.present();
      })) {
    return;
  }
  for (const PodTemplate* pods : gang.templates) {
    findings->Add("scheduler-name-missing", pods->file, pods->spec_line,
                  fmt::format("{} gives {} no schedulerName, so the default scheduler starts them "
                              "one by one",
                              gang.Name(), Of(*pods)),
                  Concat("set schedulerName: ", kScheduler, " in each pod template"),
                  Concat("spec:\n  schedulerName: ", kScheduler, "\n"));
  }
}

// With the PriorityClasses at hand the scheduler compares what they stand for (judge.h).
void CheckPriorities(const LintGang& gang, const Manifests& manifests, Findings* findings) {
  const PodTemplate& first = *gang.templates.front();
  if (!manifests.priority_classes.empty() || !gang.IsGang()) return;
  for (const PodTemplate* pods : gang.templates) {
    const LocatedText& name = pods->priority_class;
    if (pods->incomplete || name.value == first.priority_class.value) continue;
    findings->Add(
        "members-disagree", pods->file, name.present() ? name.line : first.priority_class.line,
        fmt::format("{}: spec.priorityClassName of {} is \"{}\", of {} \"{}\"", gang.Name(),
                    Of(*pods), name.value, Of(first), first.priority_class.value),
        "give every replica type the same priorityClassName");
  }
}

bool AsksForSpot(const Requirement& requirement) {
  return requirement.key == kube::kCapacityTypeLabel && requirement.Accepts("spot") &&
         requirement.op == Requirement::Operator::kIn;
}

bool RulesOutSpot(const Requirements& needs) {
  return std::ranges::any_of(needs, [](const Requirement& need) {
    return need.key == kube::kCapacityTypeLabel && !need.Accepts("spot");
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
                      Concat("nodeSelector:\n  ", kube::kCapacityTypeLabel, ": on-demand\n"));
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
          Concat("- key: ", kube::kCapacityTypeLabel, "\n  operator: In\n  values: [on-demand]\n"));
    }
  }
}

}  // namespace

void CheckGangPolicy(const LintGang& gang, Findings* findings) {
  CheckMinMember(gang, findings);
  CheckTimeout(gang, findings);
  CheckDeadline(gang, findings);
  CheckTotalCount(gang, findings);
  CheckSchedulerName(gang, findings);
}

void CheckProtection(const LintGang& gang, const Surroundings& around, Findings* findings) {
  if (!gang.IsGang()) return;
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
  CheckPriorities(gang, around.manifests, findings);
  CheckProtection(gang, around, findings);
  CheckLaunch(gang, findings);
  CheckDeviceSetup(gang, around, findings);
  CheckHonoured(gang, findings);
  CheckOptOut(gang, around.manifests, findings);
}

}  // namespace muster::lint
