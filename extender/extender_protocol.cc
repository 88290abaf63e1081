#include "extender/extender_protocol.h"

#include <simdjson.h>

#include "extender/json_text.h"
#include "extender/node_name_list.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// A parser that had to grow beyond this for one document (thousands of whole Node objects) is let
// go afterwards.
constexpr size_t kKeptCapacity = 4 << 20;

absl::Status Missing(std::string_view field) {
  return absl::InvalidArgumentError(fmt::format("{}: missing", field));
}
absl::Status WrongType(std::string_view field, std::string_view want) {
  return absl::InvalidArgumentError(fmt::format("{}: want {}", field, want));
}

// The thread's parser, for one document.
class Document {
 public:
  Document() : parser_(ThreadParser()) {}
  ~Document() {
    if (parser_ && parser_->capacity() > kKeptCapacity) parser_.reset();
  }
  absl::StatusOr<object> Parse(const std::string& body) {
    if (!parser_) parser_ = std::make_unique<simdjson::dom::parser>();
    element root;
    if (auto error = parser_->parse(body).get(root)) {
      return absl::InvalidArgumentError(
          fmt::format("body is not JSON: {}", simdjson::error_message(error)));
    }
    object fields;
    if (root.get(fields)) return WrongType("body", "an object");
    return fields;
  }

 private:
  static std::unique_ptr<simdjson::dom::parser>& ThreadParser() {
    thread_local std::unique_ptr<simdjson::dom::parser> parser;
    return parser;
  }
  std::unique_ptr<simdjson::dom::parser>& parser_;
};

// nullopt if absent or null.
std::optional<element> Find(object fields, std::string_view key) {
  element value;
  if (fields[key].get(value) || value.is_null()) return std::nullopt;
  return value;
}

absl::StatusOr<object> GetObject(object fields, std::string_view key, std::string_view path) {
  const std::optional<element> value = Find(fields, key);
  if (!value) return Missing(path);
  object result;
  if (value->get(result)) return WrongType(path, "an object");
  return result;
}

absl::StatusOr<std::string_view> GetString(object fields, std::string_view key,
                                           std::string_view path) {
  const std::optional<element> value = Find(fields, key);
  if (!value) return Missing(path);
  std::string_view text;
  if (value->get(text)) return WrongType(path, "a string");
  if (text.empty()) return absl::InvalidArgumentError(fmt::format("{}: empty", path));
  return text;
}

// ExtenderArgs' pod; views into the document.
struct PodArgs {
  std::string_view uid;
  std::string_view name;
  std::string_view name_space;
  std::string_view nominated_node;
};

// ExtenderArgs' nodes, of which there are thousands: read in one pass that keeps what an answer may
// need. Views into the document.
struct Offer {
  bool as_objects = false;
  size_t count = 0;
  std::string_view first;   // name
  std::string_view wanted;  // the node asked for, if it is offered
  std::optional<element> wanted_object;

  // True if the node is the one asked for, for the first time.
  bool Add(std::string_view name, std::string_view want) {
    if (count++ == 0) first = name;
    if (name != want || !wanted.empty()) return false;
    wanted = name;
    return true;
  }
};

absl::Status ReadPod(object body, PodArgs* args) {
  const absl::StatusOr<object> pod = GetObject(body, "Pod", "Pod");
  if (!pod.ok()) return pod.status();
  const absl::StatusOr<object> metadata = GetObject(*pod, "metadata", "Pod.metadata");
  if (!metadata.ok()) return metadata.status();
  const auto read = [&](std::string_view key, std::string_view path, std::string_view* out) {
    const absl::StatusOr<std::string_view> value = GetString(*metadata, key, path);
    if (value.ok()) *out = *value;
    return value.status();
  };
  if (auto status = read("uid", "Pod.metadata.uid", &args->uid); !status.ok()) return status;
  if (auto status = read("name", "Pod.metadata.name", &args->name); !status.ok()) return status;
  if (auto status = read("namespace", "Pod.metadata.namespace", &args->name_space); !status.ok()) {
    return status;
  }
  element nominated;
  if ((*pod)["status"]["nominatedNodeName"].get(nominated) == simdjson::SUCCESS &&
      nominated.is_string()) {
    args->nominated_node = nominated.get_string().value();
  }
  return absl::OkStatus();
}

absl::Status ReadNodeNames(element value, std::string_view want, Offer* offer) {
  array names;
  if (value.get(names)) return WrongType("NodeNames", "an array");
  for (element name : names) {
    std::string_view text;
    if (name.get(text)) return WrongType(fmt::format("NodeNames[{}]", offer->count), "a string");
    offer->Add(text, want);
  }
  return absl::OkStatus();
}

