#include "extender/aggregated/api_routes.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "extender/access/guard.h"
#include "extender/aggregated/api_documents.h"
#include "extender/aggregated/api_objects.h"
#include "extender/aggregated/api_resources.h"
#include "extender/aggregated/api_watch.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"
#include "printers/tables.h"

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
    case 410:
      return "Expired";
    case 422:
      return "Invalid";
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

std::string StatusJson(int status, const std::string& message, json details = json::object()) {
  details["retryAfterSeconds"] =
      status == 429 || status == 503 ? absl::ToInt64Seconds(kRetryAfter) : 0;
  return Dump({{"kind", "Status"},
               {"apiVersion", "v1"},
               {"metadata", json::object()},
               {"status", "Failure"},
               {"message", message},
               {"reason", ReasonOf(status)},
               {"details", std::move(details)},
               {"code", status}});
}

http::Response Failure(int status, const std::string& message, json details = json::object()) {
  http::Response response{.status = status,
                          .body = StatusJson(status, message, std::move(details))};
  AddRefusalHeaders(status, &response);
  return response;
}

http::Response NotFound(const ApiResource& resource, const std::string& name) {
  return Failure(404, fmt::format("{}.{} \"{}\" not found", resource.plural, kApiGroup, name),
                 {{"name", name}, {"group", std::string(kApiGroup)}, {"kind", resource.plural}});
}

// Of a list.
json MetadataOf(const std::string& version) { return {{"resourceVersion", version}}; }

json MetadataOf(const ApiItem& item) {
  json metadata = {{"name", item.name}};
  if (!item.version.empty()) metadata["resourceVersion"] = item.version;
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

std::string ListOf(const ApiResource& resource, const ApiItems& found) {
  std::string list = fmt::format(R"({{"apiVersion":"{}","kind":"{}List","metadata":{},"items":[)",
                                 kApiGroupVersion, resource.kind, Dump(MetadataOf(found.version)));
  for (const ApiItem& item : found.items) {
    if (&item != &found.items.front()) list += ',';
    list += ObjectOf(resource, item);
  }
  return list + "]}";
}

bool WantsTable(const http::Request& request) {
  return request.accept.find("as=Table") != std::string::npos &&
         request.accept.find("g=meta.k8s.io") != std::string::npos;
}

json Column(const char* name, const char* format = "") {
  return {
      {"name", name}, {"type", "string"}, {"format", format}, {"description", ""}, {"priority", 0}};
}

// How a table shows the objects in its rows: "Object", "None", or as metadata.
std::string InclusionIn(const http::Request& request) {
  const std::string* include = request.Query("includeObject");
  return include == nullptr ? "Metadata" : *include;
}

std::string TableOf(const ApiResource& resource, const ApiItems& found, const std::string& include,
                    absl::Time now) {
  json columns = json::array({Column("Name", "name")});
  for (const char* name : resource.columns) columns.push_back(Column(name));
  columns.push_back(Column("Age"));
  json rows = json::array();
  for (const ApiItem& item : found.items) {
    json cells = json::array({item.name});
    for (const std::string& cell : item.cells) cells.push_back(cell);
    cells.push_back(item.created ? printers::AgeText(now - *item.created) : "<unknown>");
    json row = {{"cells", std::move(cells)}};
    if (include == "Object") {
      row["object"] = json::parse(ObjectOf(resource, item), nullptr, false);
    } else if (include != "None") {
      row["object"] = {{"kind", "PartialObjectMetadata"},
                       {"apiVersion", "meta.k8s.io/v1"},
                       {"metadata", MetadataOf(item)}};
    }
    rows.push_back(std::move(row));
  }
  return Dump({{"kind", "Table"},
               {"apiVersion", "meta.k8s.io/v1"},
               {"metadata", MetadataOf(found.version)},
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

// The only selector that is supported: metadata.name=NAME, by which kubectl watches one object.
// What else is asked for is refused, not ignored.
absl::StatusOr<std::string> NameSelectedBy(const http::Request& request) {
  const std::string* labels = request.Query("labelSelector");
  if (labels != nullptr && !labels->empty()) {
    return absl::InvalidArgumentError("labelSelector isn't supported here");
  }
  const std::string* fields = request.Query("fieldSelector");
  if (fields == nullptr || fields->empty()) return "";
  std::string_view rest = *fields;
  constexpr std::string_view kName = "metadata.name=";
  if (!rest.starts_with(kName) || rest.find(',') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        fmt::format("fieldSelector: want metadata.name=NAME, got \"{}\"", *fields));
  }
  rest.remove_prefix(kName.size());
  if (rest.starts_with('=')) rest.remove_prefix(1);
  return std::string(rest);
}

// A resource, and its objects.
struct Served {
  const ApiResource& resource;
  std::shared_ptr<ApiObjects> objects;
};

void Watch(const ApiSources& sources, const Served& served, GangFilter filter,
           const http::Request& request, const http::Responder& responder) {
  // Who asks for it lists instead (client-go v0.35 tools/cache/reflector.go).
  if (const std::string* initial = request.Query("sendInitialEvents");
      initial != nullptr && !initial->empty()) {
    return responder.Send(Failure(422, "sendInitialEvents isn't supported here"));
  }
  std::optional<uint64_t> since;
  const std::string* version = request.Query("resourceVersion");
  if (version != nullptr && !version->empty() && *version != "0") {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(*version, &number)) {
      return responder.Send(Failure(
          400, fmt::format("resourceVersion: want one that a list or a watch told, got \"{}\"",
                           *version)));
    }
    since = number;
  }
  absl::Duration life = absl::InfiniteDuration();
  if (const std::string* seconds = request.Query("timeoutSeconds"); seconds != nullptr) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(*seconds, &number) || number < 0) {
      return responder.Send(
          Failure(400, fmt::format("timeoutSeconds: want a whole number, got \"{}\"", *seconds)));
    }
    if (number > 0) life = absl::Seconds(number);
  }
  if (const absl::Status room = served.objects->RoomForWatch(since); !room.ok()) {
    return responder.Send(Failure(StatusOf(room), std::string(room.message())));
  }
  const bool table = WantsTable(request);
  const auto object = [&resource = served.resource, table, include = InclusionIn(request),
                       clock = sources.clock](const ApiItem& item) {
    return table ? TableOf(resource, {{item}, item.version}, include, clock())
                 : ObjectOf(resource, item);
  };
  responder.Stream(
      "application/json",
      WatchOf(
          {.objects = served.objects,
           .filter = std::move(filter),
           .since = since,
           .until = std::min(absl::Now() + life, WatchedUntil(sources.access, sources.watch_life)),
           .object = object,
           .expired = StatusJson(410, "what changed meanwhile isn't known any more")}));
}

