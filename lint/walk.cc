#include "lint/walk.h"

#include <utility>

#include "lint/field_reader.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

class Walker {
 public:
  explicit Walker(const std::function<void(const WalkedField&)>& see) : see_(see) {}

  void Fields(const YamlValue& parent) {
    for (const YamlField& field : parent.Fields()) {
      if (path_.empty() && (field.key == "status" || field.key == "data")) continue;
      Step(field.key, parent, YamlValue(field.value, field.line));
    }
  }

 private:
  void Step(std::string_view key, const YamlValue& parent, const YamlValue& value) {
    path_.push_back(key);
    see_({path_, parent, value});
    Fields(value);
    for (const YamlValue& item : value.Items()) {
      if (item.is_mapping()) {
        Fields(item);
      } else {
        Step("*", value, item);
      }
    }
    path_.pop_back();
  }

  const std::function<void(const WalkedField&)>& see_;
  std::vector<std::string_view> path_;
};

WalkedObject Of(const std::string& file, const YamlValue& object) {
  WalkedObject walked{"",
                      file,
                      object.Get("kind").Text(),
                      NamespaceOf(object),
                      object.At("metadata.name").Text(),
                      object};
  walked.what = Concat(walked.kind, " ", walked.name);
  return walked;
}

}  // namespace

bool WalkedField::Is(std::string_view steps) const {
  for (size_t i = path.size(); i > 0; --i) {
    const std::string_view step = path[i - 1];
    if (!steps.ends_with(step)) return false;
    steps.remove_suffix(step.size());
    if (steps.empty()) return true;
    if (!steps.ends_with('.')) return false;
    steps.remove_suffix(1);
  }
  return false;
}

bool WalkedField::IsIn(std::string_view parent_key) const {
  return path.size() > 1 && path[path.size() - 2] == parent_key;
}

std::vector<WalkedObject> WalkedObjects(const Manifests& manifests) {
  std::vector<WalkedObject> objects;
  for (const Workload& workload : manifests.workloads) {
    if (!workload.kind.starts_with("Pod")) {
      objects.push_back(Of(workload.file, workload.yaml));
      objects.back().what = workload.ToString();
      continue;
    }
    for (const PodTemplate& pod : workload.templates) {
      objects.push_back(Of(pod.file, pod.whole));
      objects.back().what = Concat("Pod ", workload.name_space, "/", objects.back().name);
    }
  }
  for (const Written& each : manifests.others) objects.push_back(Of(each.file, each.yaml));
  return objects;
}

void Walk(const YamlValue& object, const std::function<void(const WalkedField&)>& see) {
  if (object.Get("kind").Text() != "CustomResourceDefinition") Walker(see).Fields(object);
}

std::vector<YamlValue> AllAt(const YamlValue& object, std::string_view path) {
  std::vector<YamlValue> values = {object};
  for (const std::string_view step : Split(path, ".")) {
    std::vector<YamlValue> next;
    for (const YamlValue& value : values) {
      if (step == "*") {
        for (const YamlValue& item : value.Items()) next.push_back(item);
      } else if (const YamlValue field = value.Get(step); field.present()) {
        next.push_back(field);
      }
    }
    values = std::move(next);
  }
  return values;
}

}  // namespace muster::lint
