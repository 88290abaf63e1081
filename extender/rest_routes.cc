#include "extender/rest_routes.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "extender/access/guard.h"
#include "extender/access/problem.h"
#include "extender/access/query_rights.h"
#include "extender/health_routes.h"
#include "extender/message_json.h"
#include "extender/openapi.h"
#include "extender/web_page.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"
#include "nlohmann/json.hpp"

namespace muster::extender {
namespace {

constexpr const char* kLines = "application/x-ndjson";

http::Response Text(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text), {}};
}

// Of the page: nothing but its own files runs in it or is asked by it, no text becomes markup, and
// nobody frames it. A newer version of the service is a newer page at once.
std::vector<std::pair<std::string, std::string>> PageHeaders() {
  return {{"Content-Security-Policy",
           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
           "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
           "require-trusted-types-for 'script'; trusted-types 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cache-Control", "no-cache"}};
}

class GangStream : public http::StreamSource {
 public:
  GangStream(StateStore* store, GangFilter filter, std::optional<uint64_t> since, absl::Time until)
      : store_(store), filter_(std::move(filter)), since_(since), until_(until) {}

  void Start(std::function<void()> wake) override {
    auto subscription = store_->WatchGangs(filter_, std::move(wake), since_);
    if (subscription.ok()) subscription_ = *std::move(subscription);
  }

  Piece Next() override {
    // Without a subscription the limit was reached since the request was checked.
    const absl::Duration left = until_ - absl::Now();
    Piece piece{.end = !subscription_ || subscription_->lost() || left <= absl::ZeroDuration(),
                .look_again = left};
    if (piece.end) return piece;
    size_t size = 0;
    const auto lend = [&](std::string_view text, std::shared_ptr<const void> owner) {
      piece.shared.push_back({text, std::move(owner)});
      size += text.size();
    };
    while (size < kWatchPieceBytes) {
      std::optional<GangChange> change = subscription_->Next();
      if (!change) {
        if (size > 0) piece.rest = kWatchRest;
        return piece;
      }
      lend(change->deleted ? R"({"type":"DELETED","gang":)" : R"({"type":"UPDATED","gang":)",
           nullptr);
      lend(change->gang->Json(), change->gang);
      auto end = std::make_shared<const std::string>(
          fmt::format(",\"version\":\"{}\"}}\n", change->version));
      lend(*end, end);
    }
    piece.more = true;
    return piece;
  }

 private:
  StateStore* const store_;
  const GangFilter filter_;
  const std::optional<uint64_t> since_;
  const absl::Time until_;
  std::unique_ptr<GangSubscription> subscription_;
};

class ListStream : public http::StreamSource {
 public:
  ListStream(StateStore* store, Listed kind, absl::Time until)
      : store_(store), kind_(kind), until_(until) {}

  void Start(std::function<void()> wake) override {
    auto subscription = store_->WatchList(kind_, std::move(wake));
    if (subscription.ok()) subscription_ = *std::move(subscription);
  }

  Piece Next() override {
    const absl::Duration left = until_ - absl::Now();
    Piece piece{.end = !subscription_ || subscription_->lost() || left <= absl::ZeroDuration(),
                .look_again = left};
    if (piece.end) return piece;
    const std::shared_ptr<const MessageList> list = subscription_->Next();
    if (!list) return piece;
    piece.shared.push_back({list->Line(), list});
    piece.rest = kWatchRest;
    return piece;
  }

 private:
  StateStore* const store_;
  const Listed kind_;
  const absl::Time until_;
  std::unique_ptr<ListSubscription> subscription_;
};

// Checks that only these parameters are given, and reads `watch`.
std::optional<std::string> BadQuery(const http::Request& request,
                                    std::initializer_list<std::string_view> allowed, bool* watch) {
  for (const auto& [key, value] : request.query) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      return fmt::format("query parameter {} is unknown here", key);
    }
    if (key != "watch") continue;
    if (value != "true" && value != "false") {
      return fmt::format("watch: want true or false, got \"{}\"", value);
    }
    *watch = value == "true";
  }
  return std::nullopt;
}

// The page that is asked for.
absl::StatusOr<GangPage> PageIn(const http::Request& request, bool watch) {
  GangPage page;
  const std::string* limit = request.Query("limit");
  const std::string* from = request.Query("continue");
  if (watch && (limit != nullptr || from != nullptr)) {
    return absl::InvalidArgumentError("a watch has no pages: limit and continue are for lists");
  }
  int32_t most = 0;
  if (limit != nullptr && (!absl::SimpleAtoi(*limit, &most) || most <= 0)) {
    return absl::InvalidArgumentError(
        fmt::format("limit: want a whole number from 1 to 2147483647, got \"{}\"", *limit));
  }
  page.limit = static_cast<size_t>(most);
  if (from != nullptr) page.from = *from;
  if (absl::Status status = Check(page); !status.ok()) return status;
  return page;
}

