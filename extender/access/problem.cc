#include "extender/access/problem.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace muster::extender {

std::string_view TitleOf(int status) {
  static const std::map<int, std::string_view> kTitles = {{400, "Bad Request"},
                                                          {401, "Unauthorized"},
                                                          {403, "Forbidden"},
                                                          {404, "Not Found"},
                                                          {405, "Method Not Allowed"},
                                                          {410, "Gone"},
                                                          {413, "Content Too Large"},
                                                          {429, "Too Many Requests"},
                                                          {431, "Request Header Fields Too Large"},
                                                          {500, "Internal Server Error"},
                                                          {503, "Service Unavailable"}};
  const auto title = kTitles.find(status);
  return title == kTitles.end() ? "Error" : title->second;
}

http::Response Problem(int status, const std::string& detail) {
  using nlohmann::json;
  const json body = {{"type", "about:blank"},
                     {"title", std::string(TitleOf(status))},
                     {"status", status},
                     {"detail", detail}};
  return {.status = status,
          .content_type = "application/problem+json",
          .body = body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

}  // namespace muster::extender
