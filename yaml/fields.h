// Reading YAML mappings field by field, so that every mistake is told with its line and name.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"

namespace muster::yaml {

// Thrown by what is below, caught where a file is read; never leaves the function that reads one.
struct FieldError {
  int line;
  std::string message;
};

[[noreturn]] void FailAt(const YAML::Node& node, const std::string& message);

// One mapping whose fields are taken one by one; what Finish finds left over is unknown.
class Fields {
 public:
  // `what` begins each message: "nodePools", "engine".
  Fields(const YAML::Node& node, std::string what);

  YAML::Node Take(const std::string& key);
  void Require(const std::string& key) const;
  void ReadDuration(const std::string& key, absl::Duration* out);
  void Finish() const;

  // An absent field leaves *out as it is.
  template <typename T>
  void Read(const std::string& key, T* out) {
    const YAML::Node field = Take(key);
    if (!field) return;
    try {
      *out = field.as<T>();
    } catch (const YAML::Exception&) {
      FailAt(field, Name(key) + ": wrong type");
    }
  }

  template <typename T>
  void Read(const std::string& key, std::optional<T>* out) {
    if (!Take(key)) return;
    Read(key, &out->emplace());
  }

  template <typename Enum>
  void ReadEnum(const std::string& key, bool (*parse)(const std::string&, Enum*),
                std::optional<Enum>* out) {
    std::string text;
    Read(key, &text);
    if (text.empty()) return;
    if (!parse(text, &out->emplace())) FailAt(Take(key), Name(key) + ": unknown " + text);
  }

 private:
  std::string Name(const std::string& key) const { return what_ + "." + key; }

  YAML::Node node_;
  std::string what_;
  std::set<std::string> known_;
};

}  // namespace muster::yaml
