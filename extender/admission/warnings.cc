#include "extender/admission/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "extender/admission/admission_review.h"
#include "kube/objects/json_value.h"

namespace muster::extender {
namespace {

// Of both the object and the one before it.
constexpr size_t kMaxLintedReviewBytes = 2 * lint::kMaxObjectBytes + (16 << 10);
// "and 12 more; muster lint shows them all"
constexpr size_t kRestCharacters = 64;

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t CharactersOf(std::string_view text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, IsContinuation));
}

// A warning is a header's value: the API server drops one with control characters in it.
std::string OneLine(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return text;
}

std::string CutOff(std::string text) {
  constexpr std::string_view kMark = "...";
  if (CharactersOf(text) <= kMaxWarningCharacters) return text;
  size_t end = 0;
  for (size_t characters = 0; end < text.size(); ++end) {
    if (IsContinuation(text[end])) continue;
    if (++characters > kMaxWarningCharacters - kMark.size()) break;
  }
  return text.substr(0, end).append(kMark);
}

std::vector<std::string> TextsOf(const lint::Finding& finding) {
  std::string whole =
      OneLine(fmt::format("{}: {}; {}", finding.rule, finding.message, finding.fix));
  if (CharactersOf(whole) <= kMaxWarningCharacters) return {std::move(whole)};
  return {CutOff(OneLine(fmt::format("{}: {}", finding.rule, finding.message))),
          CutOff(OneLine(fmt::format("{}, what to do: {}", finding.rule, finding.fix)))};
}

// The object of a creation or an update; empty for what else there may be.
std::string ObjectIn(const kube::JsonValue& request) {
  const std::string_view operation = request.Get("operation").View();
  const kube::JsonValue object = request.Get("object");
  if ((operation != "CREATE" && operation != "UPDATE") ||
      !request.Get("subResource").View().empty() || !object.present()) {
    return "";
  }
  return object.Json();
}

}  // namespace

std::vector<std::string> WarningTexts(const std::vector<lint::Finding>& findings) {
  std::vector<std::string> texts;
  size_t left = kMaxWarningsCharacters - kRestCharacters;
  for (size_t i = 0; i < findings.size(); ++i) {
    std::vector<std::string> more = TextsOf(findings[i]);
    std::erase_if(more, [&](const std::string& text) {
      return std::ranges::find(texts, text) != texts.end();
    });
    size_t characters = 0;
    for (const std::string& text : more) characters += CharactersOf(text);
    if (characters > left) {
      texts.push_back(fmt::format("and {} more; muster lint shows them all", findings.size() - i));
      return texts;
    }
    left -= characters;
    std::ranges::move(more, std::back_inserter(texts));
  }
  return texts;
}

absl::StatusOr<std::string> ReviewForWarnings(std::string_view review, const ObjectLinter& linter) {
  if (absl::Status status = CheckReviewSize(review); !status.ok()) return status;
  std::string uid;
  std::string name_space;
  std::string object;
  {
    kube::JsonReader reader(review);
    const kube::JsonValue request = OpenReview(&reader);
    uid = request.Get("uid").String();
    name_space = request.Get("namespace").String();
    if (review.size() <= kMaxLintedReviewBytes) object = ObjectIn(request);
    if (absl::Status fault = FaultIn(reader); !fault.ok()) return fault;
  }
  nlohmann::json response = nlohmann::json::object();
  if (!object.empty()) {
    std::vector<std::string> warnings = WarningTexts(linter(name_space, object).findings);
    if (!warnings.empty()) response["warnings"] = std::move(warnings);
  }
  return AllowedReview(uid, std::move(response));
}

http::Route WarningsRoute(ObjectLinter linter) {
  http::Handler handler = [linter = std::move(linter)](const http::Request& request,
                                                       const http::Responder& responder) {
    absl::StatusOr<std::string> answer = ReviewForWarnings(request.body, linter);
    if (answer.ok()) return responder.Send({.body = *std::move(answer)});
    responder.Send({.status = 400,
                    .content_type = "text/plain",
                    .body = std::string(answer.status().message())});
  };
  return {"POST", std::string(kWarningsPath), std::move(handler)};
}

}  // namespace muster::extender
