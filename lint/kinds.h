// The kinds that users write: their API groups and versions, and what they may hold.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kube/embedded/schema.h"
#include "yaml/tree.h"

namespace muster::lint {

// The schema of an object of that kind and "GROUP/VERSION"; nullptr: not known. It has the fields
// of all versions that are served.
std::shared_ptr<const kube::embedded::Schema> SchemaOfKind(std::string_view kind,
                                                           std::string_view api_version);

// What an object's apiVersion and kind should be, where they are of no API, or of one that is gone,
// and it can be told which was meant.
struct MeantKind {
  bool of_kind = false;     // the kind is wrong, else the version
  std::string api_version;  // empty: nothing is wrong
  std::string kind;
};
MeantKind KindMeant(std::string_view api_version, std::string_view kind);

}  // namespace muster::lint
