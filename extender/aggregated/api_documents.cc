#include "extender/aggregated/api_documents.h"

#include <nlohmann/json.hpp>

#include "extender/aggregated/api_resources.h"
#include "extender/openapi.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using nlohmann::json;

std::string BasePath() { return fmt::format("/apis/{}", kApiGroupVersion); }

json Version() {
  return {{"groupVersion", std::string(kApiGroupVersion)}, {"version", std::string(kApiVersion)}};
}

json Group() {
  return {{"name", std::string(kApiGroup)},
          {"versions", json::array({Version()})},
          {"preferredVersion", Version()}};
}

json Ref(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

json ObjectSchema(const ApiResource& resource, OpenApiSchemas* schemas) {
  return {{"type", "object"},
          {"description", resource.description},
          {"properties",
           {{"apiVersion", {{"type", "string"}}},
            {"kind", {{"type", "string"}}},
            {"metadata", {{"type", "object"}}},
            {"status", schemas->Of(*resource.status)}}},
          {"x-kubernetes-group-version-kind", json::array({{{"group", std::string(kApiGroup)},
                                                            {"version", std::string(kApiVersion)},
                                                            {"kind", resource.kind}}})}};
}

json ListSchema(const ApiResource& resource) {
  return {
      {"type", "object"},
      {"required", json::array({"items"})},
      {"properties",
       {{"apiVersion", {{"type", "string"}}},
        {"kind", {{"type", "string"}}},
        {"metadata", {{"type", "object"}}},
        {"items", {{"type", "array"}, {"items", Ref(fmt::format("Visible{}", resource.kind))}}}}}};
}

json Operation(const ApiResource& resource, const char* action, const std::string& schema) {
  return {{"get",
           {{"description", resource.description},
            {"x-kubernetes-action", action},
            {"x-kubernetes-group-version-kind",
             {{"group", std::string(kApiGroup)},
              {"version", std::string(kApiVersion)},
              {"kind", resource.kind}}},
            {"responses",
             {{"200",
               {{"description", "OK"},
                {"content", {{"application/json", {{"schema", Ref(schema)}}}}}}}}}}}};
}

json PathParameter(const char* name) {
  return {{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}};
}

}  // namespace

std::string ApiGroupListJson() {
  return json{{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", json::array({Group()})}}
      .dump();
}

std::string ApiGroupJson() {
  json group = Group();
  group["kind"] = "APIGroup";
  group["apiVersion"] = "v1";
  return group.dump();
}

std::string ApiResourceListJson() {
  json resources = json::array();
  for (const ApiResource& resource : ApiResources()) {
    resources.push_back({{"name", resource.plural},
                         {"singularName", resource.singular},
                         {"namespaced", resource.namespaced},
                         {"kind", resource.kind},
                         {"verbs", {"get", "list", "watch"}}});
  }
  return json{{"kind", "APIResourceList"},
              {"apiVersion", "v1"},
              {"groupVersion", std::string(kApiGroupVersion)},
              {"resources", resources}}
      .dump();
}

std::string OpenApiV2Json() {
  return json{{"swagger", "2.0"},
              {"info", {{"title", "Muster"}, {"version", std::string(kApiVersion)}}},
              {"paths", json::object()},
              {"definitions", json::object()}}
      .dump();
}

std::string OpenApiV3RootJson() {
  const std::string path = fmt::format("apis/{}", kApiGroupVersion);
  return json{{"paths", {{path, {{"serverRelativeURL", "/openapi/v3/" + path}}}}}}.dump();
}

std::string OpenApiV3Json() {
  OpenApiSchemas schemas;
  json visible = json::object();
  json paths = json::object();
  for (const ApiResource& resource : ApiResources()) {
    // A Node's status is a Node, too.
    const std::string object = fmt::format("Visible{}", resource.kind);
    const std::string list = object + "List";
    visible[object] = ObjectSchema(resource, &schemas);
    visible[list] = ListSchema(resource);
    const std::string all = fmt::format("{}/{}", BasePath(), resource.plural);
    paths[all] = Operation(resource, "list", list);
    const std::string in = resource.namespaced ? fmt::format("{}/namespaces/{{namespace}}/{}",
                                                             BasePath(), resource.plural)
                                               : all;
    json parameters = json::array();
    if (resource.namespaced) {
      parameters.push_back(PathParameter("namespace"));
      paths[in] = Operation(resource, "list", list);
      paths[in]["parameters"] = parameters;
    }
    parameters.push_back(PathParameter("name"));
    paths[in + "/{name}"] = Operation(resource, "get", object);
    paths[in + "/{name}"]["parameters"] = parameters;
  }
  json all = schemas.Take();
  all.update(visible);
  return json{{"openapi", "3.0.0"},
              {"info", {{"title", "Muster"}, {"version", std::string(kApiVersion)}}},
              {"paths", paths},
              {"components", {{"schemas", all}}}}
      .dump();
}

}  // namespace muster::extender
