// meta.k8s.io/v1 Tables: what kubectl get asks for, with the columns of kubectl's own printers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/embedded/object_store.h"
#include "kube/embedded/resource_types.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

struct TableOptions {
  std::string include_object;      // "None", "Metadata" (also when empty) or "Object"
  std::string list_metadata_json;  // of the list; empty for a single object
  bool with_columns = true;        // false for rows of a watch after its first
};

// The Accept header's first acceptable form is a Table of meta.k8s.io/v1.
bool WantsTable(std::string_view accept);

std::string ObjectTable(const ResourceType& type, const nlohmann::json& object, absl::Time now,
                        const TableOptions& options);
std::string ListTable(const ResourceType& type, const std::vector<ObjectPtr>& objects,
                      absl::Time now, const TableOptions& options);

}  // namespace muster::kube::embedded
