#include "extender/kubectl/query_command.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "extender/kubectl/follower.h"
#include "extender/kubectl/object_text.h"
#include "extender/kubectl/visibility_client.h"
#include "fmt/format.h"
#include "kube/client/client_config.h"
#include "kube/client/curl_transport.h"
#include "muster/v1/admission.pb.h"
#include "printers/tables.h"

namespace muster::extender {
namespace {

using nlohmann::json;

constexpr int kShown = 0;
constexpr int kNotThere = 1;
constexpr int kFailed = 2;
constexpr const char* kClear = "\033[H\033[2J";
// How often a place in line, and how long ago something was, are looked at while nothing changes.
constexpr absl::Duration kLookAgain = absl::Seconds(2);
constexpr absl::Duration kPatience = absl::Seconds(1);

// What Muster says of an object. Fields that only a newer Muster knows are passed over.
template <typename Message>
absl::StatusOr<Message> Said(const json& object) {
  Message message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      object.value("status", json::object()).dump(), &message, options);
  if (!parsed.ok()) return absl::DataLossError("the answer can't be read: " + parsed.ToString());
  return message;
}

// "namespace/name" as a Follower has it.
std::string KeyOf(const json& object) {
  const json& metadata = object["metadata"];
  return metadata.value("namespace", "") + "/" + metadata.value("name", "");
}

class Command {
 public:
  Command(const QueryOptions& options, kube::Transport& transport, const Screen& screen)
      : options_(options),
        transport_(transport),
        screen_(screen),
        client_(transport, screen.sleep),
        asked_(Asked(options)) {}

  int Run() {
    const absl::StatusOr<json> answer = client_.Get(asked_);
    if (!answer.ok()) return Fail(answer.status());
    if (options_.watch) return Watch();
    if (const std::optional<ObjectForm> form = Form()) {
      screen_.out << ObjectText(*answer, *form);
      return kShown;
    }
    std::map<std::string, json> objects;
    if (answer->contains("items")) {
      for (const json& item : (*answer)["items"]) objects[KeyOf(item)] = item;
    } else {
      objects[KeyOf(*answer)] = *answer;
    }
    return Show(objects);
  }

 private:
  static Visible Asked(const QueryOptions& options) {
    const std::string name_space = options.all_namespaces ? "" : options.name_space;
    switch (options.query) {
      case Query::kGangs:
        return {"gangs", name_space, options.name};
      case Query::kQueues:
        return {options.all_namespaces ? "clusterqueues" : "localqueues", name_space, options.name};
      case Query::kNodes:
        return {"nodes", "", options.name};
      case Query::kExplain:
        break;
    }
    const size_t slash = options.name.find('/');
    if (slash == std::string::npos) return {"gangs", options.name_space, options.name};
    return {"gangs", options.name.substr(0, slash), options.name.substr(slash + 1)};
  }

  std::optional<ObjectForm> Form() const {
    if (options_.output == "json") return ObjectForm::kJson;
    if (options_.output == "yaml") return ObjectForm::kYaml;
    if (options_.output == "name") return ObjectForm::kName;
    return std::nullopt;
  }

  printers::View View() const {
    return {.now = screen_.clock(),
            .namespaces = options_.all_namespaces,
            .wide = options_.output == "wide",
            .colours = screen_.colours};
  }

  int Fail(const absl::Status& status) const {
    screen_.err << "muster: " << std::string(status.message()) << "\n";
    return absl::IsNotFound(status) ? kNotThere : kFailed;
  }

  bool InRows() const { return options_.query == Query::kGangs || options_.query == Query::kNodes; }

  // All of it, as a table or as a story.
  int Show(const std::map<std::string, json>& objects) {
    if (objects.empty()) {
      screen_.err << "No " << asked_.resource
                  << (asked_.name_space.empty() ? " in this cluster."
                                                : " in namespace " + asked_.name_space + ".")
                  << (asked_.resource == "localqueues" ? " Those of the cluster: -A." : "") << "\n";
      return kShown;
    }
    const absl::StatusOr<std::string> text = InRows() ? Rows(objects, true) : Whole(objects);
    if (!text.ok()) return Fail(text.status());
    screen_.out << *text << std::flush;
    return kShown;
  }

