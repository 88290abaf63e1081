// Server-side apply: an object, what somebody wants of it, and who owns which of its fields
// (metadata.managedFields; sigs.k8s.io/structured-merge-diff v6 merge/update.go and
// k8s.io/apimachinery v0.34 pkg/util/managedfields).
//
// The real server keeps managedFields of every object. Here an object has them from its first apply
// on; what it held before belongs to a manager "before-first-apply", as it does there for objects
// that were written by servers without them. So the same applies conflict; only the name in the
// conflict is another. What the server itself filled into a status counts as written, too.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "kube/embedded/api_error.h"
#include "kube/embedded/resource_types.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// Who writes: an entry of managedFields without its fields.
struct FieldWriter {
  std::string manager;
  std::string subresource;  // "" or "status"
  absl::Time now;
};

// `live` (an empty object if there is none) with what `config` says and without what the same
// writer applied before and doesn't say any more, unless somebody else owns it; its managedFields
// are the new ones. What the subresource doesn't write is left as in `config`: it is the caller's
// to reset. Conflict, with a cause for each field, if `config` changes what others own; with
// `force` it takes them over. `config` has metadata,
// and typed_merge.h's WhyNotApplicable has nothing against it.
ApiResult<nlohmann::json> ApplyConfig(const ResourceType& type, const nlohmann::json& live,
                                      const nlohmann::json& config, const FieldWriter& writer,
                                      bool force);

// After an update or another kind of patch: gives `after` the managedFields of `before`, with what
// changed moved to the writer. Nothing if `before` has none.
void TrackUpdate(const ResourceType& type, const nlohmann::json& before, const FieldWriter& writer,
                 nlohmann::json* after);

// Whether two versions of an object differ in nothing but times of managedFields.
bool SameButTimes(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace muster::kube::embedded