absl::Status ReadNodeObjects(element value, std::string_view want, Offer* offer) {
  object list;
  if (value.get(list)) return WrongType("Nodes", "an object");
  const std::optional<element> items = Find(list, "items");
  if (!items) return absl::OkStatus();
  array nodes;
  if (items->get(nodes)) return WrongType("Nodes.items", "an array");
  offer->as_objects = true;
  for (element node : nodes) {
    std::string_view name;
    if (node["metadata"]["name"].get(name)) {
      return WrongType(fmt::format("Nodes.items[{}].metadata.name", offer->count), "a string");
    }
    if (offer->Add(name, want)) offer->wanted_object = node;
  }
  return absl::OkStatus();
}

// `want` is the node that the caller asks about, or empty.
absl::StatusOr<Offer> ReadOffer(object body, std::string_view want) {
  const std::optional<element> names = Find(body, "NodeNames");
  const std::optional<element> nodes = Find(body, "Nodes");
  if (!names && !nodes) return Missing("NodeNames and Nodes");
  Offer offer;
  absl::Status status =
      names ? ReadNodeNames(*names, want, &offer) : ReadNodeObjects(*nodes, want, &offer);
  if (!status.ok()) return status;
  return offer;
}

void AppendField(std::string_view key, std::string_view json, std::string* out) {
  out->append(out->empty() ? "{\"" : ",\"");
  out->append(key);
  out->append("\":");
  out->append(json);
}

std::string Quoted(std::string_view text) {
  std::string quoted;
  AppendJsonString(text, &quoted);
  return quoted;
}

// ExtenderFilterResult with every field, as Go writes it; of the nodes, the wanted one or none.
std::string EncodeResult(const Offer& offer, bool passes, std::string_view unresolvable,
                         std::string_view error) {
  std::string nodes = "null";
  std::string names = "null";
  if (error.empty() && offer.as_objects) {
    nodes = passes ? fmt::format("{{\"items\":[{}]}}", simdjson::minify(*offer.wanted_object))
                   : "{\"items\":[]}";
  } else if (error.empty()) {
    names = passes ? fmt::format("[{}]", Quoted(offer.wanted)) : "[]";
  }
  std::string body;
  AppendField("Nodes", nodes, &body);
  AppendField("NodeNames", names, &body);
  AppendField("FailedNodes", "null", &body);
  AppendField("FailedAndUnresolvableNodes",
              unresolvable.empty() || offer.count == 0
                  ? "null"
                  : fmt::format("{{{}:{}}}", Quoted(offer.first), Quoted(unresolvable)),
              &body);
  AppendField("Error", Quoted(error), &body);
  body.push_back('}');
  return body;
}

std::string EncodeFilterError(const Offer& offer, std::string_view error) {
  return EncodeResult(offer, /*passes=*/false, "", error);
}

FilterReply AnswerPlanned(const PodArgs& pod, const Offer& offer, const std::string& node) {
  FilterReply reply;
  reply.pod_uid = pod.uid;
  if (!offer.wanted.empty()) {
    reply.outcome = FilterReply::Outcome::kPlanned;
    reply.body = EncodeResult(offer, /*passes=*/true, "", "");
    return reply;
  }
  // kube-scheduler tries a nominated node alone before it offers the others (schedule_one.go,
  // evaluateNominatedNode): that says nothing about the planned one.
  if (offer.count == 1 && offer.first == pod.nominated_node) {
    reply.outcome = FilterReply::Outcome::kHeld;
    reply.body = EncodeFilterError(
        offer,
        fmt::format("planned node {} is not the nominated node {}", node, pod.nominated_node));
    return reply;
  }
  reply.outcome = FilterReply::Outcome::kRefused;
  reply.refused_node = node;
  reply.body = EncodeFilterError(
      offer, fmt::format("planned node {} is not among the {} offered; a new plan is being made",
                         node, offer.count));
  return reply;
}

// One filter call. The pod's answer is looked up on the way: it says which node to look for.
struct FilterCall {
  PodArgs pod;
  std::shared_ptr<const coscheduling::FilterAnswer> answer;  // null: the pod is unknown
  Offer offer;

  bool planned() const {
    return answer && answer->kind == coscheduling::FilterAnswer::Kind::kPlanned;
  }
  std::string_view want() const { return planned() ? std::string_view(answer->node) : ""; }