void Answer(const ApiSources& sources, const Served& served, const Place& place,
            const http::Request& request, const http::Responder& responder) {
  const ApiResource& resource = served.resource;
  const absl::StatusOr<std::string> selected = NameSelectedBy(request);
  if (!selected.ok()) return responder.Send(Failure(400, std::string(selected.status().message())));
  const std::string name_space = place.NamespaceIn(request);
  const std::string name = place.one ? place.NameIn(request) : *selected;
  if ((place.in_namespace && name_space.empty()) || (place.one && name.empty())) {
    return responder.Send(Failure(404, "an empty name in the path"));
  }
  if (IsWatch(request)) return Watch(sources, served, {name_space, name}, request, responder);
  if (const absl::Status readable = sources.store->Readable(); !readable.ok()) {
    return responder.Send(Failure(503, std::string(readable.message())));
  }
  const ApiItems found = served.objects->Find({name_space, name});
  if (place.one && found.items.empty()) return responder.Send(NotFound(resource, name));
  http::Response response;
  if (WantsTable(request)) {
    response.body = TableOf(resource, found, InclusionIn(request), sources.clock());
  } else {
    response.body = place.one ? ObjectOf(resource, found.items.front()) : ListOf(resource, found);
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
                             return Failure(StatusOf(refusal), std::string(refusal.message()));
                           }};
  for (const ApiResource& resource : ApiResources()) {
    const Served served{resource, ObjectsOf(resource, sources.store)};
    const auto serve = [&](std::string path, Place place) {
      auto wanted = [&resource, place](const http::Request& request) {
        return Wanted{.verb = IsWatch(request) ? "watch"
                              : place.one      ? "get"
                                               : "list",
                      .group = std::string(kApiGroup),
                      .resource = resource.plural,
                      .name_space = place.NamespaceIn(request),
                      .name = place.NameIn(request)};
      };
      routes.push_back({"GET", std::move(path),
                        Guarded(guard, std::move(wanted),
                                [sources, served, place](const http::Request& request,
                                                         const http::Responder& responder) {
                                  Answer(sources, served, place, request, responder);
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
