// Keeps the caBundle of the APIService true, by which the API server knows the certificate that it
// is answered with. The object itself is the chart's: Muster makes none.
//
// Each replica adds its own authority and leaves those of the others, as in the webhooks' bundles:
// whoever leads next is trusted before it does.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::extender {

// One owner calls everything.
class ApiService {
 public:
  // `transport` must outlive this; answers that come later go nowhere.
  explicit ApiService(kube::Transport& transport);
  ~ApiService();

  // PEM. Looks again at once if it differs from what it was.
  void SetCaBundle(const std::string& bundle);
  // Does what is due. At most one request is under way.
  void Tick(absl::Time now);

 private:
  struct Inbox;
  void Send(kube::Request request);
  void OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer);
  absl::Status OnObject(absl::Time now, const std::string& json);

  kube::Transport& transport_;
  const std::shared_ptr<Inbox> inbox_;
  std::string bundle_;
  bool asked_ = false;
  absl::Time next_ = absl::InfinitePast();
  std::string last_failure_;
};

}  // namespace muster::extender
