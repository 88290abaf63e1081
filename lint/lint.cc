#include "lint/lint.h"

#include <istream>
#include <map>
#include <ostream>
#include <set>

#include "lint/gangs.h"
#include "lint/output.h"
#include "lint/rules.h"
#include "lint/text.h"
#include "yaml/engine_options.h"
#include "yaml/source_text.h"

namespace muster::lint {

int LintResult::ExitCode() const {
  if (!errors.empty()) return 2;
  return findings.empty() ? 0 : 1;
}

LintResult Lint(const std::vector<SourceText>& sources, const cluster::InstanceTypes& types,
                const coscheduling::EngineOptions& options) {
  Manifests manifests = ReadManifests(sources, options);
  const PoolIndex pools(manifests.pools, types);
  const Judge judge(manifests, types, options.scheduler_name);
  const Surroundings around{manifests, types, pools, judge};
  Findings findings;
  // So that findings stand in the order of the files.
  const std::vector<LintGang> gangs = FindGangs(manifests);
  std::set<const PodGroup*> used;
  std::map<const Workload*, std::vector<const LintGang*>> gangs_of;
  for (const LintGang& gang : gangs) {
    if (gang.group != nullptr) used.insert(gang.group);
    CheckGang(gang, around, &findings);
    gangs_of[gang.workload].push_back(&gang);
  }
  for (const Workload& workload : manifests.workloads) {
    CheckRefused(workload, &findings);
    CheckByJudge(workload, gangs_of[&workload], around, &findings);
  }
  for (const ClusterQueue& queue : manifests.cluster_queues) CheckClusterQueue(queue, &findings);
  CheckQueues(around, &findings);
  for (const PodGroup& group : manifests.groups) {
    if (!used.contains(&group)) CheckPodGroup(group, &findings);
  }
  for (const PriorityClass& each : manifests.priority_classes) CheckPriorityClass(each, &findings);
  for (const NodePool& pool : manifests.pools) {
    CheckNodePool(pool, gangs, around, &findings);
    CheckRefused(pool, around, &findings);
  }
  for (const ResourceFlavor& flavor : manifests.flavors) CheckFlavor(flavor, around, &findings);
  for (const Workload& workload : manifests.workloads) CheckByApi(workload, &findings);
  for (const Written& each : manifests.others) {
    CheckRefused(each, manifests, &findings);
    CheckByApi(each, &findings);
  }
  CheckNodes(gangs, around, &findings);
  CheckPodSecurity(manifests, &findings);
  CheckAllKinds(manifests, &findings);
  CheckAllNames(manifests, options.scheduler_name, &findings);
  CheckAllValues(manifests, &findings);
  return {findings.Take(), std::move(manifests.errors), sources.size()};
}

int RunLint(const LintOptions& options, std::istream& in, std::ostream& out, std::ostream& err) {
  cluster::InstanceTypes types = cluster::InstanceTypes::BuiltIn();
  if (!options.instance_types.empty()) {
    const absl::StatusOr<std::string> text = yaml::ReadSource(options.instance_types, in);
    absl::Status added = text.ok()
                             ? types.Add(*text, options.instance_types)
                             : absl::NotFoundError(Concat(options.instance_types, ": ",
                                                          std::string(text.status().message())));
    if (!added.ok()) {
      err << "muster: " << std::string(added.message()) << "\n";
      return 2;
    }
  }
  coscheduling::EngineOptions configured;
  if (!options.config.empty()) {
    const absl::StatusOr<std::string> text = yaml::ReadSource(options.config, in);
    const absl::Status read =
        text.ok() ? yaml::ReadQuotaOptions(*text, &configured) : text.status();
    if (!read.ok()) {
      err << "muster: " << options.config << ": " << std::string(read.message()) << "\n";
      return 2;
    }
  }
  std::vector<SourceText> sources;
  std::vector<FileError> missing;
  for (const std::string& file : options.files) {
    absl::StatusOr<std::string> text = yaml::ReadSource(file, in);
    if (text.ok()) {
      sources.push_back({file, *std::move(text)});
    } else {
      missing.push_back({file, 1, std::string(text.status().message())});
    }
  }
  LintResult result = Lint(sources, types, configured);
  result.errors.insert(result.errors.begin(), missing.begin(), missing.end());
  result.files = options.files.size();
  out << (options.output == "json"    ? JsonOutput(result)
          : options.output == "sarif" ? SarifOutput(result)
                                      : TextOutput(result));
  for (const FileError& error : result.errors) {
    err << error.file << ":" << error.line << ": error: " << error.message << "\n";
  }
  return result.ExitCode();
}

}  // namespace muster::lint
