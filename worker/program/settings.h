// A program's settings: one table, filled in from a YAML file and from flags, which win.
//
//   Settings settings;
//   settings.Add("steps", "how many steps to train", &config.steps);
//   absl::StatusOr<CommandLine> line = settings.ReadCommandLine({"--config=job.yaml",
//   "--steps=9"});
//
// "--name=value" and "--name value" are the same; a flag "--name" alone is for bool settings, true.
// In the file each setting is a key of one map.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::worker {

struct CommandLine {
  bool print_config = false;            // --print-config
  bool help = false;                    // --help
  std::vector<std::string> positional;  // what is no flag
};

class Settings {
 public:
  // The variable holds the default, and must outlive this. Names are in kebab case. T is
  // std::string, bool, int, int64_t, uint64_t, double, absl::Duration ("90s", "10m", "1h30m"; not
  // negative), std::vector<std::string> ("a,b"), or std::optional of one of these.
  template <typename T>
  void Add(absl::string_view name, absl::string_view help, T* value);

  // Reads --config's file, if there is one, and then the other flags. InvalidArgument names the
  // flag or the file's line; a name that nobody added is refused, with the nearest one that exists.
  // The first such error is returned, and what makes sense is set even so.
  absl::StatusOr<CommandLine> ReadCommandLine(const std::vector<std::string>& arguments);

  // `origin` is for messages. Keys that were read before stay if this fails.
  absl::Status ReadYaml(const std::string& text, absl::string_view origin);

  // All settings as they are now, as YAML that ReadYaml() takes; those without a value as comments.
  std::string Print() const;
  // One setting a line: flag, help, default.
  std::string Help() const;

 private:
  struct Setting {
    std::string name;
    std::string help;
    std::string kind;  // "a number", for messages
    bool is_flag = false;
    std::function<bool(absl::string_view)> set;
    std::function<std::optional<std::string>()> get;
  };

  absl::Status Set(absl::string_view name, absl::string_view value);
  const Setting* Find(absl::string_view name) const;
  absl::Status Unknown(absl::string_view name) const;
  absl::Status ReadFile(const std::string& path);

  std::vector<Setting> settings_;
};

}  // namespace muster::worker
