#include "kube/embedded/http_translation.h"

namespace muster::kube::embedded {
namespace {

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<std::string> Unescaped(std::string_view text, bool plus_is_blank) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_blank) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      std::optional<int> high = HexDigit(text[i + 1]);
      std::optional<int> low = HexDigit(text[i + 2]);
      if (!high || !low) return std::nullopt;
      out += static_cast<char>(*high * 16 + *low);
      i += 2;
    }
  }
  return out;
}

}  // namespace

std::optional<Method> MethodNamed(std::string_view name) {
  if (name == "GET") return Method::kGet;
  if (name == "POST") return Method::kPost;
  if (name == "PUT") return Method::kPut;
  if (name == "PATCH") return Method::kPatch;
  if (name == "DELETE") return Method::kDelete;
  return std::nullopt;
}

bool ParseTarget(std::string_view target, Request* request) {
  if (!target.starts_with('/')) return false;
  size_t question = target.find('?');
  std::optional<std::string> path = Unescaped(target.substr(0, question), false);
  if (!path) return false;
  request->path = *std::move(path);
  std::string_view rest =
      question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
  while (!rest.empty()) {
    size_t end = rest.find('&');
    std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (pair.empty()) continue;
    size_t equal = pair.find('=');
    std::optional<std::string> key = Unescaped(pair.substr(0, equal), true);
    std::optional<std::string> value =
        equal == std::string_view::npos ? "" : Unescaped(pair.substr(equal + 1), true);
    if (!key || !value) return false;
    request->query.emplace_back(*std::move(key), *std::move(value));
  }
  return true;
}

}  // namespace muster::kube::embedded
