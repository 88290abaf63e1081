#include "lint/requirement.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "lint/text.h"

namespace muster::lint {
namespace {

using Operator = Requirement::Operator;

constexpr std::array<std::pair<std::string_view, Operator>, 8> kOperators = {
    {{"In", Operator::kIn},
     {"NotIn", Operator::kNotIn},
     {"Exists", Operator::kExists},
     {"DoesNotExist", Operator::kDoesNotExist},
     {"Gt", Operator::kGt},
     {"Lt", Operator::kLt},
     {"Gte", Operator::kGte},
     {"Lte", Operator::kLte}}};

bool Compares(Operator op) {
  return op == Operator::kGt || op == Operator::kLt || op == Operator::kGte || op == Operator::kLte;
}

}  // namespace

bool ParseOperator(std::string_view text, Operator* op) {
  const auto* const known =
      std::ranges::find(kOperators, text, &std::pair<std::string_view, Operator>::first);
  if (known == kOperators.end()) return false;
  *op = known->second;
  return true;
}

bool Requirement::Accepts(std::string_view value) const {
  switch (op) {
    case Operator::kIn:
      return std::ranges::find(values, value) != values.end();
    case Operator::kNotIn:
      return std::ranges::find(values, value) == values.end();
    case Operator::kExists:
      return true;
    case Operator::kDoesNotExist:
      return false;
    default:
      break;
  }
  int64_t number = 0;
  int64_t bound = 0;
  if (values.size() != 1 || !ParseInt(value, &number) || !ParseInt(values.front(), &bound)) {
    return false;
  }
  switch (op) {
    case Operator::kGt:
      return number > bound;
    case Operator::kLt:
      return number < bound;
    case Operator::kGte:
      return number >= bound;
    default:
      return number <= bound;
  }
}

bool Requirement::AcceptsAbsence() const {
  return op == Operator::kNotIn || op == Operator::kDoesNotExist;
}

bool Requirement::MeetsWith(const Requirement& other) const {
  if (AcceptsAbsence() && other.AcceptsAbsence()) return true;
  if (op == Operator::kDoesNotExist || other.op == Operator::kDoesNotExist) return false;
  if (op == Operator::kIn) {
    return std::ranges::any_of(values, [&](const std::string& v) { return other.Accepts(v); });
  }
  if (other.op == Operator::kIn) return other.MeetsWith(*this);
  // Two bounds may leave nothing between them; that isn't worth telling.
  return true;
}

std::string Requirement::ToString() const {
  const auto* const name =
      std::ranges::find(kOperators, op, &std::pair<std::string_view, Operator>::second);
  if (op == Operator::kExists || op == Operator::kDoesNotExist) {
    return Concat(key, " ", name->first);
  }
  if (Compares(op)) return fmt::format("{} {} {}", key, name->first, fmt::join(values, ", "));
  if (op == Operator::kIn && values.size() == 1) return Concat(key, ": ", values.front());
  return fmt::format("{} {} [{}]", key, name->first, fmt::join(values, ", "));
}

}  // namespace muster::lint
