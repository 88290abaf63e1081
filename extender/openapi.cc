#include "extender/openapi.h"

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "muster/v1/admission.pb.h"

namespace muster::extender {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

json Ref(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

json EnumSchema(const EnumDescriptor& type) {
  json names = json::array();
  for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
  return {{"type", "string"}, {"enum", names}};
}

json Parameter(const char* name, const char* in, const char* type, const char* description) {
  return {{"name", name},
          {"in", in},
          {"required", std::string_view(in) == "path"},
          {"description", description},
          {"schema", {{"type", type}}}};
}

json Refusal(const char* description) {
  return {
      {"description", description},
      {"content",
       {{"application/problem+json", {{"schema", {{"$ref", "#/components/schemas/Problem"}}}}}}}};
}

json Operation(const char* summary, const json& schema, const json& parameters) {
  json responses = {
      {"200", {{"description", "OK"}, {"content", {{"application/json", {{"schema", schema}}}}}}},
      {"400", Refusal("A parameter is unusable; `detail` names it.")},
      {"401", Refusal("There is no bearer token, or none that is accepted.")},
      {"403", Refusal("Its owner may not get, list or watch PodGroups in this namespace, or in all "
                      "if none is named; or it came over a network without TLS.")},
      {"413", Refusal("The request has a body.")},
      {"431", Refusal("The request's header is longer than 16 KiB.")},
      {"429", Refusal("Too many watches are open, or too many tokens are being asked about; "
                      "Retry-After says when to ask.")},
      {"503", Refusal("This process doesn't lead, and `detail` names who does; or the API server "
                      "can't be asked about the token, and Retry-After says when to ask.")}};
  for (const json& parameter : parameters) {
    if (parameter["name"] == "watch") {
      responses["200"]["content"]["application/x-ndjson"] = {{"schema", {{"type", "string"}}}};
    } else if (parameter["name"] == "since") {
      responses["410"] = Refusal("What changed since then isn't known any more: begin anew.");
    }
  }
  return {{"get", {{"summary", summary}, {"parameters", parameters}, {"responses", responses}}}};
}

}  // namespace

json OpenApiSchemas::Of(const Descriptor& type) {
  if (type.full_name() == "google.protobuf.Timestamp") {
    return {{"type", "string"}, {"format", "date-time"}};
  }
  if (known_.insert(type.full_name()).second) Add(type);
  return Ref(type.name());
}

void OpenApiSchemas::Add(const Descriptor& type) {
  json properties = json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    properties[field.json_name()] = FieldSchema(field);
  }
  schemas_[type.name()] = {{"type", "object"}, {"properties", properties}};
}

json OpenApiSchemas::FieldSchema(const FieldDescriptor& field) {
  if (field.is_map()) {
    return {{"type", "object"},
            {"additionalProperties", ValueSchema(*field.message_type()->map_value())}};
  }
  if (field.is_repeated()) return {{"type", "array"}, {"items", ValueSchema(field)}};
  return ValueSchema(field);
}

json OpenApiSchemas::ValueSchema(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Of(*field.message_type());
    case FieldDescriptor::CPPTYPE_ENUM:
      schemas_[field.enum_type()->name()] = EnumSchema(*field.enum_type());
      return Ref(field.enum_type()->name());
    case FieldDescriptor::CPPTYPE_BOOL:
      return {{"type", "boolean"}};
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
      return {{"type", "integer"}};
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return {{"type", "string"}, {"format", "int64"}};
    default:
      return {{"type", "string"}};
  }
}

