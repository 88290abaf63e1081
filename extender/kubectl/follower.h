// Objects of one list as they change, for a command that prints them.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/kubectl/visibility_client.h"
#include "kube/api.h"
#include "kube/client/reflector.h"
#include "kube/client/timer.h"

namespace muster::extender {

class Follower : private kube::ReflectorSink {
 public:
  // What `asked` names, one object or a list. The transport must outlive it.
  Follower(kube::Transport& transport, Visible asked);

  // By "NAMESPACE/NAME": nullopt is gone. Of an object that changed twice only the newest is here,
  // so a slow reader costs no more memory than the list.
  using News = std::map<std::string, std::optional<nlohmann::json>>;
  // First all that are there, then what changed since the last call. Waits for it at most for
  // `patience`, and is empty then. An error ends the matter: no right to watch, for example.
  absl::StatusOr<News> Next(absl::Duration patience);
  // Why what was told isn't kept up at the moment; "" if it is.
  std::string trouble() const;

 private:
  void Upsert(const kube::ObjectHeader& header, std::string_view object) override;
  void Remove(const kube::ObjectHeader& header) override;
  void StateChanged(kube::ReflectorState state, const absl::Status& why) override;

  const Visible asked_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::optional<std::string>> news_;
  bool synced_ = false;  // the first picture is whole
  absl::Status failure_;
  std::string trouble_;

  // Last, so that nothing calls back any more when the rest goes.
  kube::ThreadTimer timer_;
  kube::Reflector reflector_;
};

}  // namespace muster::extender
