#include "extender/admission/testing/https_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <memory>

namespace muster::extender {

absl::StatusOr<HttpsAnswer> HttpsPost(const std::string& server_name, uint16_t port,
                                      const std::string& ca_bundle, const std::string& path,
                                      const std::string& body) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  HttpsAnswer answer;
  constexpr auto kAppend = [](char* data, size_t size, size_t count, void* target) -> size_t {
    static_cast<std::string*>(target)->append(data, size * count);
    return size * count;
  };
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> resolve(
      curl_slist_append(nullptr, fmt::format("{}:{}:127.0.0.1", server_name, port).c_str()),
      curl_slist_free_all);
  curl_blob bundle = {const_cast<char*>(ca_bundle.data()), ca_bundle.size(), CURL_BLOB_COPY};
  char error[CURL_ERROR_SIZE] = {};
  curl_easy_setopt(curl.get(), CURLOPT_URL,
                   fmt::format("https://{}:{}{}", server_name, port, path).c_str());
  curl_easy_setopt(curl.get(), CURLOPT_RESOLVE, resolve.get());
  curl_easy_setopt(curl.get(), CURLOPT_CAINFO_BLOB, &bundle);
  curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, 20L);
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, +kAppend);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer.body);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, error);
  if (const CURLcode code = curl_easy_perform(curl.get()); code != CURLE_OK) {
    return absl::UnavailableError(
        fmt::format("{}: {}", curl_easy_strerror(code), static_cast<const char*>(error)));
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

}  // namespace muster::extender
