// The REST interface's description (OpenAPI 3.0), made from the messages' descriptors, so that it
// can't differ from what is served.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
}  // namespace google::protobuf

namespace muster::extender {

std::string OpenApiJson();

// Messages, and whatever they are made of, as schemas of their JSON.
class OpenApiSchemas {
 public:
  // A reference to it, or for a time its own schema.
  nlohmann::json Of(const google::protobuf::Descriptor& type);
  void Add(const std::string& name, nlohmann::json schema) { schemas_[name] = std::move(schema); }
  // All that were referred to, by name.
  nlohmann::json Take() { return std::move(schemas_); }

 private:
  void Add(const google::protobuf::Descriptor& type);
  nlohmann::json FieldSchema(const google::protobuf::FieldDescriptor& field);
  nlohmann::json ValueSchema(const google::protobuf::FieldDescriptor& field);

  std::set<std::string> known_;
  nlohmann::json schemas_ = nlohmann::json::object();
};

}  // namespace muster::extender
