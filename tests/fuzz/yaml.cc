// YAML as manifests, scenarios and the configuration are written in.
#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "yaml/tree.h"

namespace muster::fuzz {
namespace {

using yaml::YamlFile;
using yaml::YamlNode;

int LinesOf(std::string_view text) { return static_cast<int>(std::ranges::count(text, '\n')) + 1; }

bool Same(const YamlNode& a, const YamlNode& b) {
  return a.kind == b.kind && a.text == b.text &&
         std::ranges::equal(a.items, b.items,
                            [](const YamlNode* x, const YamlNode* y) { return Same(*x, *y); }) &&
         std::ranges::equal(a.fields, b.fields, [](const auto& x, const auto& y) {
           return x.key == y.key && Same(*x.value, *y.value);
         });
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  const YamlFile file = muster::yaml::ParseYaml(input);
  const int lines = LinesOf(input);
  if (file.error) {
    RequireSayable(file.error->message);
    Require(file.error->line >= 1 && file.error->line <= lines, "an error is inside the file");
  }
  for (const YamlNode& node : file.nodes) {
    Require(node.line >= 1 && node.line <= lines, "a value is inside the file");
  }
  for (const muster::yaml::YamlValue& document : file.documents) {
    // Aliases may make a small text's document a large one.
    if (document.node()->values > 10'000) continue;
    const std::string emitted = muster::yaml::EmitYaml(document);
    const YamlFile again = muster::yaml::ParseYaml(emitted);
    Require(!again.error && again.documents.size() == 1, "what is emitted is one document");
    Require(Same(*document.node(), *again.documents.front().node()),
            "what is emitted reads back the same");
  }
}
