// What names may look like (k8s.io/apimachinery/pkg/util/validation v0.34).
#pragma once

#include <string>
#include <string_view>

namespace muster::kube {

bool IsDnsLabel(std::string_view text);      // RFC 1123, at most 63
bool IsDnsSubdomain(std::string_view text);  // labels joined by dots, at most 253
// "name" or "prefix.domain/name": keys of labels and annotations, resources, finalizers, gates,
// taints.
bool IsQualifiedName(std::string_view text);
// "MEMBERS_MISSING" -> "MembersMissing": an enumerator as reasons of conditions and events are
// spelled.
std::string CamelCaseOf(std::string_view enumerator);
// At most 63; empty is a value too.
bool IsLabelValue(std::string_view text);

}  // namespace muster::kube
