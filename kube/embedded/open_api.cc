#include "kube/embedded/open_api.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

std::string DocumentName(const ResourceType& type) {
  return type.group.empty() ? "api/" + type.version : "apis/" + type.group + "/" + type.version;
}

Json GroupVersionKind(const ResourceType& type) {
  return {{"group", type.group}, {"version", type.version}, {"kind", type.kind}};
}

Json QueryParameter(const char* name) {
  return {{"name", name}, {"in", "query"}, {"schema", {{"type", "string"}}}};
}

Json PatchOperation(const ResourceType& type) {
  Json content;
  for (std::string_view media : {kJsonPatch, kMergePatch}) {
    content[std::string(media)] = {{"schema", {{"type", "object"}}}};
  }
  return {{"operationId", "patch" + type.kind},
          {"parameters",
           {QueryParameter("dryRun"), QueryParameter("fieldManager"),
            QueryParameter("fieldValidation")}},
          {"requestBody", {{"content", content}}},
          {"responses", {{"200", {{"description", "OK"}}}}},
          {"x-kubernetes-action", "patch"},
          {"x-kubernetes-group-version-kind", GroupVersionKind(type)}};
}

Json Document(const std::vector<const ResourceType*>& types, const std::string& name) {
  Json paths = Json::object();
  Json schemas = Json::object();
  for (const ResourceType* type : types) {
    if (DocumentName(*type) != name) continue;
    std::string path = fmt::format("/{}/{}{}/{{name}}", name,
                                   type->namespaced ? "namespaces/{namespace}/" : "", type->plural);
    paths[path] = {{"patch", PatchOperation(*type)}};
    schemas[fmt::format("{}.{}.{}", type->group.empty() ? "core" : type->group, type->version,
                        type->kind)] = {
        {"type", "object"},
        {"x-kubernetes-group-version-kind", Json::array({GroupVersionKind(*type)})}};
  }
  return {{"openapi", "3.0.0"},
          {"info", {{"title", "Kubernetes"}, {"version", "unversioned"}}},
          {"paths", paths},
          {"components", {{"schemas", schemas}}}};
}

}  // namespace

std::optional<Answer> OpenApiAnswer(const std::vector<const ResourceType*>& types,
                                    const std::string& path) {
  constexpr std::string_view kRoot = "/openapi/v3";
  if (!path.starts_with(kRoot)) return std::nullopt;
  std::set<std::string> names;
  for (const ResourceType* type : types) names.insert(DocumentName(*type));
  Json body;
  if (path == kRoot) {
    for (const std::string& name : names) {
      body["paths"][name] = {{"serverRelativeURL", fmt::format("{}/{}", kRoot, name)}};
    }
  } else {
    std::string name = path.substr(kRoot.size() + 1);
    if (!names.contains(name)) return std::nullopt;
    body = Document(types, name);
  }
  Answer answer;
  answer.response = {200, body.dump(), std::nullopt};
  return answer;
}

}  // namespace muster::kube::embedded
