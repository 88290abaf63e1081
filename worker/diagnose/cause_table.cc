#include "worker/diagnose/cause_table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

template <typename Value, size_t N>
using Names = std::array<std::pair<std::string_view, Value>, N>;

constexpr Names<Role, 5> kRoles = {{{"origin", Role::kOrigin},
                                    {"reaction", Role::kReaction},
                                    {"echo", Role::kEcho},
                                    {"result", Role::kResult},
                                    {"warning", Role::kWarning}}};
constexpr Names<Fault, 5> kFaults = {{{"node", Fault::kNode},
                                      {"network", Fault::kNetwork},
                                      {"program", Fault::kProgram},
                                      {"config", Fault::kConfig},
                                      {"data", Fault::kData}}};
constexpr Names<RowKind, 13> kRowKinds = {{{"shows", RowKind::kShows},
                                           {"raised", RowKind::kRaised},
                                           {"wraps", RowKind::kWraps},
                                           {"data", RowKind::kData},
                                           {"checkpoint", RowKind::kCheckpoint},
                                           {"sharing", RowKind::kSharing},
                                           {"warned", RowKind::kWarned},
                                           {"info", RowKind::kInfo},
                                           {"event", RowKind::kEvent},
                                           {"result", RowKind::kResult},
                                           {"xid", RowKind::kXid},
                                           {"until", RowKind::kUntil},
                                           {"despite", RowKind::kDespite}}};

template <typename Value, size_t N>
std::optional<Value> Named(const Names<Value, N>& names, std::string_view name) {
  for (const auto& [known, value] : names) {
    if (known == name) return value;
  }
  return std::nullopt;
}

// Takes "key: value" into the last cause; false if the value isn't one.
bool TakeField(std::string_view key, std::string_view value, int line, CauseTable* table) {
  Cause& cause = table->causes.back();
  if (key == "role") {
    const auto role = Named(kRoles, value);
    cause.role = role.value_or(Role::kOrigin);
    return role.has_value();
  }
  if (key == "fault") {
    const auto fault = Named(kFaults, value);
    cause.fault = fault.value_or(Fault::kConfig);
    return fault.has_value();
  }
  if (key == "exit") {
    cause.exit_code = static_cast<int>(LeadingNumber(value).value_or(0));
    return cause.exit_code > 0 && cause.exit_code < 256;
  }
  if (key == "says") {
    cause.sentence = value;
    return !value.ends_with('.');
  }
  if (key == "fix") {
    cause.fix = value;
    return value.ends_with('.');
  }
  if (key == "refines") {
    cause.refines = value;
    return value != cause.name;
  }
  const auto kind = Named(kRowKinds, key);
  if (kind) table->rows.push_back({cause.id, *kind, value, line});
  return kind.has_value();
}

bool IsComplete(const Cause& cause) {
  return cause.exit_code > 0 && !cause.sentence.empty() && !cause.fix.empty();
}

}  // namespace

absl::StatusOr<CauseTable> ParseCauses(std::string_view text) {
  CauseTable table;
  const auto wrong = [](int line, std::string_view what) {
    return absl::InvalidArgumentError(Concat("line ", line, ": ", what));
  };
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with('[')) {
      const std::string_view name = TextAfter(line, "[", "]");
      if (std::ranges::find(table.causes, name, &Cause::name) != table.causes.end()) {
        return wrong(number, "this cause is there already");
      }
      if (!table.causes.empty() && !IsComplete(table.causes.back())) {
        return wrong(number, "the cause before has no exit code, sentence or fix");
      }
      Cause cause;
      cause.id = static_cast<CauseId>(table.causes.size());
      cause.name = name;
      table.causes.push_back(cause);
      continue;
    }
    const size_t colon = line.find(": ");
    if (table.causes.empty() || colon == std::string_view::npos || colon + 2 == line.size()) {
      return wrong(number, "neither a cause's name nor \"key: value\"");
    }
    if (!TakeField(line.substr(0, colon), line.substr(colon + 2), number, &table)) {
      return wrong(number, "no such key, or not one of its values");
    }
  }
  if (table.causes.empty() || !IsComplete(table.causes.back())) {
    return absl::InvalidArgumentError("the last cause has no exit code, sentence or fix");
  }
  for (const Cause& cause : table.causes) {
    if (!cause.refines.empty() &&
        std::ranges::find(table.causes, cause.refines, &Cause::name) == table.causes.end()) {
      return absl::InvalidArgumentError(
          Concat(cause.name, " refines ", cause.refines, ", which is no cause"));
    }
  }
  return table;
}

const CauseTable& BuiltInCauses() {
  static const CauseTable* const kTable = [] {
    absl::StatusOr<CauseTable> table = ParseCauses(CausesText());
    if (!table.ok() || table->causes.size() != static_cast<size_t>(CauseId::kCount)) {
      std::fputs("worker/diagnose/causes.txt is wrong\n", stderr);  // its own test says where
      std::abort();
    }
    return new CauseTable(*std::move(table));
  }();
  return *kTable;
}

}  // namespace muster::worker
