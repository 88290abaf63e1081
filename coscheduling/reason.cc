#include "coscheduling/reason.h"

#include <cctype>

namespace muster::coscheduling {

std::string CamelCase(const std::string& enum_name) {
  std::string out;
  bool upper = true;
  for (char c : enum_name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out.push_back(static_cast<char>(upper ? c : std::tolower(static_cast<unsigned char>(c))));
    upper = false;
  }
  return out;
}

}  // namespace muster::coscheduling
