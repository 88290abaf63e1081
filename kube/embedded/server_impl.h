// The inside of ApiServer; nobody but its own .cc files includes this.
//
// Locking: mutex_ covers store, types, sessions and the random source. Methods whose name ends in
// Locked expect it held. Bodies are parsed, checked and serialised outside of it; webhooks are
// called outside of it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kube/api.h"
#include "kube/embedded/api_error.h"
#include "kube/embedded/api_path.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/managed_fields.h"
#include "kube/embedded/object_store.h"
#include "kube/embedded/resource_types.h"
#include "kube/embedded/selectors.h"
#include "kube/embedded/watch_session.h"

namespace muster::kube::embedded {

using Json = nlohmann::json;

// One request on its way through the server.
struct Call {
  const Request& request;
  const RequestHeaders& headers;
  ApiPath path;
  const ResourceType* type = nullptr;
  std::vector<std::string> warnings;

  // The value of a query parameter, "" if absent.
  const std::string& Query(std::string_view name) const;
  bool HasQuery(std::string_view name) const;
  bool dry_run() const { return Query("dryRun") == "All"; }
  std::string Key() const { return KeyOf(path.name_space, path.name); }
  static std::string KeyOf(const std::string& name_space, const std::string& name);
};

// What a list or watch selects.
struct Selection {
  std::string prefix;  // of keys: "" or "namespace/"
  LabelSelector labels;
  std::vector<FieldRequirement> fields;
  bool Matches(const Json& object) const;
};

// The options of a DELETE, from its body or query.
struct DeleteOptions {
  std::optional<int64_t> grace_period;
  std::string uid;
  std::string resource_version;
  bool dry_run = false;
};

// Where a watch stands.
struct WatchSession::State {
  const ResourceType* type = nullptr;
  Selection selection;
  std::vector<ObjectPtr> initial;  // sent first, as ADDED
  size_t initial_sent = 0;
  bool announce_initial_end = false;
  uint64_t list_revision = 0;
  uint64_t next_change = 0;
  bool bookmarks = false;
  absl::Time next_bookmark = absl::InfiniteFuture();
  absl::Time deadline = absl::InfiniteFuture();
  std::optional<ApiError> failure;  // sent as ERROR, then the watch ends
  bool ended = false;
  bool armed = false;
  std::function<void()> wake;
  // Set for clients that asked for tables: the row of an object.
  std::function<std::string(const StoredObject&, bool first)> render;
  bool rendered_any = false;
};

class ServerImpl {
 public:
  explicit ServerImpl(ApiServerOptions options);

  Answer Handle(const Request& request, const RequestHeaders& headers);
  ApiServer::WatchResult Watch(const Request& request, const RequestHeaders& headers);
  bool MayBlock(const Request& request);
  void SetWebhookCaller(std::shared_ptr<WebhookCaller> caller);
  void SetAccounts(std::vector<Account> accounts);
  void CompactHistory();
  uint64_t revision();
  absl::Time now() const { return options_.clock(); }
  const ApiServerOptions& options() const { return options_; }

  // watch_session.cc
  bool ReadWatch(WatchSession::State* state, size_t max, std::vector<WatchItem>* out);
  void ArmWatch(WatchSession::State* state, std::function<void()> wake);
  absl::Time WatchDue(const WatchSession::State& state);
  void CloseWatch(WatchSession::State* state);

 private:
  // accounts.h
  std::optional<Answer> AnswerAboutAccounts(const Request& request);

  // server_impl.cc: finding the kind and the verb
  ApiResult<Answer> Route(Call* call);
  // Fills in path and type; 404 for a path that leads nowhere.
  MaybeError ResolveLocked(Call* call);
  ApiResult<Answer> RouteVerb(Call* call);
  ApiResult<Answer> RouteSubresource(Call* call);

  // reads.cc
  ApiResult<Answer> Get(Call* call);
  ApiResult<Answer> List(Call* call);
  ApiResult<Selection> SelectionOf(const Call& call);
  MaybeError CheckListOptions(const Call& call, bool watch);

  // watch_session.cc
  ApiResult<std::shared_ptr<WatchSession::State>> OpenWatch(Call* call);
  MaybeError StartWatchLocked(const Call& call, WatchSession::State* state);
  void ReadChangesLocked(WatchSession::State* state, size_t max, std::vector<WatchItem>* out);
  void NotifyLocked(size_t kind);
  void EndWatchesLocked(size_t kind);

