// What is published, as resources of an API group of Kubernetes: gangs, queues, flavors and nodes
// are objects with metadata, and what REST says of them is their status.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "extender/state_store.h"

namespace google::protobuf {
class Descriptor;
}

namespace muster::extender {

inline constexpr std::string_view kApiGroup = "visibility.muster.dev";
inline constexpr std::string_view kApiVersion = "v1beta1";
inline constexpr std::string_view kApiGroupVersion = "visibility.muster.dev/v1beta1";

struct ApiItem {
  std::string name_space;  // "" of what is in none
  std::string name;
  std::string uid;  // "" where there is none
  std::optional<absl::Time> created = {};
  std::string version = {};        // metadata.resourceVersion
  std::string status;              // JSON
  std::vector<std::string> cells;  // after the name, as many as columns
};

ApiItem ItemOf(const SharedGang& gang);

struct ApiResource {
  const char* plural;
  const char* singular;
  const char* kind;
  bool namespaced;
  const char* description;
  const google::protobuf::Descriptor* status;
  // Of a table, between the name and the age.
  std::vector<const char*> columns;
  // What is published as a list, and the objects in it, in order of namespace and name; gangs are
  // published one by one.
  std::optional<Listed> list;
  std::vector<ApiItem> (*items_in)(const MessageList& list);
};

// In order of name.
const std::vector<ApiResource>& ApiResources();

}  // namespace muster::extender
