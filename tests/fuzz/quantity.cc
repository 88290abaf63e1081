// Quantities: "1500m", "16Gi", "2e3".
#include "kube/objects/quantity.h"

#include <cstdint>
#include <limits>
#include <string>

#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

using kube::FormatQuantity;
using kube::ParseQuantity;
using kube::QuantityUnit;

void CheckPrinted(std::string_view input, QuantityUnit unit) {
  const absl::StatusOr<int64_t> amount = ParseQuantity(input, unit);
  if (!amount.ok()) return;
  // The one amount without a form that parses back (quantity.h).
  if (*amount == std::numeric_limits<int64_t>::min()) return;
  const std::string printed = FormatQuantity(*amount, unit);
  const absl::StatusOr<int64_t> again = ParseQuantity(printed, unit);
  Require(again.ok() && *again == *amount, "what is printed parses to the same amount");
  Require(FormatQuantity(*again, unit) == printed, "an amount has one form");
}

// `finer` counts `parts` of one of `coarser`. Both are rounded away from zero.
void CheckRounding(std::string_view input, QuantityUnit finer, QuantityUnit coarser,
                   int64_t parts) {
  const absl::StatusOr<int64_t> fine = ParseQuantity(input, finer);
  const absl::StatusOr<int64_t> coarse = ParseQuantity(input, coarser);
  if (!fine.ok()) return;
  Require(coarse.ok(), "what fits in small units fits in large ones");
  const int64_t rest = *fine % parts;
  const int64_t away = rest == 0 ? 0 : rest > 0 ? 1 : -1;
  Require(*coarse == *fine / parts + away, "units agree about the amount");
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using enum muster::kube::QuantityUnit;
  for (const auto unit : {kWhole, kMilli, kNano}) muster::fuzz::CheckPrinted(input, unit);
  muster::fuzz::CheckRounding(input, kMilli, kWhole, 1'000);
  muster::fuzz::CheckRounding(input, kNano, kMilli, 1'000'000);
}
