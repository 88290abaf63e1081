#include "worker/program/settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace muster::worker {
namespace {

// How many single-character edits turn one into the other.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string InYaml(const std::string& text) {
  YAML::Emitter emitter;
  emitter << text;
  return emitter.c_str();
}

// What a value of each type is called in messages.
template <typename T>
constexpr const char* kKind = "a whole number";
template <>
constexpr const char* kKind<std::string> = "text";
template <>
constexpr const char* kKind<std::vector<std::string>> = "a list such as a,b";
template <>
constexpr const char* kKind<bool> = "true or false";
template <>
constexpr const char* kKind<double> = "a number";
template <>
constexpr const char* kKind<absl::Duration> = "a time such as 90s or 10m";
template <typename T>
constexpr const char* kKind<std::optional<T>> = kKind<T>;

template <typename T>
bool Read(absl::string_view text, T* value) {
  return absl::SimpleAtoi(text, value);
}
template <>
bool Read(absl::string_view text, std::string* value) {
  *value = std::string(text);
  return true;
}
template <>
bool Read(absl::string_view text, std::vector<std::string>* value) {
  *value = absl::StrSplit(text, ',', absl::SkipEmpty());
  return true;
}
template <>
bool Read(absl::string_view text, bool* value) {
  return absl::SimpleAtob(text, value);
}
template <>
bool Read(absl::string_view text, double* value) {
  return absl::SimpleAtod(text, value);
}
template <>
bool Read(absl::string_view text, absl::Duration* value) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration()) return false;
  *value = duration;
  return true;
}
template <typename T>
bool Read(absl::string_view text, std::optional<T>* value) {
  T read = {};
  if (!Read(text, &read)) return false;
  *value = std::move(read);
  return true;
}

// As Read takes it; nothing for what isn't set.
template <typename T>
std::optional<std::string> Write(const T& value) {
  return absl::StrCat(value);
}
template <>
std::optional<std::string> Write(const std::string& value) {
  return InYaml(value);
}
template <>
std::optional<std::string> Write(const std::vector<std::string>& value) {
  return InYaml(absl::StrJoin(value, ","));
}
template <>
std::optional<std::string> Write(const bool& value) {
  return value ? "true" : "false";
}
template <>
std::optional<std::string> Write(const absl::Duration& value) {
  return absl::FormatDuration(value);
}
template <typename T>
std::optional<std::string> Write(const std::optional<T>& value) {
  return value.has_value() ? Write(*value) : std::nullopt;
}

}  // namespace

template <typename T>
void Settings::Add(absl::string_view name, absl::string_view help, T* value) {
  settings_.push_back({.name = std::string(name),
                       .help = std::string(help),
                       .kind = kKind<T>,
                       .is_flag = std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>,
                       .set = [value](absl::string_view text) { return Read(text, value); },
                       .get = [value] { return Write(*value); }});
}

template void Settings::Add(absl::string_view, absl::string_view, std::string*);
template void Settings::Add(absl::string_view, absl::string_view, std::vector<std::string>*);
template void Settings::Add(absl::string_view, absl::string_view, bool*);
template void Settings::Add(absl::string_view, absl::string_view, std::optional<bool>*);
template void Settings::Add(absl::string_view, absl::string_view, std::optional<double>*);
template void Settings::Add(absl::string_view, absl::string_view, int*);
template void Settings::Add(absl::string_view, absl::string_view, int64_t*);
template void Settings::Add(absl::string_view, absl::string_view, uint64_t*);
template void Settings::Add(absl::string_view, absl::string_view, double*);
template void Settings::Add(absl::string_view, absl::string_view, absl::Duration*);
template void Settings::Add(absl::string_view, absl::string_view, std::optional<std::string>*);
template void Settings::Add(absl::string_view, absl::string_view, std::optional<int>*);
template void Settings::Add(absl::string_view, absl::string_view, std::optional<int64_t>*);
template void Settings::Add(absl::string_view, absl::string_view, std::optional<absl::Duration>*);

absl::StatusOr<CommandLine> Settings::ReadCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  absl::Status error;
  std::vector<std::pair<std::string, std::string>> flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "--")) {
      line.positional.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (name == "print-config") {
      line.print_config = true;
      continue;
    }
    if (name == "help") {
      line.help = true;
      continue;
    }
    const Setting* setting = Find(name);
    if (setting == nullptr && name != "config") {
      error.Update(Unknown(name));
      continue;
    }
    if (equals != std::string::npos) {
      flags.emplace_back(name, argument.substr(equals + 1));
    } else if (setting != nullptr && setting->is_flag) {
      flags.emplace_back(name, "true");
    } else if (i + 1 < arguments.size()) {
      flags.emplace_back(name, arguments[++i]);
    } else {
      error.Update(absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value")));
    }
  }
  for (const auto& [name, value] : flags) {
    if (name != "config") continue;
    error.Update(ReadFile(value));
  }
  for (const auto& [name, value] : flags) {
    if (name == "config") continue;
    if (absl::Status status = Set(name, value); !status.ok()) {
      error.Update(absl::InvalidArgumentError(absl::StrCat("--", status.message())));
    }
  }
  if (!error.ok()) return error;
  return line;
}

absl::Status Settings::ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config=", path, " can't be read: ", std::strerror(errno)));
  }
  return ReadYaml(text.str(), path);
}

absl::Status Settings::ReadYaml(const std::string& text, absl::string_view origin) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ":", error.mark.line + 1, ": ", error.msg));
  }
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap())
    return absl::InvalidArgumentError(absl::StrCat(origin, ": not a map of settings"));
  for (const auto& entry : root) {
    const std::string where = absl::StrCat(origin, ":", entry.first.Mark().line + 1, ": ");
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
      return absl::InvalidArgumentError(absl::StrCat(where, "settings are lines of NAME: VALUE"));
    }
    absl::Status status = Set(entry.first.Scalar(), entry.second.Scalar());
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(where, status.message()));
  }
  return absl::OkStatus();
}

absl::Status Settings::Set(absl::string_view name, absl::string_view value) {
  const Setting* setting = Find(name);
  if (setting == nullptr) return Unknown(name);
  if (setting->set(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " isn't ", setting->kind));
}

const Settings::Setting* Settings::Find(absl::string_view name) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const Setting& each) { return each.name == name; });
  return found == settings_.end() ? nullptr : &*found;
}

absl::Status Settings::Unknown(absl::string_view name) const {
  const auto nearest =
      std::min_element(settings_.begin(), settings_.end(), [&](const auto& a, const auto& b) {
        return Distance(name, a.name) < Distance(name, b.name);
      });
  const bool near = nearest != settings_.end() && Distance(name, nearest->name) <= 3;
  return absl::InvalidArgumentError(
      absl::StrCat("there is no setting ", name,
                   near ? absl::StrCat("; did you mean ", nearest->name, "?") : ""));
}

std::string Settings::Print() const {
  std::string text;
  for (const Setting& setting : settings_) {
    const std::optional<std::string> value = setting.get();
    if (value.has_value()) {
      absl::StrAppend(&text, setting.name, ": ", *value, "\n");
    } else {
      absl::StrAppend(&text, "# ", setting.name, ": not set\n");
    }
  }
  return text;
}

std::string Settings::Help() const {
  std::string text;
  for (const Setting& setting : settings_) {
    absl::StrAppend(&text, "  --", setting.name, ": ", setting.help, " (",
                    setting.get().value_or("not set"), ")\n");
  }
  return text;
}

}  // namespace muster::worker
