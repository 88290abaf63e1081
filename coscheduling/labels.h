// Muster's gate, labels and annotations that other folders read or write, too.
#pragma once

namespace muster::coscheduling {

// The scheduling gate of every member until its gang is READY.
inline constexpr char kGate[] = "muster.dev/admission";
// On PodGroups that Muster made.
inline constexpr char kDerivedLabel[] = "muster.dev/derived";
// On a StatefulSet, "true": its pods are a gang.
inline constexpr char kGangAnnotation[] = "muster.dev/gang";

}  // namespace muster::coscheduling
