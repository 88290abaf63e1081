// The API server's questions to the webhooks: the gate's, and that of the warnings.
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "extender/admission/warnings.h"
#include "extender/admission/webhook.h"
#include "lint/known_policies.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

using nlohmann::json;

// NodePools and a PodGroup that an object can be at odds with.
const lint::KnownPolicies& Known() {
  static const auto* known = [] {
    auto* policies = new lint::KnownPolicies;
    policies->Upsert(lint::PolicyKind::kNodePool, "gpu", R"({
      "apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"gpu"},
      "spec":{"limits":{"nvidia.com/gpu":"16"},"template":{"spec":{
        "taints":[{"key":"nvidia.com/gpu","effect":"NoSchedule"}],
        "requirements":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["z1"]},
          {"key":"karpenter.k8s.aws/instance-family","operator":"In","values":["g6","p4d"]}]}}}})");
    policies->Upsert(lint::PolicyKind::kPodGroup, "team/train", R"({
      "apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup",
      "metadata":{"name":"train","namespace":"team"},"spec":{"minMember":4}})");
    return policies;
  }();
  return *known;
}

lint::ObjectLint Check(std::string_view, std::string_view object) {
  return lint::LintObject(object, "coscheduling", *Known().All(), cluster::InstanceTypes::BuiltIn(),
                          [](std::string_view name_space, std::string_view name) {
                            return Known().MinMember(name_space, name);
                          });
}

json ResponseOf(const absl::StatusOr<std::string>& answer) {
  const json review = json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  Require(review.is_object(), "an answer is JSON");
  const json& response = review.at("response");
  Require(response.at("uid") != "", "an answer names the question");
  return response;
}

void CheckGate(std::string_view input) {
  const auto answer = extender::ReviewAdmission(input, {.guards_queues = true});
  if (!answer.ok()) return RequireSayable(MessageOf(answer.status()));
  const json response = ResponseOf(answer);
  if (response.at("allowed") == false) {
    Require(!response.contains("patch"), "what is refused isn't changed");
    return RequireSayable(response.at("status").at("message").get<std::string>());
  }
  if (!response.contains("patch")) return;
  std::string patch;
  Require(absl::Base64Unescape(response.at("patch").get<std::string>(), &patch) &&
              json::parse(patch, nullptr, false).is_array(),
          "a patch is a JSON patch");
}

void CheckWarnings(std::string_view input) {
  const auto answer = extender::ReviewForWarnings(input, Check);
  if (!answer.ok()) return RequireSayable(MessageOf(answer.status()));
  size_t bytes = 0;
  const json response = ResponseOf(answer);
  Require(response.at("allowed") == true, "warnings refuse nothing");
  for (const json& warning : response.value("warnings", json::array())) {
    RequireSayable(warning.get<std::string>());
    bytes += warning.get<std::string>().size();
  }
  // A character has four bytes at most.
  Require(bytes <= 4 * extender::kMaxWarningsCharacters, "warnings keep to their limit");
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  muster::fuzz::CheckGate(input);
  muster::fuzz::CheckWarnings(input);
}
