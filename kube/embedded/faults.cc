#include "kube/embedded/faults.h"

#include <utility>

#include "kube/embedded/api_error.h"

namespace muster::kube::embedded {
namespace {

const char* UsualReason(int status) {
  switch (status) {
    case 400:
      return "BadRequest";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "NotFound";
    case 409:
      return "Conflict";
    case 410:
      return "Expired";
    case 422:
      return "Invalid";
    case 429:
      return "TooManyRequests";
    case 500:
      return "InternalError";
    case 503:
      return "ServiceUnavailable";
    case 504:
      return "Timeout";
    default:
      return "Unknown";
  }
}

Response AnswerOf(const FaultRule& rule) {
  ApiError error;
  error.code = rule.status;
  error.reason = rule.reason.empty() ? UsualReason(rule.status) : rule.reason;
  error.message = rule.message.empty() ? "injected fault" : rule.message;
  error.retry_after = rule.retry_after;
  return {rule.status, error.ToJson(), rule.retry_after};
}

FaultDecision DecisionOf(const FaultRule& rule) {
  FaultDecision decision;
  switch (rule.action) {
    case FaultRule::Action::kAnswer:
      decision.answer = AnswerOf(rule);
      break;
    case FaultRule::Action::kRefuse:
      decision.refuse = true;
      break;
    case FaultRule::Action::kDropAnswer:
      decision.drop_answer = true;
      break;
    case FaultRule::Action::kDelay:
      decision.delay = rule.delay;
      break;
    case FaultRule::Action::kCutStream:
      decision.cut = FaultDecision::Cut{rule.after_items, false};
      break;
    case FaultRule::Action::kExpireStream:
      decision.cut = FaultDecision::Cut{rule.after_items, true};
      break;
  }
  return decision;
}

bool ConcernsStreamsOnly(const FaultRule& rule) {
  return rule.action == FaultRule::Action::kCutStream ||
         rule.action == FaultRule::Action::kExpireStream;
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  // On a mismatch the last star takes one character more.
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Faults::Faults(uint64_t seed) : random_(seed) {}

int Faults::Add(FaultRule rule) {
  std::lock_guard lock(mutex_);
  rules_[next_rule_].rule = std::move(rule);
  return next_rule_++;
}

void Faults::Remove(int rule) {
  std::lock_guard lock(mutex_);
  rules_.erase(rule);
}

void Faults::Clear() {
  std::lock_guard lock(mutex_);
  rules_.clear();
}

size_t Faults::Struck(int rule) const {
  std::lock_guard lock(mutex_);
  auto it = rules_.find(rule);
  return it == rules_.end() ? 0 : it->second.struck;
}

bool Faults::Strikes(Entry& entry, const Request& request, bool is_watch) {
  const FaultRule& rule = entry.rule;
  if (rule.method && *rule.method != request.method) return false;
  if (rule.target == FaultRule::Target::kWatches && !is_watch) return false;
  if (rule.target == FaultRule::Target::kRequests && is_watch) return false;
  if (ConcernsStreamsOnly(rule) && !is_watch) return false;
  if (!MatchesPattern(rule.path, request.path)) return false;
  if (entry.seen++ < rule.skip) return false;
  if (rule.count && entry.struck >= *rule.count) return false;
  if (rule.probability < 1.0) {
    double draw = static_cast<double>(random_() >> 11) * 0x1.0p-53;
    if (draw >= rule.probability) return false;
  }
  ++entry.struck;
  return true;
}

FaultDecision Faults::Decide(const Request& request, bool is_watch) {
  std::lock_guard lock(mutex_);
  for (auto& [number, entry] : rules_) {
    if (Strikes(entry, request, is_watch)) return DecisionOf(entry.rule);
  }
  return {};
}

std::string ExpiredLine() {
  return R"({"type":"ERROR","object":)" +
         Expired("injected fault: too old resource version").ToJson() + "}";
}

}  // namespace muster::kube::embedded
