// v1.PodSpec JSON to the view that placement reads, for pods and for the pods that a template
// makes.
#pragma once

#include "kube/objects/json_value.h"
#include "kube/objects/meta.h"
#include "kube/objects/pod.h"

namespace muster::kube {

// `meta` is the pod's (labels for matchLabelKeys, name for generic ephemeral volumes), `status` its
// status (a resize in place keeps what the kubelet allocated), absent for a template.
PodSpec ReadPodSpec(const JsonValue& spec, const JsonValue& status, const ObjectMeta& meta,
                    JsonReader& reader);

}  // namespace muster::kube
