// Kubernetes resource quantities as exact int64 base units.
//
// Grammar and rounding follow k8s.io/apimachinery/pkg/api/resource v0.34 (quantity.go): decimal
// and binary suffixes, decimal exponents, fractions rounded away from zero to the next base unit,
// and an amount with a binary suffix past int64 capped at its largest value ("9Ei").
// Two deviations, both towards an error: a number without any digit ("." and "-"), which that
// parser takes for 0 and no schema lets through, and an amount past int64 with any other suffix,
// which it parses but can't return.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace muster::kube {

// What one counts: thousandths for cpu, whole units (bytes, devices) for every other resource;
// billionths, the finest a quantity can say, for numbers that aren't resources.
enum class QuantityUnit { kMilli, kWhole, kNano };

// The unit that `resource` is counted in: kMilli for "cpu", kWhole otherwise.
QuantityUnit UnitOf(std::string_view resource);

// InvalidArgument with the text for what is not a quantity; OutOfRange for what doesn't fit
// int64 in this unit. Negative quantities parse; callers for which they make no sense reject them.
absl::StatusOr<int64_t> ParseQuantity(std::string_view text, QuantityUnit unit);

// Shortest canonical form that parses back to the same number: "1500m", "2", "16Gi". Binary
// suffixes win a tie and are used for kWhole only. (INT64_MIN has no form that parses back.)
std::string FormatQuantity(int64_t value, QuantityUnit unit);

}  // namespace muster::kube
