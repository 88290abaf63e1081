#include "http/router.h"

namespace muster::http {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool Unescape(std::string_view text, bool plus_is_space, std::string* out) {
  out->clear();
  out->reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out->push_back(' ');
      continue;
    }
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool ParseQuery(std::string_view text, Target* target) {
  if (text.empty()) return true;
  for (std::string_view pair : Split(text, '&')) {
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    std::pair<std::string, std::string> entry;
    if (!Unescape(pair.substr(0, equals), true, &entry.first)) return false;
    if (equals != std::string_view::npos &&
        !Unescape(pair.substr(equals + 1), true, &entry.second)) {
      return false;
    }
    target->query.push_back(std::move(entry));
  }
  return true;
}

bool IsCapture(const std::string& segment) { return segment.starts_with('{'); }

}  // namespace

const std::string* Request::Query(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<Target> ParseTarget(std::string_view target) {
  if (!target.starts_with('/')) return std::nullopt;
  Target parsed;
  const size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  if (question != std::string_view::npos && !ParseQuery(target.substr(question + 1), &parsed)) {
    return std::nullopt;
  }
  if (!Unescape(path, false, &parsed.path)) return std::nullopt;
  if (path.size() > 1) {
    for (std::string_view segment : Split(path.substr(1), '/')) {
      if (!Unescape(segment, false, &parsed.segments.emplace_back())) return std::nullopt;
    }
  }
  return parsed;
}

Router::Router(std::vector<Route> routes) {
  for (Route& route : routes) {
    std::vector<std::string> segments = ParseTarget(route.pattern).value().segments;
    entries_.push_back({std::move(route), std::move(segments)});
  }
}

Router::Match Router::Find(std::string_view method, const Target& target) const {
  Match match;
  for (const Entry& entry : entries_) {
    if (entry.segments.size() != target.segments.size()) continue;
    std::vector<std::string> captures;
    bool same = true;
    for (size_t i = 0; same && i < entry.segments.size(); ++i) {
      if (IsCapture(entry.segments[i])) {
        captures.push_back(target.segments[i]);
        same = !target.segments[i].empty();
      } else {
        same = entry.segments[i] == target.segments[i];
      }
    }
    if (!same) continue;
    if (entry.route.method == method) {
      match.route = &entry.route;
      match.captures = std::move(captures);
      match.allow.clear();
      return match;
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += entry.route.method;
  }
  return match;
}

}  // namespace muster::http
