// The API group visibility.muster.dev, as a command asks it through the API server: one request
// after the other, each waited for, and each failure as a sentence that says what to do.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::extender {

// What is asked for.
struct Visible {
  std::string resource;         // plural: "gangs"
  std::string name_space = {};  // "": of none, or of all
  std::string name = {};        // "": a list
  std::string Path() const;
};

// Why a request for it failed, by the API server's answer or by what kept it from one: NotFound if
// there is no object of that name, FailedPrecondition if the cluster doesn't have the API group,
// PermissionDenied with the right that is missing, Unauthenticated, Unavailable.
absl::Status WhyNot(const Visible& asked, const absl::StatusOr<kube::Response>& answer);
// The same of a status that kube::ToStatus made, which says less.
absl::Status WhyNot(const Visible& asked, const absl::Status& status);

class VisibilityClient {
 public:
  // The transport must outlive it and answer on another thread. `sleep`: between tries.
  VisibilityClient(kube::Transport& transport, std::function<void(absl::Duration)> sleep)
      : transport_(transport), sleep_(std::move(sleep)) {}

  // An object, or a list. Where nobody leads, or there is too much to do, asked again for some ten
  // seconds: a new leader takes six.
  absl::StatusOr<nlohmann::json> Get(const Visible& asked) const;

 private:
  kube::Transport& transport_;
  const std::function<void(absl::Duration)> sleep_;
};

}  // namespace muster::extender
