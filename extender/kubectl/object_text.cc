#include "extender/kubectl/object_text.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "fmt/format.h"

namespace muster::extender {
namespace {

using nlohmann::json;

// Whether YAML reads it as this text without quotes; in doubt it doesn't.
bool IsPlain(std::string_view text) {
  constexpr std::array<std::string_view, 9> kOther = {"true", "false", "null", "yes", "no",
                                                      "on",   "off",   "y",    "n"};
  if (text.empty() || !std::isalpha(static_cast<unsigned char>(text.front()))) return false;
  std::string lower;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::isalnum(byte) && std::string_view("._-/").find(c) == std::string_view::npos) {
      return false;
    }
    lower += static_cast<char>(std::tolower(byte));
  }
  return std::ranges::find(kOther, lower) == kOther.end();
}

void Emit(const json& value, YAML::Emitter& out) {
  switch (value.type()) {
    case json::value_t::object:
      if (value.empty()) out << YAML::Flow;
      out << YAML::BeginMap;
      for (const auto& [key, each] : value.items()) {
        out << YAML::Key;
        Emit(json(key), out);
        out << YAML::Value;
        Emit(each, out);
      }
      out << YAML::EndMap;
      return;
    case json::value_t::array:
      if (value.empty()) out << YAML::Flow;
      out << YAML::BeginSeq;
      for (const json& each : value) Emit(each, out);
      out << YAML::EndSeq;
      return;
    case json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      if (!IsPlain(text)) out << YAML::DoubleQuoted;
      out << text;
      return;
    }
    case json::value_t::null:
      out << YAML::LowerNull << YAML::Null;
      return;
    default:
      out << value.dump();
  }
}

std::string Dump(const json& object) {
  return object.dump(4, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string NameOf(const json& object) {
  std::string kind = object.value("kind", "");
  std::ranges::transform(kind, kind.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string version = object.value("apiVersion", "");
  return fmt::format("{}.{}/{}\n", kind, version.substr(0, version.find('/')),
                     object["metadata"].value("name", ""));
}

}  // namespace

std::string ObjectText(const json& object, ObjectForm form) {
  switch (form) {
    case ObjectForm::kJson:
      return Dump(object);
    case ObjectForm::kYaml: {
      YAML::Emitter out;
      Emit(object, out);
      return std::string(out.c_str()) + "\n";
    }
    case ObjectForm::kName:
      break;
  }
  if (!object.contains("items")) return NameOf(object);
  std::string names;
  for (const json& item : object["items"]) names += NameOf(item);
  return names;
}

}  // namespace muster::extender
