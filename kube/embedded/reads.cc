// Get and list.
#include <fmt/format.h>

#include <charconv>

#include "absl/strings/escaping.h"
#include "kube/embedded/json_fields.h"
#include "kube/embedded/server_impl.h"
#include "kube/embedded/table.h"

namespace muster::kube::embedded {
namespace {

std::optional<uint64_t> ParseNumber(const std::string& text) {
  uint64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Where a chunked list goes on: at which revision, after which key.
struct ContinueToken {
  uint64_t revision = 0;
  std::string after;
};

std::string EncodeToken(const ContinueToken& token) {
  std::string text;
  absl::WebSafeBase64Escape(Json{{"rv", token.revision}, {"after", token.after}}.dump(), &text);
  return text;
}

ApiResult<ContinueToken> DecodeToken(const std::string& text) {
  std::string json;
  ApiError invalid = BadRequest("continue key is not valid: " + Quoted(text));
  if (!absl::WebSafeBase64Unescape(text, &json)) return invalid;
  Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!IntAt(parsed, {"rv"}) || StringAt(parsed, {"after"}).empty()) return invalid;
  return ContinueToken{static_cast<uint64_t>(*IntAt(parsed, {"rv"})), StringAt(parsed, {"after"})};
}

ApiError ExpiredToken() {
  return Expired(
      "The provided continue parameter is too old to display a consistent list result. You must "
      "start a new list without the continue parameter.");
}

struct Page {
  std::vector<ObjectPtr> objects;
  uint64_t revision = 0;
  std::string last_key;
  bool more = false;
};

std::string ListMetadata(const Page& page) {
  Json metadata = {{"resourceVersion", std::to_string(page.revision)}};
  if (page.more) metadata["continue"] = EncodeToken({page.revision, page.last_key});
  return metadata.dump();
}

std::string ListBody(const ResourceType& type, const Page& page) {
  size_t bytes = 256;
  for (const ObjectPtr& object : page.objects) bytes += object->bytes().size() + 1;
  std::string body;
  body.reserve(bytes);
  body += fmt::format(R"({{"apiVersion":"{}","kind":"{}","metadata":{},"items":[)",
                      type.ApiVersion(), type.ListKind(), ListMetadata(page));
  for (const ObjectPtr& object : page.objects) {
    if (body.back() == '}') body += ',';
    body += object->bytes();
  }
  body += "]}";
  return body;
}

}  // namespace

bool Selection::Matches(const Json& object) const {
  return MatchesFields(fields, object) && MatchesLabels(labels, object);
}

ApiResult<Selection> ServerImpl::SelectionOf(const Call& call) {
  Selection selection;
  if (!call.path.name_space.empty()) selection.prefix = call.path.name_space + "/";
  ApiResult<LabelSelector> labels = ParseLabelSelector(call.Query("labelSelector"));
  if (!labels.ok()) return labels.error();
  selection.labels = *std::move(labels);
  ApiResult<std::vector<FieldRequirement>> fields =
      ParseFieldSelector(*call.type, call.Query("fieldSelector"));
  if (!fields.ok()) return fields.error();
  selection.fields = *std::move(fields);
  // A watch of one object by path or by the selector of its name is the same.
  if (!call.path.name.empty()) selection.fields.push_back({"metadata.name", call.path.name, true});
  return selection;
}

// k8s.io/apimachinery/pkg/apis/meta/internalversion/validation v0.34
MaybeError ServerImpl::CheckListOptions(const Call& call, bool watch) {
  const std::string& match = call.Query("resourceVersionMatch");
  const std::string& version = call.Query("resourceVersion");
  const bool initial_events = call.HasQuery("sendInitialEvents");
  const std::string& timeout = call.Query("timeoutSeconds");
  if (!timeout.empty() && !ParseNumber(timeout)) {
    return BadRequest(fmt::format("strconv.ParseInt: parsing {}: invalid syntax", Quoted(timeout)));
  }
  FieldErrors errors;
  if (!version.empty() && !ParseNumber(version)) {
    errors.Invalid("resourceVersion", Quoted(version), "must be a number");
  }
  if (!call.Query("limit").empty() && !ParseNumber(call.Query("limit"))) {
    errors.Invalid("limit", Quoted(call.Query("limit")), "must be a number, at least 0");
  }
  if (watch && initial_events && match != "NotOlderThan") {
    errors.Forbidden("resourceVersionMatch",
                     "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
  }
  if (watch && !initial_events && !match.empty()) {
    errors.Forbidden("resourceVersionMatch",
                     "resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
                     "provided");
  }
  if (!watch && !match.empty()) {
    if (version.empty()) {
      errors.Forbidden("resourceVersionMatch",
                       "resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if (!call.Query("continue").empty()) {
      errors.Forbidden("resourceVersionMatch",
                       "resourceVersionMatch is forbidden when continue is provided");
    }
    if (match != "Exact" && match != "NotOlderThan") {
      errors.NotSupported("resourceVersionMatch", Quoted(match), {"Exact", "NotOlderThan", ""});
    }
    if (match == "Exact" && version == "0") {
      errors.Forbidden("resourceVersionMatch",
                       "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
    }
  }
  if (!watch && initial_events) {
    errors.Forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
  }
  if (errors.empty()) return std::nullopt;
  ResourceType options;
  options.group = "meta.k8s.io";
  options.kind = "ListOptions";
  return InvalidObject(options, "", errors);
}

ApiResult<Answer> ServerImpl::Get(Call* call) {
  ObjectPtr object;
  uint64_t asked = ParseNumber(call->Query("resourceVersion")).value_or(0);
  {
    std::lock_guard lock(mutex_);
    if (asked > store_.revision()) return TooLargeResourceVersion(asked, store_.revision());
    object = store_.Find(call->type->index, call->Key());
  }
  if (!object) return NotFound(*call->type, call->path.name);
  return ObjectAnswer(*call, 200, *object);
}

ApiResult<Answer> ServerImpl::List(Call* call) {
  if (MaybeError error = CheckListOptions(*call, /*watch=*/false)) return *error;
  ApiResult<Selection> selection = SelectionOf(*call);
  if (!selection.ok()) return selection.error();
  size_t limit = ParseNumber(call->Query("limit")).value_or(0);
  uint64_t version = ParseNumber(call->Query("resourceVersion")).value_or(0);
  bool exact = call->Query("resourceVersionMatch") == "Exact" ||
               (call->Query("resourceVersionMatch").empty() && limit > 0 && version > 0);
  std::string after;
  if (!call->Query("continue").empty()) {
    ApiResult<ContinueToken> token = DecodeToken(call->Query("continue"));
    if (!token.ok()) return token.error();
    version = token->revision;
    after = token->after;
    exact = true;
  }
  Page page;
  auto visit = [&](const std::string& key, const ObjectPtr& object) {
    if (!selection->Matches(object->value())) return true;
    if (limit > 0 && page.objects.size() == limit) {
      page.more = true;
      return false;
    }
    page.objects.push_back(object);
    page.last_key = key;
    return true;
  };
  {
    std::lock_guard lock(mutex_);
    if (version > store_.revision()) return TooLargeResourceVersion(version, store_.revision());
    page.revision = exact ? version : store_.revision();
    if (!exact) {
      store_.Scan(call->type->index, selection->prefix, after, visit);
    } else if (!store_.ScanAt(call->type->index, version, selection->prefix, after, visit)) {
      if (!after.empty()) return ExpiredToken();
      return Expired(fmt::format("The resourceVersion for the provided list is too old: {} ({})",
                                 version, store_.CompactedRevision(call->type->index)));
    }
  }
  Answer answer;
  answer.response.status = 200;
  if (WantsTable(call->headers.accept)) {
    answer.response.body = ListTable(*call->type, page.objects, now(),
                                     {call->Query("includeObject"), ListMetadata(page), true});
  } else {
    answer.response.body = ListBody(*call->type, page);
  }
  return answer;
}

}  // namespace muster::kube::embedded
