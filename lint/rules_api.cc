// What the API server itself would say of an object: the fields that it doesn't have, and values
// that it refuses, by the schemas and rules of the one in kube/embedded.
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kube/embedded/pod_rules.h"
#include "kube/embedded/schema.h"
#include "lint/json_tree.h"
#include "lint/kinds.h"
#include "lint/near.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using kube::embedded::Schema;
using yaml::YamlValue;

constexpr std::string_view kApi = "api-refused";

// --- where ---

// What a path leads to: "spec.containers[0].resources.limits[nvidia.com/gpu]"; `line` gets that of
// the last step that is there.
YamlValue Walk(YamlValue value, std::string_view path, int* line) {
  size_t at = 0;
  while (at < path.size()) {
    if (path[at] == '.') ++at;
    if (at < path.size() && path[at] == '[') {
      const size_t end = path.find(']', at);
      if (end == std::string_view::npos) return {};
      const std::string_view step = path.substr(at + 1, end - at - 1);
      int64_t index = 0;
      const std::vector<YamlValue> items = value.Items();
      if (value.is_sequence() && ParseInt(step, &index) && index >= 0 &&
          index < static_cast<int64_t>(items.size())) {
        value = items[static_cast<size_t>(index)];
      } else {
        value = value.Get(step);
      }
      at = end + 1;
    } else {
      // A key may have dots: the longest that is there.
      YamlValue next;
      size_t best = 0;
      for (const yaml::YamlField& field : value.Fields()) {
        const bool ends =
            path.size() == at + field.key.size() ||
            (path.size() > at + field.key.size() &&
             (path[at + field.key.size()] == '.' || path[at + field.key.size()] == '['));
        if (!ends || !path.substr(at).starts_with(field.key) || field.key.size() < best) continue;
        best = field.key.size();
        next = YamlValue(field.value, field.line);
      }
      value = next;
      at += best > 0 ? best : path.size();
    }
    if (value.node() == nullptr) return value;
    *line = value.line();
  }
  return value;
}

// --- what was meant ---

// The schema of the object that a path leads to.
const Schema* SchemaAt(const Schema* schema, std::string_view path) {
  for (std::string_view step : SplitWords(path, ".")) {
    const size_t items = step.find('[');
    schema = schema == nullptr ? nullptr : schema->Field(step.substr(0, items));
    if (items != std::string_view::npos && schema != nullptr) schema = schema->element.get();
  }
  return schema;
}

// The nearest path below which there is a field of this name; empty: nowhere.
std::string PathOf(std::string_view name, const Schema* root, const std::string& prefix) {
  std::vector<std::pair<const Schema*, std::string>> open = {{root, prefix}};
  std::set<const Schema*> seen;
  for (size_t i = 0; i < open.size(); ++i) {
    const auto [schema, path] = open[i];
    if (schema == nullptr || !seen.insert(schema).second) continue;
    if (schema->fields.contains(name)) return Concat(path, path.empty() ? "" : ".", name);
    for (const auto& [key, field] : schema->fields) {
      if (i == 0 && (key == "status" || key == "metadata")) continue;
      const bool list = field != nullptr && field->type == Schema::Type::kList;
      open.emplace_back(list ? field->element.get() : field.get(),
                        Concat(path, path.empty() ? "" : ".", key, list ? "[]" : ""));
    }
    if (schema->type == Schema::Type::kMap) open.emplace_back(schema->element.get(), path);
  }
  return "";
}

// Fields of earlier versions, and what took their place.
constexpr std::pair<std::string_view, std::string_view> kMoved[] = {
    {"spec.ttlSecondsAfterEmpty", "write spec.disruption.consolidateAfter, with its unit"},
    {"spec.ttlSecondsUntilExpired", "write spec.template.spec.expireAfter, with its unit"},
    {"spec.consolidation", "write spec.disruption.consolidationPolicy"},
    {"spec.providerRef", "name the EC2NodeClass in spec.template.spec.nodeClassRef"},
    {"spec.provider", "name an EC2NodeClass in spec.template.spec.nodeClassRef"},
    {"spec.template.spec.kubelet", "write it as spec.kubelet of the EC2NodeClass"},
    {"spec.kubeletConfiguration", "write it as spec.kubelet of the EC2NodeClass"},
    {"spec.template.spec.nodeClassRef.apiVersion", "say group: karpenter.k8s.aws"},
    {"spec.launchTemplate", "say amiSelectorTerms and userData: launch templates aren't read"},
    {"spec.processingUnitsPerNode", "call it slotsPerWorker"},
    {"TrainJob spec.template",
     "write it in the pod template of its runtime, or below spec.podTemplateOverrides"},
    {"spec.datasetConfig", "write it as spec.initializer.dataset"},
    {"spec.modelConfig", "write it as spec.initializer.model"},
};