  // Lines of the table, which goes on where the last ones ended.
  absl::StatusOr<std::string> Rows(const std::map<std::string, json>& objects, bool with_heads) {
    const printers::View view = View();
    std::vector<printers::TableRow> rows;
    if (options_.query == Query::kGangs) {
      if (with_heads) rows.push_back(printers::GangHeads(view));
      for (const auto& [key, object] : objects) {
        const absl::StatusOr<v1::Gang> gang = Said<v1::Gang>(object);
        if (!gang.ok()) return gang.status();
        rows.push_back(printers::GangCells(*gang, view));
      }
    } else {
      if (with_heads) rows.push_back(printers::NodeHeads(view));
      std::vector<v1::Node> nodes;
      for (const auto& [key, object] : objects) {
        absl::StatusOr<v1::Node> node = Said<v1::Node>(object);
        if (!node.ok()) return node.status();
        nodes.push_back(*std::move(node));
      }
      std::ranges::sort(nodes, printers::ComesBefore);
      LearnWhoHolds(nodes);
      for (const v1::Node& node : nodes) {
        rows.push_back(printers::NodeCells(node, gangs_by_uid_, view));
      }
    }
    form_.colours = screen_.colours;
    return printers::FormatTable(rows, &form_);
  }

  absl::StatusOr<std::string> Whole(const std::map<std::string, json>& objects) {
    if (options_.query == Query::kExplain) {
      const absl::StatusOr<v1::Gang> gang = Said<v1::Gang>(objects.begin()->second);
      if (!gang.ok()) return gang.status();
      place_ = PlaceOf(*gang);
      return printers::ExplainGang(*gang, place_, View());
    }
    printers::Queues queues;
    for (const auto& [key, object] : objects) {
      absl::StatusOr<v1::Queue> queue = Said<v1::Queue>(object);
      if (!queue.ok()) return queue.status();
      *queues.Add() = *std::move(queue);
    }
    return options_.all_namespaces ? printers::ClusterQueueTable(queues, View())
                                   : printers::LocalQueueTable(queues, View());
  }

  // Who may see a gang need not see queues: then it stays unknown.
  std::optional<printers::PlaceInLine> PlaceOf(const v1::Gang& gang) {
    if (gang.state() != v1::WAITING_FOR_QUOTA || gang.queue().empty()) return std::nullopt;
    const auto object = client_.Get({"localqueues", gang.namespace_(), gang.queue()});
    if (!object.ok()) return std::nullopt;
    const absl::StatusOr<v1::Queue> queue = Said<v1::Queue>(*object);
    if (!queue.ok()) return std::nullopt;
    for (const v1::PendingGang& waiting : queue->pending_gangs()) {
      if (waiting.name() == gang.name()) return {{queue->cluster_queue(), waiting.place()}};
    }
    return std::nullopt;
  }

  // Of that the gang itself doesn't tell.
  bool HasMovedInLine(const std::map<std::string, json>& objects) {
    if (options_.query != Query::kExplain) return false;
    const absl::StatusOr<v1::Gang> gang = Said<v1::Gang>(objects.begin()->second);
    return gang.ok() && PlaceOf(*gang) != place_;
  }

  // Nodes name by UID who holds them. Without the right to list all gangs that is what is shown.
  void LearnWhoHolds(const std::vector<v1::Node>& nodes) {
    const bool all_known = std::ranges::all_of(nodes, [this](const v1::Node& node) {
      return std::ranges::all_of(
          node.holds(), [this](const auto& hold) { return gangs_by_uid_.contains(hold.first); });
    });
    const absl::Time now = screen_.clock();
    if (all_known || now < gangs_asked_ + kLookAgain) return;
    gangs_asked_ = now;
    const absl::StatusOr<json> gangs = client_.Get({"gangs"});
    if (!gangs.ok()) return;
    gangs_by_uid_.clear();
    for (const json& gang : gangs->value("items", json::array())) {
      gangs_by_uid_[gang["metadata"].value("uid", "")] = KeyOf(gang);
    }
  }