// Where a watch is to go on; nullopt: it is to begin with all. A list is always of all.
absl::StatusOr<std::optional<uint64_t>> SinceIn(const http::Request& request, bool watch) {
  const std::string* since = request.Query("since");
  if (since == nullptr) return std::nullopt;
  uint64_t version = 0;
  if (since->find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(*since, &version)) {
    return absl::InvalidArgumentError(
        fmt::format("since: want a version that a list or a watch told, got \"{}\"", *since));
  }
  return !watch || version == 0 ? std::nullopt : std::optional(version);
}

// What a request is about.
std::string NamespaceIn(const http::Request& request) {
  const std::string* name_space = request.Query("namespace");
  return name_space == nullptr ? "" : *name_space;
}
bool IsWatch(const http::Request& request) {
  const std::string* watch = request.Query("watch");
  return watch != nullptr && *watch == "true";
}

class Rest {
 public:
  explicit Rest(RestSources sources) : sources_(std::move(sources)) {}

  void ListGangs(const http::Request& request, const http::Responder& responder) const {
    bool watch = false;
    if (auto bad =
            BadQuery(request, {"namespace", "watch", "since", "limit", "continue"}, &watch)) {
      return responder.Send(Problem(400, *bad));
    }
    GangFilter filter{NamespaceIn(request), ""};
    const absl::StatusOr<GangPage> page = PageIn(request, watch);
    if (!page.ok()) return responder.Send(Problem(400, std::string(page.status().message())));
    const auto since = SinceIn(request, watch);
    if (!since.ok()) return responder.Send(Problem(400, std::string(since.status().message())));
    if (watch) return WatchGangs(std::move(filter), *since, responder);
    if (IsClosed(responder)) return;
    const GangPages found = sources_.store->GangsOn(filter, *page);
    size_t size = 0;
    for (const SharedGang& gang : found.gangs) size += gang->Json().size() + 1;
    std::string body = R"({"gangs":[)";
    body.reserve(body.size() + size + 64);
    for (const SharedGang& gang : found.gangs) {
      body += gang->Json();
      body += ',';
    }
    if (!found.gangs.empty()) body.pop_back();
    body += R"(],"continue":)";
    body += nlohmann::json(found.next).dump();
    body += fmt::format(R"(,"version":"{}"}})", found.version);
    responder.Send({.body = std::move(body)});
  }

  void GetGang(const http::Request& request, const http::Responder& responder) const {
    bool watch = false;
    if (auto bad = BadQuery(request, {"watch", "since"}, &watch)) {
      return responder.Send(Problem(400, *bad));
    }
    const std::string& name_space = request.captures[0];
    const std::string& name = request.captures[1];
    const auto since = SinceIn(request, watch);
    if (!since.ok()) return responder.Send(Problem(400, std::string(since.status().message())));
    if (watch) return WatchGangs({name_space, name}, *since, responder);
    if (IsClosed(responder)) return;
    const SharedGang gang = sources_.store->FindGang(name_space, name);
    if (!gang) {
      return responder.Send(Problem(404, fmt::format("there is no gang {}/{}", name_space, name)));
    }
    responder.Send({.shared = {gang->Json(), gang}});
  }

  void List(Listed kind, const http::Request& request, const http::Responder& responder) const {
    bool watch = false;
    if (auto bad = BadQuery(request, {"watch"}, &watch)) return responder.Send(Problem(400, *bad));
    if (IsClosed(responder)) return;
    if (!watch) {
      const std::shared_ptr<const MessageList> list = sources_.store->List(kind);
      return responder.Send({.shared = {list->Json(), list}});
    }
    if (const absl::Status room = sources_.store->RoomForWatch(); !room.ok()) {
      return responder.Send(ProblemOf(room));
    }
    responder.Stream(kLines, std::make_unique<ListStream>(sources_.store, kind, Until()));
  }

  void GetNode(const http::Request& request, const http::Responder& responder) const {
    bool watch = false;
    if (auto bad = BadQuery(request, {}, &watch)) return responder.Send(Problem(400, *bad));
    if (IsClosed(responder)) return;
    const std::string& name = request.captures[0];
    const std::optional<v1::Node> node = FindNode(*sources_.store, name);
    if (!node) return responder.Send(Problem(404, fmt::format("there is no node {}", name)));
    responder.Send({.body = ToJson(*node)});
  }

  // A ClusterQueue by its name, a LocalQueue by namespace and name.
  void GetQueue(const http::Request& request, const http::Responder& responder) const {
    bool watch = false;
    if (auto bad = BadQuery(request, {}, &watch)) return responder.Send(Problem(400, *bad));
    if (IsClosed(responder)) return;
    const bool local = request.captures.size() > 1;
    const std::string name_space = local ? request.captures[0] : "";
    const std::optional<v1::Queue> queue =
        FindQueue(*sources_.store, name_space, request.captures.back());
    if (!queue) {
      return responder.Send(
          Problem(404, fmt::format("there is no {} {}{}{}", local ? "LocalQueue" : "ClusterQueue",
                                   name_space, local ? "/" : "", request.captures.back())));
    }
    responder.Send({.body = ToJson(*queue)});
  }

