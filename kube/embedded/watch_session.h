// One open watch, as a cursor into the store's history.
//
// Its owner pulls: a reader that stops pulling costs the server nothing, and one that falls behind
// the history gets 410 and is closed. So the memory of watches is bounded by the history.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/embedded/object_store.h"

namespace muster::kube::embedded {

class ServerImpl;

struct WatchItem {
  enum class Type { kAdded, kModified, kDeleted, kBookmark, kError };
  Type type = Type::kAdded;
  ObjectPtr object;  // null for kBookmark and kError
  // JSON to send instead of the object's own: a bookmark, a Status, or a Table row.
  std::string body;

  // Appends {"type":...,"object":...} without a newline.
  void AppendLine(std::string* out) const;
};

// One reader at a time; otherwise thread-safe. Must be destroyed before the server.
class WatchSession {
 public:
  struct State;
  WatchSession(ServerImpl* server, std::shared_ptr<State> state);
  ~WatchSession();
  WatchSession(const WatchSession&) = delete;
  WatchSession& operator=(const WatchSession&) = delete;

  // Appends what is there by now, at most `max` items. False once the watch has ended (its
  // timeout passed, or an error was sent) and everything was read.
  bool Read(size_t max, std::vector<WatchItem>* out);

  // When Read will have a bookmark or the end to report though nothing happens.
  absl::Time NextDue() const;

  // `wake` runs when something can be read after a Read that emptied the watch, once until the
  // next such Read; at once if there is something already. It runs under the server's lock: it may
  // only note the fact, never call the server.
  void OnReady(std::function<void()> wake);

 private:
  ServerImpl* const server_;
  const std::shared_ptr<State> state_;
};

}  // namespace muster::kube::embedded