  int Watch() {
    Follower follower(transport_, asked_);
    std::map<std::string, json> objects;
    bool first = true;
    std::string trouble;
    absl::Time looked_at = absl::InfinitePast();
    while (screen_.out && !(screen_.ended && screen_.ended())) {
      const absl::StatusOr<Follower::News> news = follower.Next(kPatience);
      if (!news.ok()) return Fail(news.status());
      if (const std::string now = follower.trouble(); now != trouble) {
        trouble = now;
        if (!trouble.empty()) {
          screen_.err << "muster: what is shown isn't kept up at the moment: " << trouble << "\n";
        }
      }
      // One that is gone is told as it was last, as kubectl does.
      std::map<std::string, json> changed;
      for (const auto& [key, object] : *news) {
        if (object) {
          changed[key] = objects[key] = WithKind(*object);
        } else if (const auto gone = objects.find(key); gone != objects.end()) {
          changed[key] = gone->second;
          objects.erase(gone);
        }
      }
      if (changed.empty()) {
        if (InRows() || Form() || objects.empty()) continue;
        if (screen_.clock() < looked_at + kLookAgain) continue;
        looked_at = screen_.clock();
        if (!screen_.redraws && !HasMovedInLine(objects)) continue;
      }
      if (options_.query == Query::kExplain && objects.empty()) {
        return Fail(absl::NotFoundError(fmt::format("gang {} is gone", asked_.name)));
      }
      if (const absl::Status shown = ShowChanged(objects, changed, first); !shown.ok()) {
        return Fail(shown);
      }
      looked_at = screen_.clock();
      first = false;
    }
    return kShown;
  }

  absl::Status ShowChanged(const std::map<std::string, json>& objects,
                           const std::map<std::string, json>& changed, bool first) {
    if (const std::optional<ObjectForm> form = Form()) {
      for (const auto& [key, object] : changed) {
        if (*form == ObjectForm::kYaml) screen_.out << "---\n";
        screen_.out << ObjectText(object, *form);
      }
    } else {
      const absl::StatusOr<std::string> text = InRows() ? Rows(changed, first) : Whole(objects);
      if (!text.ok()) return text.status();
      if (!InRows() && screen_.redraws) {
        screen_.out << kClear;
      } else if (!InRows() && !first) {
        screen_.out << "\n";
      }
      screen_.out << *text;
    }
    screen_.out << std::flush;
    return absl::OkStatus();
  }

  // Items of lists don't say what they are.
  json WithKind(json object) const {
    static const auto* const kinds =
        new std::map<std::string, const char*>{{"gangs", "Gang"},
                                               {"nodes", "Node"},
                                               {"localqueues", "LocalQueue"},
                                               {"clusterqueues", "ClusterQueue"}};
    object["apiVersion"] = "visibility.muster.dev/v1beta1";
    object["kind"] = kinds->at(asked_.resource);
    return object;
  }

  const QueryOptions& options_;
  kube::Transport& transport_;
  const Screen& screen_;
  const VisibilityClient client_;
  const Visible asked_;
  printers::TableForm form_;
  std::optional<printers::PlaceInLine> place_;  // that was shown last
  std::map<std::string, std::string> gangs_by_uid_;
  absl::Time gangs_asked_ = absl::InfinitePast();
};

}  // namespace

int RunQuery(const QueryOptions& options, kube::Transport& transport, const Screen& screen) {
  return Command(options, transport, screen).Run();
}

int RunQuery(QueryOptions options, const Screen& screen) {
  const auto fail = [&screen](const absl::Status& status) {
    screen.err << "muster: " << std::string(status.message()) << "\n";
    return kFailed;
  };
  absl::StatusOr<kube::ClientConfig> cluster =
      kube::LoadClientConfig(options.kubeconfig, {.context = options.context, .by_person = true});
  if (!cluster.ok()) return fail(cluster.status());
  absl::StatusOr<kube::Identity> identity = cluster->credentials->Fetch();
  if (!identity.ok()) {
    return fail(absl::UnauthenticatedError(
        fmt::format("can't log in: {}", std::string(identity.status().message()))));
  }
  cluster->credentials = kube::StartingWith(*std::move(identity), cluster->credentials);
  if (options.name_space.empty()) options.name_space = cluster->name_space;
  kube::CurlTransportOptions wire;
  wire.user_agent = "kubectl-muster";
  const auto transport = kube::CurlTransport::Create(*std::move(cluster), wire);
  if (!transport.ok()) return fail(transport.status());
  const int code = RunQuery(options, **transport, screen);
  (*transport)->Stop();
  return code;
}

}  // namespace muster::extender