// The one field whose name has this one in it.
std::string_view OnlyOneWith(std::string_view name, const std::vector<std::string_view>& fields) {
  std::string_view found;
  if (name.size() < 5) return found;
  for (const std::string_view field : fields) {
    const auto part = std::ranges::search(field, name, [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) ==
             std::tolower(static_cast<unsigned char>(b));
    });
    if (part.empty()) continue;
    if (!found.empty()) return "";
    found = field;
  }
  return found;
}

class Look {
 public:
  Look(std::string what, std::string file, YamlValue object, const Schema& schema,
       Findings* findings)
      : what_(std::move(what)),
        file_(std::move(file)),
        object_(std::move(object)),
        schema_(schema),
        findings_(findings),
        json_(JsonOf(object_)) {}

  // False if the types of its values aren't right, so that nothing more can be asked.
  bool Shape() {
    const auto found = kube::embedded::ApplySchema(schema_, /*keep_unknown=*/true, &json_);
    for (const std::string& path : found.unknown_fields) Unknown(path);
    for (const std::string& text : found.type_errors) WrongType(text);
    if (!found.type_errors.empty()) return false;
    for (const auto& cause : found.constraints.causes()) Refused(cause);
    return json_.is_object();
  }

  void AsPods() {
    if (!Shape() || !json_.contains("spec")) return;
    kube::embedded::DefaultPod(&json_);
    kube::embedded::FieldErrors errors;
    kube::embedded::ValidatePod(json_, &errors);
    for (const auto& cause : errors.causes()) Refused(cause);
  }

 private:
  // Only what was likely meant otherwise: newer versions have more fields than are known.
  void Unknown(const std::string& path) {
    // A key may have dots: what is written there ends the path.
    size_t dot = path.rfind('.');
    int line = 0;
    while (dot != std::string::npos && path.find('/', dot) != std::string::npos &&
           Walk(object_, path.substr(0, dot), &line).Get(path.substr(dot + 1)).node() == nullptr) {
      dot = dot == 0 ? std::string::npos : path.rfind('.', dot - 1);
    }
    const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    std::string fix;
    for (const auto& [gone, now] : kMoved) {
      if (path == gone || Concat(object_.Get("kind").Text(), " ", path) == gone) fix = now;
    }
    const Schema* at = SchemaAt(&schema_, parent);
    if (fix.empty() && at != nullptr) {
      if (at->fields.contains("limits") && at->fields.contains("requests")) {
        fix = Concat("write ", name, " below limits, or requests");
      }
      std::vector<std::string_view> fields;
      for (const auto& [field, type] : at->fields) fields.push_back(field);
      const std::string_view meant = Nearest(name, fields);
      if (fix.empty() && !meant.empty()) fix = Concat("call it ", meant);
      if (fix.empty() && PathOf(name, &schema_, "").empty()) {
        const std::string_view part = OnlyOneWith(name, fields);
        if (!part.empty()) fix = Concat("call it ", part);
      }
    }
    if (fix.empty()) {
      const std::string elsewhere = PathOf(name, &schema_, "");
      if (!elsewhere.empty()) fix = Concat("it belongs to ", elsewhere);
    }
    if (fix.empty()) return;
    Tell(path, Concat("there is no field ", path, ": the API server refuses or drops it"), fix);
  }

  void WrongType(const std::string& text) {
    const std::string path = text.substr(0, text.find(": "));
    int line = 0;
    const YamlValue value = Walk(object_, path, &line);
    const auto wants = [&](const char* what) {
      return text.find(Concat("want ", what)) != std::string::npos;
    };
    std::string fix = Concat("correct ", path);
    if (wants("a string") && value.is_scalar()) {
      fix = Concat("write it in quotes: \"", value.Text(), "\"");
    } else if (wants("an array") && value.present()) {
      fix = value.is_scalar() ? Concat("write it as a list: [", value.Text(), "]")
                              : std::string("write it as a list, each entry after a \"- \"");
    } else if (wants("an integer") || wants("a boolean")) {
      fix = value.is_scalar() && value.node()->quoted
                ? Concat("write it without quotes: ", value.Text())
                : Concat("write ", wants("a boolean") ? "true or false" : "a whole number");
    } else if (wants("a quantity")) {
      fix = "write a number with a unit of Kubernetes, 16Gi or 500m for example";
    } else if (wants("an object")) {
      const Schema* at = SchemaAt(&schema_, path);
      fix = value.is_scalar() && at != nullptr && at->fields.contains("name")
                ? fmt::format("write name: {} below it", value.Text())
                : std::string("write it as a mapping, with the fields that it has");
    }
    Tell(path, Concat("the API server refuses ", text), fix);
  }

