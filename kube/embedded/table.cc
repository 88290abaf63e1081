#include "kube/embedded/table.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/table_cells.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

struct Column {
  const char* name;
  std::function<Json(const Json& object, absl::Time now)> cell;
  bool wide = false;
};

Column Text(const char* name, std::initializer_list<const char*> path, bool wide = false) {
  std::vector<const char*> kept(path);
  return {name,
          [kept](const Json& object, absl::Time) {
            const Json* at = &object;
            for (const char* field : kept) at = at == nullptr ? nullptr : FieldAt(*at, {field});
            if (at == nullptr || (at->is_string() && at->get_ref<const std::string&>().empty()))
              return Json("<none>");
            return at->is_string() ? *at : Json(at->dump());
          },
          wide};
}

Column Age(const char* name = "Age",
           std::initializer_list<const char*> path = {"metadata", "creationTimestamp"}) {
  std::vector<const char*> kept(path);
  return {
      name, [kept](const Json& object, absl::Time now) {
        const Json* at = &object;
        for (const char* field : kept) at = at == nullptr ? nullptr : FieldAt(*at, {field});
        return Json(AgeText(at == nullptr || !at->is_string() ? "" : at->get<std::string>(), now));
      }};
}

const std::vector<Column>& PodColumns() {
  static const auto* const kColumns = new std::vector<Column>{
      {"Ready", [](const Json& pod, absl::Time) { return Json(ReadyContainers(pod)); }},
      {"Status", [](const Json& pod, absl::Time) { return Json(PodStatusText(pod)); }},
      {"Restarts", [](const Json& pod, absl::Time) { return Json(Restarts(pod)); }},
      Age(),
      Text("IP", {"status", "podIP"}, true),
      Text("Node", {"spec", "nodeName"}, true),
      Text("Nominated Node", {"status", "nominatedNodeName"}, true),
      {"Readiness Gates", [](const Json&, absl::Time) { return Json("<none>"); }, true}};
  return *kColumns;
}

const std::vector<Column>& NodeColumns() {
  static const auto* const kColumns = new std::vector<Column>{
      {"Status", [](const Json& node, absl::Time) { return Json(NodeStatusText(node)); }},
      {"Roles", [](const Json&, absl::Time) { return Json("<none>"); }},
      Age(),
      Text("Version", {"status", "nodeInfo", "kubeletVersion"}),
      {"GPU", [](const Json& node, absl::Time) { return Json(DeviceText(node)); }},
      Text("Instance Type", {"metadata", "labels", "node.kubernetes.io/instance-type"}, true),
      Text("Zone", {"metadata", "labels", "topology.kubernetes.io/zone"}, true),
      Text("Node Pool", {"metadata", "labels", "karpenter.sh/nodepool"}, true)};
  return *kColumns;
}

const std::vector<Column>& EventColumns() {
  static const auto* const kColumns = new std::vector<Column>{
      {"Last Seen",
       [](const Json& event, absl::Time now) { return Json(AgeText(EventTime(event), now)); }},
      Text("Type", {"type"}),
      Text("Reason", {"reason"}),
      {"Object",
       [](const Json& event, absl::Time) {
         std::string kind = StringAt(event, {"involvedObject", "kind"});
         for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
         return Json(kind + "/" + StringAt(event, {"involvedObject", "name"}));
       }},
      Text("Message", {"message"})};
  return *kColumns;
}

const std::vector<Column>& ColumnsOf(const ResourceType& type) {
  static const auto* const kPlain = new std::vector<Column>{Age()};
  static const auto* const kNamed = new std::map<std::string, std::vector<Column>>{
      {"namespaces", {Text("Status", {"status", "phase"}), Age()}},
      {"persistentvolumeclaims",
       {Text("Status", {"status", "phase"}), Text("Volume", {"spec", "volumeName"}),
        Text("StorageClass", {"spec", "storageClassName"}), Age()}},
      {"persistentvolumes",
       {Text("Status", {"status", "phase"}), Text("Claim", {"spec", "claimRef", "name"}),
        Text("StorageClass", {"spec", "storageClassName"}), Age()}},
      {"services",
       {Text("Type", {"spec", "type"}), Text("Cluster-IP", {"spec", "clusterIP"}), Age()}},
      {"leases", {Text("Holder", {"spec", "holderIdentity"}), Age()}},
      {"jobs",
       {Text("Suspended", {"spec", "suspend"}), Text("Completions", {"spec", "completions"}),
        Age()}},
      {"statefulsets", {Text("Replicas", {"spec", "replicas"}), Age()}},
      {"storageclasses",
       {Text("Provisioner", {"provisioner"}), Text("VolumeBindingMode", {"volumeBindingMode"}),
        Age()}},
      {"priorityclasses", {Text("Value", {"value"}), Age()}},
      {"customresourcedefinitions", {Age("Created At")}}};
  if (type.plural == "pods") return PodColumns();
  if (type.plural == "nodes") return NodeColumns();
  if (type.plural == "events") return EventColumns();
  auto it = kNamed->find(type.plural);
  return it == kNamed->end() ? *kPlain : it->second;
}