  absl::Status Read(const std::string& body, Document* document, const FindAnswer& find) {
    const absl::StatusOr<object> root = ReadPodAndAnswer(body, document, find);
    if (!root.ok()) return root.status();
    absl::StatusOr<Offer> nodes = ReadOffer(*root, want());
    if (nodes.ok()) offer = *nodes;
    return nodes.status();
  }
  // An error: the call must be read as a whole.
  absl::Status ReadSplit(const SplitNodeNames& split, Document* document, const FindAnswer& find) {
    const absl::StatusOr<object> root = ReadPodAndAnswer(split.rest, document, find);
    if (!root.ok()) return root.status();
    const std::string_view wanted = want();
    const bool list =
        ForEachNodeName(split, [&](std::string_view name) { offer.Add(name, wanted); });
    return list ? absl::OkStatus() : WrongType("NodeNames", "an array of strings");
  }

 private:
  // Returns the document's fields.
  absl::StatusOr<object> ReadPodAndAnswer(const std::string& text, Document* document,
                                          const FindAnswer& find) {
    absl::StatusOr<object> root = document->Parse(text);
    if (!root.ok()) return root.status();
    if (absl::Status status = ReadPod(*root, &pod); !status.ok()) return status;
    answer = find(pod.uid);
    return root;
  }
};

}  // namespace

absl::StatusOr<FilterReply> AnswerFilter(const std::string& body, const FindAnswer& find) {
  Document document;
  FilterCall call;
  const std::optional<SplitNodeNames> split = Split(body);
  if (!split || !call.ReadSplit(*split, &document, find).ok()) {
    call = {};
    if (absl::Status status = call.Read(body, &document, find); !status.ok()) return status;
  }
  const auto& [pod, answer, offer] = call;
  if (call.planned()) {
    FilterReply planned = AnswerPlanned(pod, offer, answer->node);
    if (split && planned.outcome == FilterReply::Outcome::kRefused) {
      ForEachNodeName(*split, [&](std::string_view name) { planned.offered.emplace_back(name); });
    }
    return planned;
  }
  FilterReply reply;
  reply.pod_uid = pod.uid;
  if (!answer) {
    reply.outcome = FilterReply::Outcome::kUnknownPod;
    reply.body =
        EncodeFilterError(offer, fmt::format("pod {}/{} (uid {}) is not known to muster yet",
                                             pod.name_space, pod.name, pod.uid));
    return reply;
  }
  if (answer->kind == coscheduling::FilterAnswer::Kind::kUnresolvable) {
    reply.outcome = FilterReply::Outcome::kUnresolvable;
    reply.body = EncodeResult(offer, /*passes=*/false, answer->message, "");
    return reply;
  }
  reply.outcome = FilterReply::Outcome::kHeld;
  reply.body = EncodeFilterError(
      offer, answer->message.empty() ? "held by muster" : std::string_view(answer->message));
  return reply;
}

absl::StatusOr<std::string> AnswerPrioritize(const std::string& body) {
  Document document;
  const absl::StatusOr<object> root = document.Parse(body);
  if (!root.ok()) return root.status();
  PodArgs pod;
  if (absl::Status status = ReadPod(*root, &pod); !status.ok()) return status;
  const absl::StatusOr<Offer> offer = ReadOffer(*root, "");
  if (!offer.ok()) return offer.status();
  return "[]";
}

absl::StatusOr<std::string> AnswerPreemption(const std::string& body) {
  Document document;
  const absl::StatusOr<object> root = document.Parse(body);
  if (!root.ok()) return root.status();
  PodArgs pod;
  if (absl::Status status = ReadPod(*root, &pod); !status.ok()) return status;
  for (std::string_view key : {"NodeNameToVictims", "NodeNameToMetaVictims"}) {
    const std::optional<element> victims = Find(*root, key);
    if (victims && !victims->is_object()) return WrongType(key, "an object");
  }
  return "{\"NodeNameToMetaVictims\":{}}";
}

absl::StatusOr<BindCall> DecodeBind(const std::string& body) {
  Document document;
  const absl::StatusOr<object> root = document.Parse(body);
  if (!root.ok()) return root.status();
  BindCall call;
  for (const auto& [key, out] :
       {std::pair{"PodName", &call.pod_name}, std::pair{"PodNamespace", &call.pod_namespace},
        std::pair{"PodUID", &call.pod_uid}, std::pair{"Node", &call.node}}) {
    const absl::StatusOr<std::string_view> value = GetString(*root, key, key);
    if (!value.ok()) return value.status();
    *out = *value;
  }
  return call;
}

std::string EncodeBindResult(std::string_view error) {
  return fmt::format("{{\"Error\":{}}}", Quoted(error));
}

std::string EncodeError(std::string_view message) {
  return fmt::format("{{\"error\":{}}}", Quoted(message));
}

}  // namespace muster::extender