  void Refused(const kube::embedded::ErrorCause& cause) {
    // Told by rules_refused.cc, with the device.
    if (cause.message.find("non overcommitable") != std::string::npos) return;
    std::string path = cause.field;
    std::string fix = Concat("correct ", path);
    if (cause.reason == "FieldValueRequired") {
      fix = Concat("say ", path);
    } else if (cause.reason == "FieldValueNotSupported") {
      const std::vector<std::string_view> quoted = Split(cause.message, "\"");
      std::vector<std::string_view> choices;
      for (size_t i = 3; i < quoted.size(); i += 2) choices.push_back(quoted[i]);
      const std::string_view meant =
          quoted.size() < 2 ? std::string_view() : Nearest(quoted[1], choices);
      fix = meant.empty() ? Concat("write one of the values that ", path, " may have")
                          : Concat("write ", meant);
    }
    if (cause.message.find("value must be empty") != std::string::npos &&
        path.ends_with(".operator")) {
      path.replace(path.rfind('.'), std::string::npos, ".value");
      fix = "leave value out, or make the operator Equal";
    }
    // A map of amounts: the one that is meant.
    int line = 0;
    for (const yaml::YamlField& field : Walk(object_, path, &line).Fields()) {
      if (cause.message.find(Concat(" ", field.key, " limit")) == std::string::npos) continue;
      fix = Concat("make the limit of ", field.key, " as large as its request, or ask for less");
      Append(&path, "[", field.key, "]");
      break;
    }
    Tell(path, Concat("the API server refuses ", cause.field, ": ", cause.message), fix);
  }

  void Tell(const std::string& path, const std::string& message, const std::string& fix) {
    int line = object_.line();
    Walk(object_, path, &line);
    if (findings_->HasErrorAt(file_, line)) return;
    findings_->Add(kApi, file_, line, Concat(what_, ": ", message), fix);
  }

  const std::string what_;
  const std::string file_;
  const YamlValue object_;
  const Schema& schema_;
  Findings* const findings_;
  nlohmann::json json_;
};

}  // namespace

namespace {

// True if there is no such kind, or not of that version.
bool TellKind(const YamlValue& object, const std::string& what, const std::string& file,
              Findings* findings) {
  const YamlValue version = object.Get("apiVersion");
  const YamlValue kind = object.Get("kind");
  const MeantKind meant = KindMeant(version.Text(), kind.Text());
  if (meant.api_version.empty()) return false;
  findings->Add(kApi, file, meant.of_kind ? kind.line() : version.line(),
                fmt::format("{}: the API server has no {} of {}", what, kind.Text(),
                            version.present() ? version.Text() : std::string("no API")),
                Concat("make it a ", meant.kind, " of ", meant.api_version),
                Concat("apiVersion: ", meant.api_version, "\nkind: ", meant.kind, "\n"));
  return true;
}

}  // namespace

void CheckByApi(const Workload& workload, Findings* findings) {
  const std::string what = workload.ToString();
  if (TellKind(workload.yaml, what, workload.file, findings) || workload.unreadable) return;
  const bool alone = workload.kind.starts_with("Pod");
  const std::string& version = workload.yaml.Get("apiVersion").Text();
  if (const auto schema = SchemaOfKind(workload.kind, version); schema != nullptr && !alone) {
    Look(what, workload.file, workload.yaml, *schema, findings).Shape();
  }
  for (const PodTemplate& pods : workload.templates) {
    if (pods.incomplete || pods.told_at > 0 || !pods.whole.present()) continue;
    const auto schema = kube::embedded::CoreSchema(alone ? "Pod" : "PodTemplateSpec");
    Look(what, pods.file, pods.whole, *schema, findings).AsPods();
  }
}

void CheckByApi(const Written& object, Findings* findings) {
  const std::string& kind = object.yaml.Get("kind").Text();
  const std::string what = Concat(kind, " ", object.yaml.At("metadata.name").Text());
  if (TellKind(object.yaml, what, object.file, findings)) return;
  const auto schema = SchemaOfKind(kind, object.yaml.Get("apiVersion").Text());
  if (schema != nullptr) Look(what, object.file, object.yaml, *schema, findings).Shape();
}

}  // namespace muster::lint