std::string OpenApiJson() {
  OpenApiSchemas schemas;
  schemas.Add("Problem", {{"type", "object"},
                          {"required", {"type", "title", "status", "detail"}},
                          {"properties",
                           {{"type", {{"type", "string"}}},
                            {"title", {{"type", "string"}}},
                            {"status", {{"type", "integer"}}},
                            {"detail", {{"type", "string"}}}}}});
  const json watch = Parameter("watch", "query", "boolean",
                               "Streams one JSON object per line: first everything as it is, then "
                               "each change. Gangs come as "
                               "GangEvent, the others as the whole list.");
  json limit = Parameter("limit", "query", "integer", "Gangs at most; others come by `continue`.");
  limit["schema"]["minimum"] = 1;
  limit["schema"]["maximum"] = std::numeric_limits<int32_t>::max();
  json from = Parameter("continue", "query", "string",
                        "`continue` of the answer before: the gangs after it.");
  from["schema"]["pattern"] = "^((group|pod)/[^/]+/[^/]+)?$";
  json since = Parameter("since", "query", "string",
                         "Of a watch: tells only what came after this `version`, of a list or an "
                         "event. 0, or without a watch: everything as it is.");
  since["schema"]["pattern"] = "^[0-9]{1,19}$";
  schemas.Of(*v1::GangEvent::descriptor());
  json paths;
  paths["/v1/gangs"] =
      Operation("All gangs", schemas.Of(*v1::ListGangsResponse::descriptor()),
                {Parameter("namespace", "query", "string", "Only gangs of this namespace."), limit,
                 from, watch, since});
  paths["/v1/gangs/{namespace}/{name}"] = Operation(
      "One gang", schemas.Of(*v1::Gang::descriptor()),
      {Parameter("namespace", "path", "string", "Namespace of the PodGroup or pod."),
       Parameter("name", "path", "string", "Name of the PodGroup or pod."), watch, since});
  paths["/v1/gangs/{namespace}/{name}"]["get"]["responses"]["404"] =
      Refusal("There is no such gang; `detail` names it.");
  paths["/v1/nodes"] = Operation("All nodes", schemas.Of(*v1::ListNodesResponse::descriptor()),
                                 json::array({watch}));
  paths["/v1/nodes/{name}"] = Operation(
      "One node", schemas.Of(*v1::Node::descriptor()),
      json::array({Parameter("name", "path", "string",
                             "Name of the node, or of its NodeClaim until it registers.")}));
  paths["/v1/nodes/{name}"]["get"]["responses"]["404"] =
      Refusal("There is no such node; `detail` names it.");
  paths["/v1/queues"] =
      Operation("ClusterQueues and LocalQueues", schemas.Of(*v1::ListQueuesResponse::descriptor()),
                json::array({watch}));
  const json queue = schemas.Of(*v1::Queue::descriptor());
  const json queue_name = Parameter("name", "path", "string", "Name of the queue.");
  paths["/v1/queues/{name}"] = Operation("One ClusterQueue", queue, json::array({queue_name}));
  paths["/v1/queues/{namespace}/{name}"] = Operation(
      "One LocalQueue", queue,
      {Parameter("namespace", "path", "string", "Namespace of the LocalQueue."), queue_name});
  for (const char* path : {"/v1/queues/{name}", "/v1/queues/{namespace}/{name}"}) {
    paths[path]["get"]["responses"]["404"] = Refusal("There is no such queue; `detail` names it.");
  }
  paths["/v1/flavors"] =
      Operation("Flavors and their usage over all ClusterQueues",
                schemas.Of(*v1::ListFlavorsResponse::descriptor()), json::array({watch}));
  return json{
      {"openapi", "3.0.3"},
      {"info",
       {{"title", "Muster"},
        {"version", "v1"},
        {"description",
         "Paths that aren't here get 404, other methods 405 with Allow, and what isn't HTTP "
         "400, each with a Problem. Where there are too many connections, those that have waited "
         "longest are "
         "closed."}}},
      {"paths", paths},
      // Neither, where the configuration says so.
      {"security", {{{"token", json::array()}}, json::object()}},
      {"components",
       {{"schemas", schemas.Take()},
        {"securitySchemes",
         {{"token",
           {{"type", "http"},
            {"scheme", "bearer"},
            {"description", "A token that the API server accepts for Muster's audience."}}}}}}}}
      .dump();
}

}  // namespace muster::extender
