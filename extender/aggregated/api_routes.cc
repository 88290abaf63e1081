#include "extender/aggregated/api_routes.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "extender/access/guard.h"
#include "extender/aggregated/api_documents.h"
#include "extender/aggregated/api_resources.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::extender {
namespace {

using nlohmann::json;

const char* ReasonOf(int status) {
  switch (status) {
    case 400:
      return "BadRequest";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "NotFound";
    case 405:
      return "MethodNotAllowed";
    case 429:
      return "TooManyRequests";
    case 503:
      return "ServiceUnavailable";
    default:
      return "";
  }
}

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

http::Response Failure(int status, const std::string& message, json details = json::object()) {
  details["retryAfterSeconds"] =
      status == 429 || status == 503 ? absl::ToInt64Seconds(kRetryAfter) : 0;
  http::Response response{.status = status,
                          .body = Dump({{"kind", "Status"},
                                        {"apiVersion", "v1"},
                                        {"metadata", json::object()},
                                        {"status", "Failure"},
                                        {"message", message},
                                        {"reason", ReasonOf(status)},
                                        {"details", std::move(details)},
                                        {"code", status}})};
  AddRefusalHeaders(status, &response);
  return response;
}

http::Response NotFound(const ApiResource& resource, const std::string& name) {
  return Failure(404, fmt::format("{}.{} \"{}\" not found", resource.plural, kApiGroup, name),
                 {{"name", name}, {"group", std::string(kApiGroup)}, {"kind", resource.plural}});
}

json MetadataOf(const ApiItem& item) {
  json metadata = {{"name", item.name}};
  if (!item.name_space.empty()) metadata["namespace"] = item.name_space;
  if (!item.uid.empty()) metadata["uid"] = item.uid;
  metadata["creationTimestamp"] =
      item.created ? json(kube::TimeText(*item.created)) : json(nullptr);
  return metadata;
}

std::string ObjectOf(const ApiResource& resource, const ApiItem& item) {
  return fmt::format(R"({{"apiVersion":"{}","kind":"{}","metadata":{},"status":{}}})",
                     kApiGroupVersion, resource.kind, Dump(MetadataOf(item)), item.status);
}

std::string ListOf(const ApiResource& resource, const std::vector<ApiItem>& items) {
  std::string list = fmt::format(R"({{"apiVersion":"{}","kind":"{}List","metadata":{{}},"items":[)",
                                 kApiGroupVersion, resource.kind);
  for (const ApiItem& item : items) {
    if (&item != &items.front()) list += ',';
    list += ObjectOf(resource, item);
  }
  return list + "]}";
}

// As kubectl writes ages, roughly.
std::string AgeOf(const ApiItem& item, absl::Time now) {
  if (!item.created) return "<unknown>";
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(now - *item.created));
  if (seconds < 120) return fmt::format("{}s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / 86400);
}

bool WantsTable(const http::Request& request) {
  return request.accept.find("as=Table") != std::string::npos &&
         request.accept.find("g=meta.k8s.io") != std::string::npos;
}

json Column(const char* name, const char* format = "") {
  return {
      {"name", name}, {"type", "string"}, {"format", format}, {"description", ""}, {"priority", 0}};
}

std::string TableOf(const ApiResource& resource, const std::vector<ApiItem>& items,
                    const http::Request& request, absl::Time now) {
  json columns = json::array({Column("Name", "name")});
  for (const char* name : resource.columns) columns.push_back(Column(name));
  columns.push_back(Column("Age"));
  const std::string* include = request.Query("includeObject");
  json rows = json::array();
  for (const ApiItem& item : items) {
    json cells = json::array({item.name});
    for (const std::string& cell : item.cells) cells.push_back(cell);
    cells.push_back(AgeOf(item, now));
    json row = {{"cells", std::move(cells)}};
    if (include != nullptr && *include == "Object") {
      row["object"] = json::parse(ObjectOf(resource, item), nullptr, false);
    } else if (include == nullptr || *include != "None") {
      row["object"] = {{"kind", "PartialObjectMetadata"},
                       {"apiVersion", "meta.k8s.io/v1"},
                       {"metadata", MetadataOf(item)}};
    }
    rows.push_back(std::move(row));
  }
  return Dump({{"kind", "Table"},
               {"apiVersion", "meta.k8s.io/v1"},
               {"metadata", json::object()},
               {"columnDefinitions", std::move(columns)},
               {"rows", std::move(rows)}});
}

bool IsWatch(const http::Request& request) {
  const std::string* watch = request.Query("watch");
  return watch != nullptr && *watch != "0" && *watch != "false";
}

// Where in a path its namespace and name are.
struct Place {
  bool in_namespace = false;
  bool one = false;

