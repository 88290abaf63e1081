// Reading manifests' fields: the first thing in an object that can't be read becomes an error of
// its file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lint/manifests.h"
#include "lint/requirement.h"
#include "yaml/tree.h"

namespace muster::lint {

class FieldReader {
 public:
  FieldReader(std::string file, std::vector<FileError>* errors)
      : file_(std::move(file)), errors_(errors) {}

  const std::string& file() const { return file_; }
  // The same for an object of another file.
  FieldReader Other(std::string file) const { return {std::move(file), errors_}; }
  void Fail(int line, std::string_view message);
  // How often it did, the other readers of the same errors included.
  size_t failures() const { return errors_->size(); }

  LocatedText Text(const yaml::YamlValue& value);
  // An integer from 0 to 2^31 - 1; absent: line 0.
  LocatedCount Count(const yaml::YamlValue& value, std::string_view name);
  LocatedTexts Texts(const yaml::YamlValue& value, std::string_view name);
  std::map<std::string, std::string> Labels(const yaml::YamlValue& value, std::string_view name);
  LocatedAmounts Amounts(const yaml::YamlValue& value);
  // A mapping of labels that all must match: a nodeSelector.
  std::vector<Requirement> Selector(const yaml::YamlValue& value);
  // A list of {key, operator, values}: matchExpressions, a NodePool's requirements.
  std::vector<Requirement> Requirements(const yaml::YamlValue& value);

 private:
  std::string file_;
  std::vector<FileError>* errors_;
};

// The pods of a template (or a Pod itself): its metadata and its spec.
void ReadPodTemplate(const yaml::YamlValue& pod, FieldReader* reader, PodTemplate* out);
// Lays the fields of a spec over those that are there.
void ReadPodSpec(const yaml::YamlValue& spec, FieldReader* reader, PodTemplate* out);

// An object and the file that it stands in.
struct ManifestObject {
  std::string file;
  yaml::YamlValue yaml;
};

// The TrainingRuntimes and ClusterTrainingRuntimes that were given, by "NAMESPACE/NAME" and
// "/NAME".
using Runtimes = std::map<std::string, ManifestObject>;

// "batch/v1" and "Job" of an object; an API group is compared without its version.
bool IsKind(const yaml::YamlValue& object, std::string_view group, std::string_view kind);

// Those that make pods: PyTorchJob, Job, JobSet, TrainJob, MPIJob, RayCluster, RayJob, StatefulSet,
// Pod. False for other kinds.
bool ReadWorkload(const yaml::YamlValue& object, const Runtimes& runtimes, FieldReader* reader,
                  std::vector<Workload>* out);
PodGroup ReadPodGroup(const yaml::YamlValue& object, FieldReader* reader);
NodePool ReadNodePool(const yaml::YamlValue& object, FieldReader* reader);
ResourceFlavor ReadFlavor(const yaml::YamlValue& object, FieldReader* reader);
ClusterQueue ReadClusterQueue(const yaml::YamlValue& object, FieldReader* reader);
// PodGroup, NodePool, ResourceFlavor, ClusterQueue. Other kinds are passed over.
void ReadPolicy(const yaml::YamlValue& object, FieldReader* reader, Manifests* out);

// Into `given`: the kinds that the scheduler reads beside jobs. Others are passed over.
void ReadGiven(const yaml::YamlValue& object, const std::string& file, Manifests* out);
// The same where the object doesn't say its kind.
void ReadGivenAs(std::string_view kind, const yaml::YamlValue& object, const std::string& file,
                 Manifests* out);

// The namespace that an object without one lands in.
std::string NamespaceOf(const yaml::YamlValue& object);

}  // namespace muster::lint
