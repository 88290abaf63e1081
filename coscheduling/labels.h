// Muster's gate, labels and annotations that other folders read or write, too.
#pragma once

#include <string_view>

namespace muster::coscheduling {

// The scheduling gate of every member until its gang is READY.
inline constexpr char kGate[] = "muster.dev/admission";
// On PodGroups that Muster made.
inline constexpr char kDerivedLabel[] = "muster.dev/derived";
// On a StatefulSet, "true": its pods are a gang.
inline constexpr char kGangAnnotation[] = "muster.dev/gang";

// On a PodGroup or a member, "false": the gang doesn't give its room to those of higher priority,
// as far as its PriorityClass lets it (quota/quota_scheduler.h).
inline constexpr char kPreemptibleAnnotation[] = "muster.dev/preemptible";

// Where Muster keeps state: the record (admission/record.h) on a PodGroup, or on the pod of a gang
// of one; on pods the record's epoch, and what wakes kube-scheduler. A pod that is being created
// has none yet, whatever it says; nor of what quota/pod_sets.h writes.
inline constexpr std::string_view kRecordAnnotation = "muster.dev/admission";
// On a member: the zone that its nodeSelector names was chosen by Muster.
inline constexpr std::string_view kZoneAnnotation = "muster.dev/zone";
inline constexpr std::string_view kEpochAnnotation = "muster.dev/epoch";
inline constexpr std::string_view kWakeAnnotation = "muster.dev/wake";

}  // namespace muster::coscheduling
