// A caller over TLS for tests, who trusts one authority and calls the server "localhost".
#pragma once

#include <curl/curl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace muster::extender {

struct HttpsAsked {
  uint16_t port = 0;
  std::string authority;  // PEM
  std::string path;
  std::vector<std::string> headers = {};  // "Name: value"
  // His own, PEM; empty: none.
  std::string certificate = {};
  std::string key = {};
  long limit_ms = 10'000;
  // Called with each line of the answer's body, without its end, as it comes; false ends the
  // answer.
  std::function<bool(const std::string& line)> on_line = {};
};

struct HttpsGot {
  int status = 0;  // 0: no answer
  std::string header;
  std::string body;
  std::string error;
};

struct Lines {
  std::string* body;
  const std::function<bool(const std::string& line)>* on_line;
  size_t told = 0;
};

inline size_t AppendLines(char* data, size_t size, size_t count, void* out) {
  auto* const lines = static_cast<Lines*>(out);
  lines->body->append(data, size * count);
  while (*lines->on_line) {
    const size_t end = lines->body->find('\n', lines->told);
    if (end == std::string::npos) break;
    const std::string line = lines->body->substr(lines->told, end - lines->told);
    lines->told = end + 1;
    if (!(*lines->on_line)(line)) return CURL_WRITEFUNC_ERROR;
  }
  return size * count;
}

inline size_t AppendToText(char* data, size_t size, size_t count, void* out) {
  static_cast<std::string*>(out)->append(data, size * count);
  return size * count;
}

// On a connection of its own.
inline HttpsGot HttpsGet(const HttpsAsked& asked) {
  HttpsGot got;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;
  const auto list = [](const std::vector<std::string>& texts) {
    curl_slist* made = nullptr;
    for (const std::string& text : texts) made = curl_slist_append(made, text.c_str());
    return List(made, curl_slist_free_all);
  };
  const auto blob = [](const std::string& text) {
    return curl_blob{const_cast<char*>(text.data()), text.size(), CURL_BLOB_NOCOPY};
  };
  const std::string url = fmt::format("https://localhost:{}{}", asked.port, asked.path);
  const List resolve = list({fmt::format("localhost:{}:127.0.0.1", asked.port)});
  const List headers = list(asked.headers);
  curl_blob authority = blob(asked.authority);
  curl_blob certificate = blob(asked.certificate);
  curl_blob key = blob(asked.key);
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_RESOLVE, resolve.get());
  curl_easy_setopt(curl.get(), CURLOPT_CAINFO_BLOB, &authority);
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  if (!asked.certificate.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_SSLCERTTYPE, "PEM");
    curl_easy_setopt(curl.get(), CURLOPT_SSLCERT_BLOB, &certificate);
    curl_easy_setopt(curl.get(), CURLOPT_SSLKEY_BLOB, &key);
  }
  Lines lines{.body = &got.body, .on_line = &asked.on_line};
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, AppendLines);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &lines);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, AppendToText);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, &got.header);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, asked.limit_ms);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  const CURLcode code = curl_easy_perform(curl.get());
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  got.status = static_cast<int>(status);
  if (code != CURLE_OK) got.error = curl_easy_strerror(code);
  return got;
}

}  // namespace muster::extender
