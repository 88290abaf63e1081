// `muster lint`: mistakes in manifests, found without a cluster.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cluster/instance_types.h"
#include "lint/finding.h"
#include "lint/manifests.h"

namespace muster::lint {

struct LintResult {
  std::vector<Finding> findings;
  std::vector<FileError> errors;  // what couldn't be read; the rest was looked at even so
  size_t files = 0;
  // 0 clean, 1 findings, 2 unreadable.
  int ExitCode() const;
};

// Looks at all of them together: a job is checked against the NodePools, queues and flavors among
// them. `options`: what Muster is told of quota, unless its ConfigMap is among them. Takes time
// linear in the text, and in jobs x NodePools.
LintResult Lint(const std::vector<SourceText>& sources, const cluster::InstanceTypes& types,
                const coscheduling::EngineOptions& options = {});

struct LintOptions {
  std::vector<std::string> files;  // "-": standard input
  std::string output = "text";     // text, json, sarif
  std::string instance_types{};    // a file of more types; empty: none
  std::string config{};            // Muster's configuration; empty: none
};

// Reads the files, prints what was found to `out` and what stood in the way to `err`. Returns the
// exit code.
int RunLint(const LintOptions& options, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace muster::lint
