// What the scheduler says, at the lines that it speaks of.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "lint/locate.h"
#include "lint/near.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

// More about a fix than the reason has: what is written, and where it is to be changed.
struct Precisely {
  std::string fix;  // follows the reason's; empty: nothing more is known
  Place place;      // line 0: where the reason leads
  std::string yaml;
};

// The templates that a judgement is about.
std::vector<const PodTemplate*> PodsOf(const Judgement& judgement, const Workload& workload) {
  if (judgement.pods != nullptr) return {judgement.pods};
  std::vector<const PodTemplate*> all;
  for (const PodTemplate& each : workload.templates) all.push_back(&each);
  return all;
}

// "its taint nvidia.com/gpu=true:NoSchedule isn't tolerated"
Precisely OfTaint(const Judgement& judgement, const Workload& workload) {
  const std::string_view text = judgement.reason.message;
  constexpr std::string_view kTaint = "its taint ";
  const size_t at = text.find(kTaint);
  if (at == std::string_view::npos) return {};
  const std::string_view taint =
      text.substr(at + kTaint.size(), text.find(' ', at + kTaint.size()) - at - kTaint.size());
  const size_t colon = taint.rfind(':');
  if (colon == std::string_view::npos) return {};
  const auto [key, value] = SplitOnce(taint.substr(0, colon), '=');
  const std::string_view effect = taint.substr(colon + 1);
  for (const PodTemplate* pods : PodsOf(judgement, workload)) {
    if (pods->told_at > 0 || pods->layers.empty()) continue;
    for (const YamlValue& each : pods->layers.front().Get("tolerations").Items()) {
      const YamlValue its_key = each.Get("key");
      const Place here{pods->file, its_key.line()};
      if (its_key.Text() != key) {
        if (IsNear(its_key.Text(), key)) {
          return {fmt::format("; the toleration of {} should be of {}", its_key.Text(), key), here,
                  ""};
        }
        continue;
      }
      const YamlValue its_effect = each.Get("effect");
      if (its_effect.present() && its_effect.Text() != effect) {
        return {fmt::format("; its toleration has effect {}: make that {}, or leave it out",
                            its_effect.Text(), effect),
                {pods->file, its_effect.line()},
                ""};
      }
      const YamlValue its_value = each.Get("value");
      if (each.Get("operator").Text() != "Exists" && its_value.Text() != value) {
        return {fmt::format("; its toleration has value \"{}\": make that \"{}\", or say operator: "
                            "Exists without a value",
                            its_value.Text(), value),
                {pods->file, its_value.present() ? its_value.line() : its_key.line()},
                ""};
      }
    }
  }
  return {fmt::format("; the toleration is {{key: {}, operator: Exists, effect: {}}}", key, effect),
          {},
          fmt::format("tolerations:\n- key: {}\n  operator: Exists\n  effect: {}\n", key, effect)};
}

// Of what the pods select and no node has: what the NodePools' nodes have instead.
Precisely OfLabel(const Judgement& judgement, const Workload& workload,
                  const Manifests& manifests) {
  const std::string& text = judgement.reason.message;
  std::vector<const NodePool*> pools;
  for (const NodePool& pool : manifests.pools) pools.push_back(&pool);
  for (const PodTemplate* pods : PodsOf(judgement, workload)) {
    for (const Requirements& needs : AlternativesOf(*pods)) {
      for (const Requirement& need : needs) {
        if (text.find(Concat(need.key, "=")) == std::string::npos &&
            text.find(Concat(need.key, " ")) == std::string::npos) {
          continue;
        }
        std::vector<std::string_view> offered;
        for (const NodePool* pool : pools) {
          for (const YamlField& field : pool->yaml.At("metadata.labels").Fields()) {
            if (field.key != need.key) continue;
            return {fmt::format("; label {} is of NodePool {} itself: move it to "
                                "spec.template.metadata.labels, so that its nodes get it",
                                field.key, pool->name),
                    {pool->file, field.line},
                    ""};
          }
          for (const auto& [key, value] : pool->labels) offered.push_back(key);
          for (const Requirement& each : pool->requirements) offered.push_back(each.key);
        }
        if (std::ranges::find(offered, need.key) != offered.end()) {
          return {Concat("; ", WhatIsOffered(pools, need.key)), {}, ""};
        }
        const std::string_view meant = Nearest(need.key, offered);
        if (!meant.empty()) return {Concat("; their nodes have ", meant), {}, ""};
      }
    }
  }
  return {};
}

Precisely MoreOf(const Judgement& judgement, const Workload& workload, const Manifests& manifests) {
  switch (judgement.reason.code) {
    case v1::POOL_TAINT_NOT_TOLERATED:
    case v1::FLAVOR_MISMATCH:
      return OfTaint(judgement, workload);
    case v1::NODE_LABEL_NOT_OFFERED:
    case v1::ZONE_NOT_OFFERED:
    case v1::CAPACITY_TYPE_NOT_OFFERED:
    case v1::INSTANCE_TYPE_NOT_ALLOWED:
      return OfLabel(judgement, workload, manifests);
    case v1::NODE_POOL_NOT_FOUND: {
      std::string names;
      for (const NodePool& pool : manifests.pools) {
        Append(&names, names.empty() ? "; there is " : ", ", pool.name);
      }
      return {names, {}, ""};
    }
    default:
      return {};
  }
}

void Tell(const Judgement& judgement, const std::string& who, const Workload& workload,
          const LintGang* gang, const Surroundings& around, Findings* findings) {
  const Precisely more = MoreOf(judgement, workload, around.manifests);
  const Place place =
      more.place.line > 0 ? more.place : PlaceOf(judgement, workload, gang, around.manifests);
  findings->Add(RuleOf(judgement.reason.code), place.file, place.line,
                Concat(who, ": ", judgement.reason.message), Concat(judgement.reason.fix, more.fix),
                more.yaml);
}

}  // namespace

void CheckByJudge(const Workload& workload, const std::vector<const LintGang*>& gangs,
                  const Surroundings& around, Findings* findings) {
  // What is wrong with it is told already.
  if (workload.unreadable) return;
  const MadePods made = MakePods(workload, around.judge.scheduler_name());
  const std::vector<Judgement> blockers = around.judge.Membership(workload, made);
  for (const Judgement& each : blockers) {
    Tell(each, workload.ToString(), workload, gangs.empty() ? nullptr : gangs.front(), around,
         findings);
  }
  bool placeable = blockers.empty();
  // Told by the scheduler of jobs whose queue is known.
  if (placeable) {
    CheckMaxSeconds(workload.ToString(), workload.file, workload.max_seconds, findings);
  }
  for (const LintGang* gang : gangs) {
    for (const Judgement& each : around.judge.Place(*gang, made)) {
      Tell(each, gang->Name(), workload, gang, around, findings);
      placeable = false;
    }
  }
  if (!placeable || gangs.empty()) return;
  for (const Judgement& each : around.judge.OneNode(workload, made)) {
    Tell(each, workload.ToString(), workload, gangs.front(), around, findings);
    return;
  }
  for (const Judgement& each : around.judge.Room(*gangs.front(), made)) {
    Tell(each, workload.ToString(), workload, gangs.front(), around, findings);
  }
}

void CheckQueues(const Surroundings& around, Findings* findings) {
  for (const QueueFault& fault : around.judge.QueueFaults()) {
    const Place place = PlaceOf(fault);
    findings->Add(RuleOf(fault.reason.code), place.file, place.line, fault.reason.message,
                  fault.reason.fix);
  }
}

}  // namespace muster::lint