  // creates.cc
  ApiResult<Answer> Create(Call* call);
  // `managed_fields` are what metadata gets; null: none.
  ApiResult<Answer> CreateObject(Call* call, Json object, Json managed_fields);
  ApiResult<Json> DecodeObject(Call* call, const std::string& body);
  MaybeError CheckTypeMeta(const Call& call, Json* object);
  MaybeError CheckShape(Call* call, Json* object);
  MaybeError AdmitNew(Call* call, Json* object);
  MaybeError ResolvePriority(const Call& call, Json* object);
  void FillSystemFieldsLocked(const ResourceType& type, Json* object);
  MaybeError CheckNamespaceLocked(const Call& call);

  // updates.cc
  ApiResult<Answer> Replace(Call* call);
  ApiResult<Answer> Patch(Call* call);
  using Edit = std::function<ApiResult<Json>(const Json& current)>;
  enum class Write { kPut, kPatch, kApply };
  ApiResult<Answer> Modify(Call* call, Write write, const Edit& edit);
  ApiResult<Json> PrepareChange(Call* call, Write write, const Json& before, Json after);
  ApiResult<Answer> StoreChangeLocked(Call* call, const ObjectPtr& before, Json after);

  // applies.cc
  ApiResult<Answer> Apply(Call* call);
  ApiResult<Answer> CreateByApply(Call* call, const Json& config, const FieldWriter& writer);

  // deletes.cc
  ApiResult<Answer> Delete(Call* call);
  ApiResult<Answer> DeleteCollection(Call* call);
  ApiResult<DeleteOptions> DeleteOptionsOf(const Call& call, const Json* body);
  // By the request's own body, if it has one.
  ApiResult<DeleteOptions> DeleteOptionsOf(const Call& call);
  ApiResult<Answer> DeleteLocked(const ResourceType& type, const std::string& key,
                                 const DeleteOptions& options);
  void DeletePodLocked(const ResourceType& type, const std::string& key, Json pod, int64_t grace);
  void RemoveLocked(const ResourceType& type, const std::string& key, Json last);
  void EmptyNamespaceLocked(const std::string& name_space);
  void FinishNamespaceLocked(const std::string& name_space);
  void DropOldEventsLocked();

  // pod_actions.cc
  ApiResult<Answer> Bind(Call* call);
  ApiResult<Answer> Evict(Call* call);

  // admission.cc
  struct Webhook {
    std::string configuration;
    Json definition;
  };
  // Those that match an operation on an object, in the order in which they are called.
  ApiResult<std::vector<Webhook>> MatchingWebhooks(const Call& call, const std::string& operation,
                                                   const Json& object);
  // Lets each of them change the object.
  MaybeError CallWebhooks(Call* call, const std::string& operation, const Json* before,
                          const std::vector<Webhook>& webhooks, Json* object);
  MaybeError CallWebhook(Call* call, const Webhook& webhook, const std::string& operation,
                         const Json* before, Json* object);

  // custom_types.cc
  void ServeCrdLocked(const Json& crd);
  void StopServingCrdLocked(const Json& crd);

  // discovery.cc
  std::optional<Answer> Discover(const Request& request);

  // Shared by the writes.
  ObjectPtr StoreLocked(const ResourceType& type, const std::string& key, Json object);
  void AfterStoreLocked(const ResourceType& type, const ObjectPtr& stored);
  std::string RandomSuffixLocked();
  std::string UidLocked();
  uint64_t RandomLocked() { return random_(); }
  Answer ObjectAnswer(const Call& call, int status, const Json& object);
  Answer ObjectAnswer(const Call& call, int status, const StoredObject& object);
  void CreateBuiltInObjects();

  const ApiServerOptions options_;

  std::mutex mutex_;
  std::shared_ptr<WebhookCaller> webhook_caller_;
  std::vector<Account> accounts_;
  ResourceTypes types_;
  ObjectStore store_;
  std::mt19937_64 random_;
  // Open watches by ResourceType::index.
  std::vector<std::vector<WatchSession::State*>> sessions_;
  // When which event (the kind) is due to go, oldest first: key and revision.
  struct EventExpiry {
    absl::Time at;
    std::string key;
    uint64_t revision;
  };
  std::deque<EventExpiry> event_expiries_;
};

// Parses a body; BadRequest if it isn't one JSON value or is nested more than 256 levels.
ApiResult<Json> ParseJson(const std::string& body);

// What PATCH's fieldManager and force may be.
MaybeError CheckPatchOptions(const Call& call, bool applies);

// By fieldManager, else by the client's name in its User-Agent.
FieldWriter WriterOf(const Call& call, absl::Time now);

// The name in the body must be that of the path.
MaybeError CheckName(const Call& call, const Json& object);

// metav1.Status of a success.
Answer SuccessAnswer(int status, const ResourceType* type = nullptr, const Json* object = nullptr);

}  // namespace muster::kube::embedded
