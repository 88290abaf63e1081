// The gate: answers the API server's question about a pod that is being created.
//
// A pod with our schedulerName gets gate muster.dev/admission, unless nobody but Muster could act
// on it (Engine::NeedsGate), and loses the annotations in which Muster keeps state of pods (one
// that is restored from a backup carries them): at its creation it has none. It is refused if it
// names a node, as it would run there without any admission. So is, where quota is ours to give, a
// pod without an owner that names a queue and another scheduler: nobody would ever count it. What
// Kueue's own webhook has taken over is Kueue's. One of ours without an owner was applied by
// somebody who reads what lint says of it, in the same answer: a call of another webhook for it
// would cost the API server as much again.
//
// Rules of admission.k8s.io/v1 (k8s.io/api v0.34 admission/v1) and of scheduling gates, which may
// be added only while a pod is created; Kueue's label v0.19.2 (pkg/constants). Pure but for what
// the linter counts, so a dry run is answered like any other.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "extender/admission/admission_review.h"
#include "extender/admission/warnings.h"
#include "http/server.h"

namespace muster::extender {

inline constexpr std::string_view kMutatePodsPath = "/mutate-pods";

struct GateOptions {
  std::string scheduler_name = "coscheduling";
  bool guards_queues = false;  // quota is ours to give
  // Whether pods must be gated now; any thread. Null: always.
  std::function<bool()> gates{};
  ObjectLinter linter{};  // null: nothing is said
};

// AdmissionReview request to AdmissionReview response, both JSON: allowed, with a JSON patch where
// something is to be changed and warnings where there are some, or refused, with what to write
// instead. Everything that is no creation of such a pod is allowed as it is. InvalidArgument,
// naming the field, for what is no AdmissionReview.
absl::StatusOr<std::string> ReviewAdmission(std::string_view review, const GateOptions& options);

// POST kMutatePodsPath: ReviewAdmission, or 400 with its error. The API server takes anything but
// 200 as a failed call, and the registration's failurePolicy then keeps the pod out.
http::Route MutatePodsRoute(GateOptions options);

}  // namespace muster::extender