  void Ready(const http::Responder& responder) const {
    responder.Send(Readiness(sources_.not_ready_reason(), sources_.no_leader_reason()));
  }

  void Metrics(const http::Responder& responder) const {
    responder.Send({200, "text/plain; version=0.0.4; charset=utf-8", sources_.metrics(), {}});
  }

 private:
  bool IsClosed(const http::Responder& responder) const {
    const absl::Status readable = sources_.store->Readable();
    if (!readable.ok()) responder.Send(Problem(503, std::string(readable.message())));
    return !readable.ok();
  }

  void WatchGangs(GangFilter filter, std::optional<uint64_t> since,
                  const http::Responder& responder) const {
    if (const absl::Status room = sources_.store->RoomForWatch(since); !room.ok()) {
      return responder.Send(ProblemOf(room));
    }
    responder.Stream(
        kLines, std::make_unique<GangStream>(sources_.store, std::move(filter), since, Until()));
  }

  absl::Time Until() const { return WatchedUntil(sources_.access, sources_.watch_life); }

  const RestSources sources_;
};

// The rights that requests take.
Wanted OfGangs(const http::Request& request) {
  const std::string name_space = NamespaceIn(request);
  return IsWatch(request) ? ToWatchGangs(name_space) : ToListGangs(name_space);
}
Wanted OfGang(const http::Request& request) {
  const std::string& name_space = request.captures[0];
  const std::string& name = request.captures[1];
  return IsWatch(request) ? ToWatchGangs(name_space, name) : ToGetGang(name_space, name);
}
// Who waits in a LocalQueue is of its namespace.
Wanted OfQueue(const http::Request& request) {
  return ToListGangs(request.captures.size() > 1 ? request.captures[0] : "");
}
Wanted OfLists(const http::Request& request) {
  return IsWatch(request) ? ToWatchGangs() : ToListGangs();
}

}  // namespace

std::vector<http::Route> RestRoutes(RestSources sources) {
  AccessControl* const access = sources.access;
  const auto rest = std::make_shared<const Rest>(std::move(sources));
  std::vector<http::Route> routes;
  const auto guard = [&routes, access](const char* pattern,
                                       std::function<Wanted(const http::Request&)> wanted,
                                       http::Handler handler) {
    routes.push_back({"GET", pattern, Guarded(access, std::move(wanted), std::move(handler))});
  };
  const auto get = [&routes](const char* pattern, http::Handler handler) {
    routes.push_back({"GET", pattern, std::move(handler)});
  };
  guard("/v1/gangs", OfGangs,
        [rest](const http::Request& request, const http::Responder& responder) {
          rest->ListGangs(request, responder);
        });
  guard("/v1/gangs/{namespace}/{name}", OfGang,
        [rest](const http::Request& request, const http::Responder& responder) {
          rest->GetGang(request, responder);
        });
  for (const auto& [pattern, kind] :
       {std::pair{"/v1/nodes", Listed::kNodes}, std::pair{"/v1/queues", Listed::kQueues},
        std::pair{"/v1/flavors", Listed::kFlavors}}) {
    guard(pattern, OfLists,
          [rest, kind = kind](const http::Request& request, const http::Responder& responder) {
            rest->List(kind, request, responder);
          });
  }
  guard(
      "/v1/nodes/{name}", [](const http::Request&) { return ToListGangs(); },
      [rest](const http::Request& request, const http::Responder& responder) {
        rest->GetNode(request, responder);
      });
  for (const char* pattern : {"/v1/queues/{name}", "/v1/queues/{namespace}/{name}"}) {
    guard(pattern, OfQueue, [rest](const http::Request& request, const http::Responder& responder) {
      rest->GetQueue(request, responder);
    });
  }
  get("/openapi.json", [](const http::Request&, const http::Responder& responder) {
    responder.Send({.body = OpenApiJson()});
  });
  get("/metrics",
      [rest](const http::Request&, const http::Responder& responder) { rest->Metrics(responder); });
  get("/healthz", [](const http::Request&, const http::Responder& responder) {
    responder.Send(Text(200, "ok"));
  });
  get("/readyz",
      [rest](const http::Request&, const http::Responder& responder) { rest->Ready(responder); });
  for (const WebFile& file : WebFiles()) {
    get(file.path, [&file](const http::Request&, const http::Responder& responder) {
      responder.Send({.content_type = file.content_type,
                      .headers = PageHeaders(),
                      .shared = {file.text, nullptr}});
    });
  }
  return routes;
}

}  // namespace muster::extender
