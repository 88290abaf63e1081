// Sets of authorities as PEM texts: what a webhook's caBundle holds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace muster::extender {

// Whether every certificate of `wanted` is in `bundle`, byte for byte. True for an empty `wanted`.
bool BundleContains(std::string_view bundle, std::string_view wanted);

// Whether both hold the same certificates, in any order.
bool SameBundle(std::string_view a, std::string_view b);

// Several replicas share one bundle: the certificates of `bundle`, then those of `own` that it
// lacks. Left out: what has expired, what is no certificate, and beyond `limit` the ones that were
// added first; never those of `own`.
std::string JoinBundles(std::string_view bundle, std::string_view own, absl::Time now,
                        size_t limit);

}  // namespace muster::extender
