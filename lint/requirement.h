// Conditions on labels, as node selectors, node affinity and NodePools state them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster::lint {

struct Requirement {
  enum class Operator { kIn, kNotIn, kExists, kDoesNotExist, kGt, kLt, kGte, kLte };
  std::string key;
  Operator op = Operator::kIn;
  std::vector<std::string> values;
  int line = 0;

  // A label with this value meets it.
  bool Accepts(std::string_view value) const;
  // An object without the label meets it.
  bool AcceptsAbsence() const;
  // Some value, or the absence of the label, meets both. True for what can't be told.
  bool MeetsWith(const Requirement& other) const;
  // "topology.kubernetes.io/zone In [a, b]"
  std::string ToString() const;
};

// "In", "Gt"; false if there is no such operator.
bool ParseOperator(std::string_view text, Requirement::Operator* op);

}  // namespace muster::lint
