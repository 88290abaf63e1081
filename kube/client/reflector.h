// Keeps a consumer's picture of one resource true: list, watch, and whatever goes wrong between.
//
// WatchList (sendInitialEvents) where the server has it, else a paginated LIST and a WATCH from its
// version. A watch that ends is taken up again from the last version seen; when that has expired
// (410, or an ERROR event that says so) everything is read anew, and what changed or vanished
// meanwhile is delivered as if it had been watched. A resource that a server may serve in either of
// two versions is read in the first that answers. The rules are client-go's (k8s.io/client-go
// v0.34 tools/cache/reflector.go); resource versions are never compared, only handed back.
// Memory: name, UID and version of each object, never the object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kube/api.h"
#include "kube/client/backoff.h"
#include "kube/client/timer.h"
#include "kube/objects/decode.h"

namespace muster::kube {

enum class ReflectorState {
  kSyncing,  // the first picture isn't whole yet
  kSynced,   // what has been delivered is the whole picture, and it is being kept up
  kStale,    // it was whole, but the server hasn't been heard for a while
  kAbsent,   // the server doesn't serve the resource (its CRD isn't installed): there is no object
};

// Where the picture goes. Called on the transport's and the timer's threads, never by two at once;
// must not block, and must not call the reflector.
class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // The object is new or has changed. `json` is valid during the call; an object that came by LIST
  // has no apiVersion and kind.
  virtual void Upsert(const ObjectHeader& header, std::string_view json) = 0;
  // It is gone. An object that was deleted and made again under its name while nothing was watched
  // is removed by its old UID before it is upserted.
  virtual void Remove(const ObjectHeader& header) = 0;
  // `why` is OK for kSyncing and kSynced.
  virtual void StateChanged(ReflectorState state, const absl::Status& why) = 0;
};

struct ReflectorOptions {
  std::string path;  // "/api/v1/pods", "/apis/karpenter.sh/v1/nodeclaims"
  // The same resource in another version; empty: none. It is read where `path` isn't served, and
  // where the server can't convert to its version (objects stored in another one while the
  // conversion webhook is away), until that fails likewise.
  std::string alternative_path;
  std::string label_selector;
  std::string field_selector;
  bool use_watch_list = true;
  int page_size = 500;
  // The server ends each watch after this long to twice as long.
  absl::Duration shortest_watch = absl::Minutes(5);
  // Of a CRD, which may not be installed: a 404 then says that there is no object. Of what every
  // API server has it is a failure like any other.
  bool may_be_absent = false;
  // How long a picture is good without the answer that is due: to a watch or a list that was asked
  // for, or after a failure.
  absl::Duration stale_after = absl::Seconds(10);
  // A watch whose answer hasn't come by then is asked for anew.
  absl::Duration answer_patience = absl::Seconds(15);
  // Deleting a CRD deletes its objects first, each with an event. So a 404 while some are known is
  // doubted (an upgrade that makes the CRD anew, a server or a proxy that is only starting): they
  // stay, with a picture that is stale, until nothing else was answered for this long.
  absl::Duration confirm_absence = absl::Minutes(1);
  // How often to look for a resource that isn't there.
  absl::Duration absent_retry = absl::Seconds(10);
  // A WatchList that falls silent before it is complete comes from a server that doesn't know it.
  absl::Duration watch_list_patience = absl::Seconds(20);
  // kube-apiserver sends a bookmark every minute. A watch that has brought nothing for this long is
  // opened anew: whoever holds the other end may be hanging.
  absl::Duration longest_silence = absl::Seconds(150);
  // client-go pauses for up to 30 s; here the picture is to be good again soon after the server is.
  // A Retry-After counts up to longest_retry_after for the same reason.
  BackoffOptions backoff = {absl::Milliseconds(500), absl::Seconds(5), 2};
  absl::Duration longest_retry_after = absl::Seconds(10);
  // Called before each line of a watch is looked at, on the transport's thread and with no lock
  // held: may block for a moment, to slow the watch down.
  std::function<void()> before_line = {};
  uint64_t seed = std::random_device()();
};

struct ReflectorStats {
  ReflectorState state = ReflectorState::kSyncing;
  std::string path;  // that is being read: writes go to the same version
  size_t objects = 0;
  uint64_t events = 0;    // upserts and removals delivered
  uint64_t syncs = 0;     // whole pictures read, the first one included
  uint64_t watches = 0;   // opened
  uint64_t failures = 0;  // attempts that went wrong
  // When the server was last heard: an answer, an event, a bookmark or a page. Its age is the
  // watch's lag.
  absl::Time last_contact = absl::InfinitePast();
  // When the watch that is open was answered; InfiniteFuture while none is.
  absl::Time watching_since = absl::InfiniteFuture();
  std::string last_error;  // of the last failure, whatever happened since
};

// Thread-safe. Transport, timer and sink must outlive it.
class Reflector {
 public:
  Reflector(Transport& transport, Timer& timer, ReflectorOptions options, ReflectorSink& sink);
  // No callback afterwards. Not from a callback, and not holding a lock that the sink takes.
  ~Reflector();
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  // Once. The sink hears kSyncing first, before this returns.
  void Start();
  ReflectorStats Stats() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::kube
