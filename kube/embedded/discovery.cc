// What clients ask to learn what there is: groups, versions, kinds, OpenAPI documents, health.
#include <fmt/format.h>

#include <map>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/open_api.h"
#include "kube/embedded/server_impl.h"

namespace muster::kube::embedded {
namespace {

Answer JsonAnswer(const Json& body) {
  Answer answer;
  answer.response = {200, body.dump(), std::nullopt};
  return answer;
}

Json GroupVersion(const std::string& group, const std::string& version) {
  return {{"groupVersion", group + "/" + version}, {"version", version}};
}

// Groups with their versions, in order of name; core is left out.
std::map<std::string, std::vector<std::string>> GroupsOf(
    const std::vector<const ResourceType*>& types) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const ResourceType* type : types) {
    if (type->group.empty()) continue;
    std::vector<std::string>& versions = groups[type->group];
    if (std::find(versions.begin(), versions.end(), type->version) == versions.end()) {
      versions.push_back(type->version);
    }
  }
  return groups;
}

Json GroupJson(const std::string& name, const std::vector<std::string>& versions) {
  Json group = {{"name", name}, {"preferredVersion", GroupVersion(name, versions[0])}};
  for (const std::string& version : versions) {
    group["versions"].push_back(GroupVersion(name, version));
  }
  return group;
}

Json ResourceJson(const ResourceType& type) {
  Json resource = {
      {"name", type.plural},
      {"singularName", type.singular},
      {"namespaced", type.namespaced},
      {"kind", type.kind},
      {"verbs",
       {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}}};
  if (!type.short_names.empty()) resource["shortNames"] = type.short_names;
  if (!type.categories.empty()) resource["categories"] = type.categories;
  return resource;
}

Json Subresource(const ResourceType& type, const char* name, const char* group, const char* version,
                 const std::string& kind, std::vector<std::string> verbs) {
  Json resource = {{"name", type.plural + "/" + name},
                   {"singularName", ""},
                   {"namespaced", type.namespaced},
                   {"kind", kind},
                   {"verbs", std::move(verbs)}};
  if (*version != 0) {
    resource["group"] = group;
    resource["version"] = version;
  }
  return resource;
}

Json ResourceList(const std::vector<const ResourceType*>& types, const std::string& group,
                  const std::string& version) {
  Json resources = Json::array();
  for (const ResourceType* type : types) {
    if (type->group != group || type->version != version) continue;
    resources.push_back(ResourceJson(*type));
    if (type->status_subresource) {
      resources.push_back(
          Subresource(*type, "status", "", "", type->kind, {"get", "patch", "update"}));
    }
    if (group.empty() && type->plural == "pods") {
      resources.push_back(Subresource(*type, "binding", "", "", "Binding", {"create"}));
      resources.push_back(Subresource(*type, "eviction", "policy", "v1", "Eviction", {"create"}));
    }
  }
  return {{"kind", "APIResourceList"},
          {"apiVersion", "v1"},
          {"groupVersion", group.empty() ? version : group + "/" + version},
          {"resources", resources}};
}

Json VersionJson(const std::string& version) {
  size_t dot = version.find('.');
  size_t second = version.find('.', dot + 1);
  return {{"major", version.substr(1, dot - 1)},
          {"minor", version.substr(dot + 1, second - dot - 1)},
          {"gitVersion", version},
          {"gitCommit", ""},
          {"gitTreeState", "clean"},
          {"buildDate", "1970-01-01T00:00:00Z"},
          {"goVersion", ""},
          {"compiler", ""},
          {"platform", "embedded"}};
}

}  // namespace

std::optional<Answer> ServerImpl::Discover(const Request& request) {
  if (request.method != Method::kGet) return std::nullopt;
  std::string path = request.path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/healthz" || path == "/livez" || path == "/readyz") {
    Answer answer;
    answer.response = {200, "ok", std::nullopt};
    answer.content_type = "text/plain";
    return answer;
  }
  if (path == "/version") return JsonAnswer(VersionJson(options_.version));
  std::vector<const ResourceType*> types;
  {
    std::lock_guard lock(mutex_);
    types = types_.Served();
  }
  if (path == "/api") {
    return JsonAnswer({{"kind", "APIVersions"}, {"versions", {"v1"}}});
  }
  std::map<std::string, std::vector<std::string>> groups = GroupsOf(types);
  if (path == "/apis") {
    Json list = {{"kind", "APIGroupList"}, {"apiVersion", "v1"}};
    for (const auto& [name, versions] : groups) list["groups"].push_back(GroupJson(name, versions));
    return JsonAnswer(list);
  }
  if (path.starts_with("/openapi/")) return OpenApiAnswer(types, path);
  if (path == "/api/v1") return JsonAnswer(ResourceList(types, "", "v1"));
  for (const auto& [name, versions] : groups) {
    if (path == "/apis/" + name) {
      Json group = GroupJson(name, versions);
      group["kind"] = "APIGroup";
      group["apiVersion"] = "v1";
      return JsonAnswer(group);
    }
    for (const std::string& version : versions) {
      if (path == fmt::format("/apis/{}/{}", name, version)) {
        return JsonAnswer(ResourceList(types, name, version));
      }
    }
  }
  return std::nullopt;
}

}  // namespace muster::kube::embedded
