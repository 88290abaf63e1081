// The node names of a filter call, as kube-scheduler writes them.
//
// Go's encoding/json keeps the order of ExtenderArgs' fields (Pod, Nodes, NodeNames), so the names,
// thousands of them, are the end of the document: {"Pod":{...},"Nodes":null,"NodeNames":["a","b"]}.
// Read where they lie they cost a fraction of what a JSON parser makes of them. Whatever is written
// in another way is left to the parser.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace muster::extender {

struct SplitNodeNames {
  std::string rest;        // the document without NodeNames: JSON exactly if the document was
  std::string_view names;  // into the document: what stands between the brackets
  size_t quotes = 0;       // in names
};

// nullopt if the document doesn't end in such a list of plain text: printable ASCII without
// escapes.
std::optional<SplitNodeNames> Split(std::string_view document);

// Calls add(name) for each, in order. False, perhaps after some calls, if the names aren't a list
// of strings with nothing else between them.
template <typename Add>
bool ForEachNodeName(const SplitNodeNames& split, Add add) {
  const std::string_view names = split.names;
  if (names.empty()) return true;
  const auto ends_at = [&](size_t quote) {
    return quote < names.size() && names[quote] == '"' &&
           (quote + 1 == names.size() || names[quote + 1] == ',');
  };
  // Names are often as long as the one before; what that passes over is seen in the end.
  size_t length = 0;
  size_t quotes = 0;
  for (size_t at = 0;; ++at) {
    if (at == names.size() || names[at] != '"') return false;
    ++at;
    if (!ends_at(at + length)) {
      const size_t quote = names.find('"', at);
      if (!ends_at(quote)) return false;
      length = quote - at;
    }
    add(names.substr(at, length));
    quotes += 2;
    at += length + 1;
    if (at == names.size()) return quotes == split.quotes;
  }
}

}  // namespace muster::extender
