#include "kube/embedded/watch_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/server_impl.h"
#include "kube/embedded/table.h"

namespace muster::kube::embedded {
namespace {

// Changes looked at in one read, so that a selective watch can't hold the lock for long.
constexpr size_t kMaxChangesPerRead = 4096;

const char* TypeName(WatchItem::Type type) {
  switch (type) {
    case WatchItem::Type::kAdded:
      return "ADDED";
    case WatchItem::Type::kModified:
      return "MODIFIED";
    case WatchItem::Type::kDeleted:
      return "DELETED";
    case WatchItem::Type::kBookmark:
      return "BOOKMARK";
    case WatchItem::Type::kError:
      return "ERROR";
  }
  return "";
}

WatchItem Bookmark(const ResourceType& type, uint64_t revision, bool initial_events_end) {
  Json object = {{"kind", type.kind},
                 {"apiVersion", type.ApiVersion()},
                 {"metadata",
                  {{"resourceVersion", std::to_string(revision)}, {"creationTimestamp", nullptr}}}};
  if (initial_events_end) {
    object["metadata"]["annotations"] = {{"k8s.io/initial-events-end", "true"}};
  }
  return {WatchItem::Type::kBookmark, nullptr, object.dump()};
}

uint64_t Number(const std::string& text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// What a change looks like to a watch that selects: an object that stops matching is deleted for
// it, one that starts matching is added.
std::optional<WatchItem::Type> SeenAs(const Selection& selection, const Change& change) {
  if (!change.key.starts_with(selection.prefix)) return std::nullopt;
  bool was = change.previous && selection.Matches(change.previous->value());
  bool is = change.type != ChangeType::kDeleted && selection.Matches(change.object->value());
  if (was && is) return WatchItem::Type::kModified;
  if (is) return WatchItem::Type::kAdded;
  if (was) return WatchItem::Type::kDeleted;
  return std::nullopt;
}

}  // namespace

void WatchItem::AppendLine(std::string* out) const {
  *out += R"({"type":")";
  *out += TypeName(type);
  *out += R"(","object":)";
  *out += body.empty() && object ? object->bytes() : body;
  *out += '}';
}

WatchSession::WatchSession(ServerImpl* server, std::shared_ptr<State> state)
    : server_(server), state_(std::move(state)) {}

WatchSession::~WatchSession() { server_->CloseWatch(state_.get()); }

bool WatchSession::Read(size_t max, std::vector<WatchItem>* out) {
  return server_->ReadWatch(state_.get(), max, out);
}

absl::Time WatchSession::NextDue() const { return server_->WatchDue(*state_); }

void WatchSession::OnReady(std::function<void()> wake) {
  server_->ArmWatch(state_.get(), std::move(wake));
}

ApiServer::WatchResult ServerImpl::Watch(const Request& request, const RequestHeaders& headers) {
  Call call{request, headers, {}, nullptr, {}};
  ApiResult<std::shared_ptr<WatchSession::State>> state = OpenWatch(&call);
  if (state.ok()) return {std::make_unique<WatchSession>(this, *std::move(state)), {}};
  const ApiError& error = state.error();
  return {nullptr, {error.code, error.ToJson(), error.retry_after}};
}

ApiResult<std::shared_ptr<WatchSession::State>> ServerImpl::OpenWatch(Call* call) {
  auto state = std::make_shared<WatchSession::State>();
  std::lock_guard lock(mutex_);
  if (MaybeError error = ResolveLocked(call)) return *error;
  if (!call->path.subresource.empty()) return NoSuchPath();
  if (MaybeError error = CheckListOptions(*call, /*watch=*/true)) return *error;
  ApiResult<Selection> selection = SelectionOf(*call);
  if (!selection.ok()) return selection.error();
  state->type = call->type;
  state->selection = *std::move(selection);
  if (MaybeError error = StartWatchLocked(*call, state.get())) return *error;
  if (WantsTable(call->headers.accept)) {
    state->render = [this, type = call->type, include = call->Query("includeObject")](
                        const StoredObject& object, bool first) {
      return ObjectTable(*type, object.value(), now(), {include, "", first});
    };
  }
  if (sessions_.size() <= call->type->index) sessions_.resize(call->type->index + 1);
  sessions_[call->type->index].push_back(state.get());
  return state;
}

MaybeError ServerImpl::StartWatchLocked(const Call& call, WatchSession::State* state) {
  const size_t kind = call.type->index;
  const uint64_t version = Number(call.Query("resourceVersion"));
  const bool initial_events = call.Query("sendInitialEvents") == "true";
  if (version > store_.revision()) return TooLargeResourceVersion(version, store_.revision());
  state->bookmarks = call.Query("allowWatchBookmarks") == "true";
  state->list_revision = store_.revision();
  // Without a version (or with "0") a watch starts with the state, unless told not to.
  if (initial_events || (version == 0 && call.Query("sendInitialEvents") != "false")) {
    store_.Scan(kind, state->selection.prefix, "",
                [&](const std::string&, const ObjectPtr& object) {
                  if (state->selection.Matches(object->value())) state->initial.push_back(object);
                  return true;
                });
    state->announce_initial_end = initial_events && state->bookmarks;
    state->next_change = store_.EndOfChanges(kind);
  } else if (version == 0) {
    state->next_change = store_.EndOfChanges(kind);
  } else {
    std::optional<uint64_t> first = store_.FirstChangeAfter(kind, version);
    if (first) {
      state->next_change = *first;
    } else {
      // A stale version is told inside the stream, as the watch cache does.
      state->failure = Expired(fmt::format("too old resource version: {} ({})", version,
                                           store_.CompactedRevision(kind)));
    }
  }
  if (state->bookmarks) state->next_bookmark = now() + options_.bookmark_interval;
  uint64_t seconds = Number(call.Query("timeoutSeconds"));
  // Without a wish: 30 to 60 minutes, so that clients don't all come back at once.
  if (seconds == 0) seconds = 1800 + RandomLocked() % 1800;
  state->deadline = now() + absl::Seconds(static_cast<int64_t>(seconds));
  return std::nullopt;
}

