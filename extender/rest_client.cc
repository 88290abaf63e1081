#include "extender/rest_client.h"

#include <curl/curl.h>
#include <google/protobuf/util/json_util.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

constexpr long kTimeoutMs = 10'000;

size_t Append(char* data, size_t size, size_t count, void* out) {
  static_cast<std::string*>(out)->append(data, size * count);
  return size * count;
}

std::string Escape(CURL* curl, const std::string& text) {
  const std::unique_ptr<char, decltype(&curl_free)> escaped(
      curl_easy_escape(curl, text.c_str(), static_cast<int>(text.size())), curl_free);
  return escaped.get();
}

// What an application/problem+json says; the body itself if it is none.
std::string DetailOf(const std::string& body) {
  const auto problem = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  const bool is_one =
      problem.is_object() && problem.contains("detail") && problem["detail"].is_string();
  return is_one ? problem["detail"].get<std::string>() : body;
}

template <typename Message>
absl::StatusOr<Message> Parse(const absl::StatusOr<std::string>& body) {
  if (!body.ok()) return body.status();
  Message message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*body, &message, options);
  if (!parsed.ok()) return absl::InternalError("the answer can't be read: " + parsed.ToString());
  return message;
}

}  // namespace

RestClient::RestClient(std::string server, std::string token)
    : server_(std::move(server)), token_(std::move(token)) {
  if (!absl::StrContains(server_, "://")) server_ = "http://" + server_;
}

absl::StatusOr<std::string> RestClient::Get(const std::string& path) const {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  std::string body;
  const std::string url = server_ + path;
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr, curl_slist_free_all);
  if (!token_.empty()) {
    headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + token_).c_str()));
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  }
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) {
    return absl::UnavailableError(fmt::format("{}: {}", url, curl_easy_strerror(code)));
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status == 200) return body;
  const std::string why = fmt::format("{}: {}", url, DetailOf(body));
  if (status == 404) return absl::NotFoundError(why);
  if (status == 401) return absl::UnauthenticatedError(why);
  if (status == 403) return absl::PermissionDeniedError(why);
  return absl::InternalError(fmt::format("{} (HTTP {})", why, status));
}

absl::StatusOr<v1::Gang> RestClient::GetGang(const std::string& name_space,
                                             const std::string& name) const {
  return Parse<v1::Gang>(
      Get(fmt::format("/v1/gangs/{}/{}", Escape(nullptr, name_space), Escape(nullptr, name))));
}

absl::StatusOr<v1::ListGangsResponse> RestClient::ListGangs(const std::string& name_space) const {
  const std::string query = name_space.empty() ? "" : "?namespace=" + Escape(nullptr, name_space);
  return Parse<v1::ListGangsResponse>(Get("/v1/gangs" + query));
}

absl::StatusOr<v1::ListNodesResponse> RestClient::ListNodes() const {
  return Parse<v1::ListNodesResponse>(Get("/v1/nodes"));
}

absl::StatusOr<v1::ListQueuesResponse> RestClient::ListQueues() const {
  return Parse<v1::ListQueuesResponse>(Get("/v1/queues"));
}

}  // namespace muster::extender
