// kube-scheduler's calls: the bodies of filter, prioritize, bind and preempt.
#include <memory>
#include <string>

#include "extender/extender_protocol.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

using coscheduling::FilterAnswer;

void RequireJson(const std::string& text) {
  simdjson::dom::parser parser;
  Require(parser.parse(text).error() == simdjson::SUCCESS, "an answer is JSON");
}

void CheckFilter(const std::string& body, const std::shared_ptr<const FilterAnswer>& answer) {
  const auto reply = extender::AnswerFilter(body, [&](std::string_view) { return answer; });
  if (!reply.ok()) {
    RequireSayable(MessageOf(reply.status()));
    return RequireJson(extender::EncodeError(std::string(reply.status().message())));
  }
  RequireJson(reply->body);
  Require(answer != nullptr || reply->outcome == extender::FilterReply::Outcome::kUnknownPod,
          "a pod that isn't known passes nowhere");
}

void CheckFilters(const std::string& body) {
  using Kind = FilterAnswer::Kind;
  CheckFilter(body, nullptr);
  CheckFilter(body, std::make_shared<const FilterAnswer>(
                        FilterAnswer{Kind::kUnresolvable, "", "2 of 4 members have room"}));
  CheckFilter(body, std::make_shared<const FilterAnswer>(FilterAnswer{Kind::kHold, "", "waits"}));
  CheckFilter(body, std::make_shared<const FilterAnswer>(FilterAnswer{Kind::kPlanned, "n-1", ""}));
}

void CheckOthers(const std::string& body) {
  if (const auto answer = extender::AnswerPrioritize(body); answer.ok()) RequireJson(*answer);
  if (const auto answer = extender::AnswerPreemption(body); answer.ok()) RequireJson(*answer);
  const auto bind = extender::DecodeBind(body);
  if (!bind.ok()) return RequireSayable(MessageOf(bind.status()));
  Require(!bind->pod_uid.empty() && !bind->node.empty(), "a binding names its pod and node");
  RequireJson(extender::EncodeBindResult(bind->node));
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  const std::string body(input);
  muster::fuzz::CheckFilters(body);
  muster::fuzz::CheckOthers(body);
}