  std::string NamespaceIn(const http::Request& request) const {
    return in_namespace ? request.captures[0] : "";
  }
  std::string NameIn(const http::Request& request) const {
    return one ? request.captures.back() : "";
  }
};

void Answer(const ApiSources& sources, const ApiResource& resource, const Place& place,
            const http::Request& request, const http::Responder& responder) {
  if (IsWatch(request)) {
    return responder.Send(Failure(405, fmt::format("{} can't be watched here", resource.plural)));
  }
  for (const char* selector : {"labelSelector", "fieldSelector"}) {
    const std::string* given = request.Query(selector);
    if (given != nullptr && !given->empty()) {
      return responder.Send(Failure(400, fmt::format("{} isn't supported here", selector)));
    }
  }
  const std::string name_space = place.NamespaceIn(request);
  const std::string name = place.NameIn(request);
  if ((place.in_namespace && name_space.empty()) || (place.one && name.empty())) {
    return responder.Send(Failure(404, "an empty name in the path"));
  }
  if (const absl::Status readable = sources.store->Readable(); !readable.ok()) {
    return responder.Send(Failure(503, std::string(readable.message())));
  }
  const std::vector<ApiItem> items = resource.find(*sources.store, name_space, name);
  if (place.one && items.empty()) return responder.Send(NotFound(resource, name));
  http::Response response;
  if (WantsTable(request)) {
    response.body = TableOf(resource, items, request, sources.clock());
  } else {
    response.body = place.one ? ObjectOf(resource, items.front()) : ListOf(resource, items);
  }
  responder.Send(std::move(response));
}

}  // namespace

http::Response ApiRefusal(int status, std::string message) { return Failure(status, message); }

std::vector<http::Route> ApiRoutes(const ApiSources& sources) {
  std::vector<http::Route> routes;
  const auto document = [&routes](std::string path, std::string text) {
    const auto shared = std::make_shared<const std::string>(std::move(text));
    routes.push_back(
        {"GET", std::move(path), [shared](const http::Request&, const http::Responder& responder) {
           responder.Send({.shared = {*shared, shared}});
         }});
  };
  const std::string base = fmt::format("/apis/{}", kApiGroupVersion);
  document("/apis", ApiGroupListJson());
  document(fmt::format("/apis/{}", kApiGroup), ApiGroupJson());
  document(base, ApiResourceListJson());
  document("/openapi/v2", OpenApiV2Json());
  document("/openapi/v3", OpenApiV3RootJson());
  document("/openapi/v3" + base, OpenApiV3Json());
  const ProxiedGuard guard{sources.access, sources.proxy, sources.clock,
                           [](const absl::Status& refusal) {
                             return Failure(KindOf(refusal).status, std::string(refusal.message()));
                           }};
  for (const ApiResource& resource : ApiResources()) {
    const auto serve = [&](std::string path, Place place) {
      auto wanted = [&resource, place](const http::Request& request) {
        return Wanted{.verb = place.one          ? "get"
                              : IsWatch(request) ? "watch"
                                                 : "list",
                      .group = std::string(kApiGroup),
                      .resource = resource.plural,
                      .name_space = place.NamespaceIn(request),
                      .name = place.NameIn(request)};
      };
      routes.push_back({"GET", std::move(path),
                        Guarded(guard, std::move(wanted),
                                [sources, &resource, place](const http::Request& request,
                                                            const http::Responder& responder) {
                                  Answer(sources, resource, place, request, responder);
                                })});
    };
    const std::string all = fmt::format("{}/{}", base, resource.plural);
    serve(all, {});
    if (!resource.namespaced) {
      serve(all + "/{name}", {.one = true});
      continue;
    }
    const std::string in = fmt::format("{}/namespaces/{{namespace}}/{}", base, resource.plural);
    serve(in, {.in_namespace = true});
    serve(in + "/{name}", {.in_namespace = true, .one = true});
  }
  return routes;
}

}  // namespace muster::extender
