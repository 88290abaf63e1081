#include "extender/lint/lint.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <optional>
#include <ostream>
#include <set>

#include "extender/lint/gangs.h"
#include "extender/lint/output.h"
#include "extender/lint/rules.h"
#include "extender/lint/text.h"
#include "extender/lint/yaml_tree.h"

namespace muster::lint {
namespace {

// Up to one byte more than is taken, so that what is too large is noticed, and no more than that.
std::string ReadStream(std::istream& in) {
  std::string text;
  std::array<char, 1 << 16> piece;
  while (text.size() <= kMaxYamlBytes && in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
  }
  return text;
}

std::optional<std::string> ReadFile(const std::string& path, std::string* why) {
  std::ifstream in(path, std::ios::binary);
  if (in) {
    std::string text = ReadStream(in);
    if (!in.bad()) return text;
  }
  *why = std::strerror(errno == 0 ? EIO : errno);
  return std::nullopt;
}

}  // namespace

int LintResult::ExitCode() const {
  if (!errors.empty()) return 2;
  return findings.empty() ? 0 : 1;
}

LintResult Lint(const std::vector<SourceText>& sources, const cluster::InstanceTypes& types) {
  Manifests manifests = ReadManifests(sources);
  const PoolIndex pools(manifests.pools, types);
  const Surroundings around{manifests, types, pools};
  Findings findings;
  // So that findings stand in the order of the files.
  const std::vector<LintGang> gangs = FindGangs(manifests);
  std::set<const PodGroup*> used;
  for (const LintGang& gang : gangs) {
    if (gang.group != nullptr) used.insert(gang.group);
    CheckGang(gang, around, &findings);
  }
  for (const PodGroup& group : manifests.groups) {
    if (!used.contains(&group)) CheckPodGroup(group, &findings);
  }
  for (const NodePool& pool : manifests.pools) CheckNodePool(pool, gangs, around, &findings);
  for (const ResourceFlavor& flavor : manifests.flavors) CheckFlavor(flavor, around, &findings);
  for (const ClusterQueue& queue : manifests.cluster_queues) {
    CheckClusterQueue(queue, around, &findings);
  }
  for (const LocalQueue& queue : manifests.local_queues) {
    CheckLocalQueue(queue, around, &findings);
  }
  return {findings.Take(), std::move(manifests.errors), sources.size()};
}

int RunLint(const LintOptions& options, std::istream& in, std::ostream& out, std::ostream& err) {
  cluster::InstanceTypes types = cluster::InstanceTypes::BuiltIn();
  std::string why;
  if (!options.instance_types.empty()) {
    const std::optional<std::string> text = ReadFile(options.instance_types, &why);
    absl::Status added = text ? types.Add(*text, options.instance_types)
                              : absl::NotFoundError(Concat(options.instance_types, ": ", why));
    if (!added.ok()) {
      err << "muster: " << std::string(added.message()) << "\n";
      return 2;
    }
  }
  std::vector<SourceText> sources;
  std::vector<FileError> missing;
  for (const std::string& file : options.files) {
    std::optional<std::string> text = file == "-" ? ReadStream(in) : ReadFile(file, &why);
    if (text) {
      sources.push_back({file, *std::move(text)});
    } else {
      missing.push_back({file, 1, why});
    }
  }
  LintResult result = Lint(sources, types);
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