Json Definition(const std::string& name, const std::string& type, bool wide) {
  return {{"name", name},
          {"type", type == "date" ? "string" : type},
          {"format", name == "Name" ? "name" : ""},
          {"description", ""},
          {"priority", wide ? 1 : 0}};
}

bool HasNameColumn(const ResourceType& type) { return type.plural != "events" || type.custom; }

Json Definitions(const ResourceType& type) {
  Json definitions = Json::array();
  if (HasNameColumn(type)) definitions.push_back(Definition("Name", "string", false));
  if (type.custom) {
    for (const PrinterColumn& column : type.columns) {
      definitions.push_back(Definition(column.name, column.type, column.priority > 0));
    }
    if (type.columns.empty()) definitions.push_back(Definition("Age", "date", false));
  } else {
    for (const Column& column : ColumnsOf(type)) {
      definitions.push_back(Definition(column.name, "string", column.wide));
    }
  }
  return definitions;
}

Json Row(const ResourceType& type, const Json& object, absl::Time now,
         const std::string& include_object) {
  Json cells = Json::array();
  if (HasNameColumn(type)) cells.push_back(StringAt(object, {"metadata", "name"}));
  if (type.custom) {
    for (const PrinterColumn& column : type.columns) {
      Json value = JsonPathValue(object, column.json_path);
      if (column.type == "date") {
        value = AgeText(value.is_string() ? value.get<std::string>() : "", now);
      }
      cells.push_back(std::move(value));
    }
    if (type.columns.empty()) {
      cells.push_back(AgeText(StringAt(object, {"metadata", "creationTimestamp"}), now));
    }
  } else {
    for (const Column& column : ColumnsOf(type)) cells.push_back(column.cell(object, now));
  }
  Json row = {{"cells", std::move(cells)}};
  if (include_object == "Object") {
    row["object"] = object;
  } else if (include_object != "None") {
    row["object"] = {{"kind", "PartialObjectMetadata"},
                     {"apiVersion", "meta.k8s.io/v1"},
                     {"metadata", MapAt(object, {"metadata"})}};
  }
  return row;
}

Json EmptyTable(const ResourceType& type, bool with_columns) {
  Json table = {{"kind", "Table"}, {"apiVersion", "meta.k8s.io/v1"}, {"rows", Json::array()}};
  table["columnDefinitions"] = with_columns ? Definitions(type) : Json::array();
  return table;
}

}  // namespace

bool WantsTable(std::string_view accept) {
  std::string_view first = accept.substr(0, accept.find(','));
  return first.find("as=Table") != std::string_view::npos &&
         first.find("v=v1") != std::string_view::npos &&
         first.find("v=v1beta1") == std::string_view::npos;
}

std::string ObjectTable(const ResourceType& type, const Json& object, absl::Time now,
                        const TableOptions& options) {
  Json table = EmptyTable(type, options.with_columns);
  table["metadata"]["resourceVersion"] = StringAt(object, {"metadata", "resourceVersion"});
  table["rows"].push_back(Row(type, object, now, options.include_object));
  return table.dump();
}

std::string ListTable(const ResourceType& type, const std::vector<ObjectPtr>& objects,
                      absl::Time now, const TableOptions& options) {
  Json table = EmptyTable(type, options.with_columns);
  table["metadata"] = Json::parse(options.list_metadata_json);
  for (const ObjectPtr& object : objects) {
    table["rows"].push_back(Row(type, object->value(), now, options.include_object));
  }
  return table.dump();
}

}  // namespace muster::kube::embedded