void ServerImpl::ReadChangesLocked(WatchSession::State* state, size_t max,
                                   std::vector<WatchItem>* out) {
  const size_t kind = state->type->index;
  for (size_t looked_at = 0; looked_at < kMaxChangesPerRead && out->size() < max; ++looked_at) {
    const Change* change = store_.FindChange(kind, state->next_change);
    if (change == nullptr) {
      if (state->next_change < store_.EndOfChanges(kind)) {
        state->failure = Expired(
            fmt::format("the watch fell behind: changes up to resource version {} are compacted",
                        store_.CompactedRevision(kind)));
      }
      return;
    }
    ++state->next_change;
    std::optional<WatchItem::Type> type = SeenAs(state->selection, *change);
    if (!type) continue;
    if (*type == WatchItem::Type::kDeleted && change->type != ChangeType::kDeleted) {
      // It left the selection: it is told as it was selected last, with the version that it left
      // at.
      Json last = change->previous->value();
      last["metadata"]["resourceVersion"] = std::to_string(change->object->revision());
      out->push_back(
          {*type, std::make_shared<StoredObject>(std::move(last), change->object->revision()), ""});
      continue;
    }
    out->push_back({*type, change->object, ""});
  }
}

bool ServerImpl::ReadWatch(WatchSession::State* state, size_t max, std::vector<WatchItem>* out) {
  const size_t before = out->size();
  std::unique_lock lock(mutex_);
  state->armed = false;
  if (state->ended) return false;
  max += before;
  while (state->initial_sent < state->initial.size() && out->size() < max) {
    out->push_back({WatchItem::Type::kAdded, std::move(state->initial[state->initial_sent++]), ""});
  }
  bool initial_done = state->initial_sent == state->initial.size();
  if (initial_done && out->size() < max && state->announce_initial_end) {
    out->push_back(Bookmark(*state->type, state->list_revision, true));
    state->announce_initial_end = false;
  }
  if (initial_done && !state->failure) ReadChangesLocked(state, max, out);
  const absl::Time time = now();
  bool drained = initial_done && !state->announce_initial_end &&
                 state->next_change == store_.EndOfChanges(state->type->index);
  if (state->failure) {
    out->push_back({WatchItem::Type::kError, nullptr, state->failure->ToJson()});
    state->ended = true;
  } else if (drained) {
    state->armed = true;
    state->initial.clear();
    state->initial_sent = 0;
    if (time >= state->next_bookmark && out->size() < max) {
      out->push_back(Bookmark(*state->type, store_.revision(), false));
      state->next_bookmark = time + options_.bookmark_interval;
    }
    if (time >= state->deadline) state->ended = true;
  }
  bool open = !state->ended;
  lock.unlock();
  if (!state->render) return open;
  for (size_t i = before; i < out->size(); ++i) {
    WatchItem& item = (*out)[i];
    if (!item.object) continue;
    item.body = state->render(*item.object, !state->rendered_any);
    state->rendered_any = true;
  }
  return open;
}

void ServerImpl::ArmWatch(WatchSession::State* state, std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  state->wake = std::move(wake);
  bool waiting = state->initial_sent < state->initial.size() || state->announce_initial_end ||
                 state->failure || state->ended ||
                 state->next_change != store_.EndOfChanges(state->type->index);
  if (waiting && state->wake) {
    state->armed = false;
    state->wake();
  } else {
    state->armed = true;
  }
}

absl::Time ServerImpl::WatchDue(const WatchSession::State& state) {
  std::lock_guard lock(mutex_);
  return state.ended ? absl::InfinitePast() : std::min(state.next_bookmark, state.deadline);
}

void ServerImpl::CloseWatch(WatchSession::State* state) {
  std::lock_guard lock(mutex_);
  std::vector<WatchSession::State*>& sessions = sessions_[state->type->index];
  sessions.erase(std::remove(sessions.begin(), sessions.end(), state), sessions.end());
}

void ServerImpl::NotifyLocked(size_t kind) {
  if (kind >= sessions_.size()) return;
  for (WatchSession::State* session : sessions_[kind]) {
    if (!session->armed || !session->wake) continue;
    session->armed = false;
    session->wake();
  }
}

void ServerImpl::EndWatchesLocked(size_t kind) {
  if (kind >= sessions_.size()) return;
  for (WatchSession::State* session : sessions_[kind]) session->deadline = absl::InfinitePast();
  NotifyLocked(kind);
}

}  // namespace muster::kube::embedded
