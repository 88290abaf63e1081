// labelSelector and fieldSelector query parameters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/embedded/api_error.h"
#include "kube/objects/meta.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::embedded {

// The set-based grammar of k8s.io/apimachinery/pkg/labels v0.34: "a=b,c in (d,e),!f". BadRequest
// with the text for anything else.
ApiResult<LabelSelector> ParseLabelSelector(std::string_view text);

// metav1.LabelSelector as JSON (matchLabels, matchExpressions). A malformed one is BadRequest.
ApiResult<LabelSelector> LabelSelectorFromJson(const nlohmann::json& selector);

bool MatchesLabels(const LabelSelector& selector, const nlohmann::json& object);

struct FieldRequirement {
  std::string field;  // "spec.nodeName"
  std::string value;
  bool equal = true;
};

// "spec.nodeName=n1,status.phase!=Failed". BadRequest for a field that `type` can't select by.
ApiResult<std::vector<FieldRequirement>> ParseFieldSelector(const ResourceType& type,
                                                            std::string_view text);

// An absent field counts as "", an absent boolean as "false".
bool MatchesFields(const std::vector<FieldRequirement>& requirements, const nlohmann::json& object);

}  // namespace muster::kube::embedded
