// The kinds the server knows: names, scope, and how each behaves where kinds differ.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

class Schema;

// A column of a CRD's additionalPrinterColumns.
struct PrinterColumn {
  std::string name;
  std::string type;       // "string", "integer", "date", ...
  std::string json_path;  // ".status.phase"
  int priority = 0;       // above 0: with -o wide only
};

struct ResourceType {
  std::string group;    // "" for core
  std::string version;  // "v1"
  std::string plural;
  std::string singular;
  std::string kind;
  std::vector<std::string> short_names;
  std::vector<std::string> categories;
  bool namespaced = true;
  bool status_subresource = false;  // writes to the main path leave status alone
  bool keeps_status_on_create = false;
  bool counts_generation = false;
  bool custom = false;  // from a CRD: no strategic merge, updates need a resourceVersion
  std::vector<std::string> selectable_fields;  // beside metadata.name and metadata.namespace
  std::vector<PrinterColumn> columns;
  // Shape of the object; null: any JSON object with metadata.
  std::shared_ptr<const Schema> schema;
  // The CRD's spec as JSON; empty for built-in kinds.
  std::string definition;
  // Of this server's own store; set by ResourceTypes.
  size_t index = 0;

  std::string ApiVersion() const;     // "v1", "apps/v1"
  std::string GroupResource() const;  // "pods", "podgroups.scheduling.x-k8s.io"
  std::string ListKind() const { return kind + "List"; }
  bool IsPods() const { return group.empty() && plural == "pods"; }
};

// Not thread-safe; the server's lock covers it. A ResourceType lives as long as the registry, a
// removed one too (its watches may still be open).
class ResourceTypes {
 public:
  // With every built-in kind.
  ResourceTypes();

  // nullptr if not served.
  const ResourceType* Find(std::string_view group, std::string_view version,
                           std::string_view plural) const;
  const ResourceType* FindPlural(std::string_view group, std::string_view plural) const;

  // Adds a kind, or replaces the served one with the same group and plural while keeping its index
  // and so its objects.
  const ResourceType& Add(ResourceType type);
  void Remove(std::string_view group, std::string_view plural);

  // What is served, in order of addition.
  std::vector<const ResourceType*> Served() const;

 private:
  std::vector<std::shared_ptr<const ResourceType>> all_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const ResourceType>> served_;
  size_t next_index_ = 0;
};

}  // namespace muster::kube::embedded
