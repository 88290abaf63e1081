#include "kube/embedded/table_cells.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "kube/embedded/json_fields.h"
#include "kube/objects/time_text.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

// A name up to the next '.', '[' or the end; a backslash takes the next character as it is.
std::string PathName(std::string_view* path) {
  std::string name;
  while (!path->empty() && (*path)[0] != '.' && (*path)[0] != '[') {
    if ((*path)[0] == '\\' && path->size() > 1) path->remove_prefix(1);
    name += (*path)[0];
    path->remove_prefix(1);
  }
  return name;
}

// [0] or [?(@.field=="value")]; the text is what stands between the brackets.
const Json* Pick(const Json& list, std::string_view text) {
  if (!list.is_array()) return nullptr;
  if (!text.starts_with("?(@.")) {
    size_t index = 0;
    for (char c : text) {
      if (c < '0' || c > '9' || index > list.size()) return nullptr;
      index = index * 10 + static_cast<size_t>(c - '0');
    }
    return index < list.size() ? &list[index] : nullptr;
  }
  text.remove_prefix(4);
  size_t equal = text.find("==");
  size_t start = text.find_first_of("\"'");
  size_t end = text.find_last_of("\"'");
  if (equal == std::string_view::npos || start == std::string_view::npos || end <= start) {
    return nullptr;
  }
  std::string field(text.substr(0, equal));
  while (!field.empty() && field.back() == ' ') field.pop_back();
  std::string value(text.substr(start + 1, end - start - 1));
  for (const Json& entry : list) {
    if (StringAt(entry, {field.c_str()}) == value) return &entry;
  }
  return nullptr;
}

// The reason of a container that keeps the pod from running; "" if there is none.
std::string WaitingReason(const Json& pod) {
  for (const Json& status : ListAt(pod, {"status", "containerStatuses"})) {
    const std::string& waiting = StringAt(status, {"state", "waiting", "reason"});
    if (!waiting.empty()) return waiting;
    const std::string& terminated = StringAt(status, {"state", "terminated", "reason"});
    if (!terminated.empty()) return terminated;
  }
  return "";
}

}  // namespace

std::string AgeText(const std::string& timestamp, absl::Time now) {
  const auto then = ReadTimeText(timestamp);
  if (!then) return "<unknown>";
  int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(now - *then));
  int64_t minutes = seconds / 60;
  int64_t hours = minutes / 60;
  int64_t days = hours / 24;
  if (seconds < 120) return fmt::format("{}s", seconds);
  if (minutes < 10) {
    return seconds % 60 == 0 ? fmt::format("{}m", minutes)
                             : fmt::format("{}m{}s", minutes, seconds % 60);
  }
  if (minutes < 180) return fmt::format("{}m", minutes);
  if (hours < 8) {
    return minutes % 60 == 0 ? fmt::format("{}h", hours)
                             : fmt::format("{}h{}m", hours, minutes % 60);
  }
  if (hours < 48) return fmt::format("{}h", hours);
  if (days < 8) {
    return hours % 24 == 0 ? fmt::format("{}d", days) : fmt::format("{}d{}h", days, hours % 24);
  }
  return fmt::format("{}d", days);
}

std::string PodStatusText(const Json& pod) {
  if (!StringAt(pod, {"metadata", "deletionTimestamp"}).empty()) return "Terminating";
  const std::string& phase = StringAt(pod, {"status", "phase"});
  const std::string& reason = StringAt(pod, {"status", "reason"});
  if (!reason.empty()) return reason;
  for (const Json& condition : ListAt(pod, {"status", "conditions"})) {
    if (StringAt(condition, {"type"}) == "PodScheduled" &&
        StringAt(condition, {"reason"}) == "SchedulingGated") {
      return "SchedulingGated";
    }
  }
  if (phase == "Succeeded") return "Completed";
  std::string waiting = WaitingReason(pod);
  if (!waiting.empty()) return waiting;
  return phase == "Failed" ? "Error" : phase;
}

std::string ReadyContainers(const Json& pod) {
  int ready = 0;
  for (const Json& status : ListAt(pod, {"status", "containerStatuses"})) {
    ready += BoolAt(status, {"ready"}) ? 1 : 0;
  }
  return fmt::format("{}/{}", ready, ListAt(pod, {"spec", "containers"}).size());
}

int64_t Restarts(const Json& pod) {
  int64_t restarts = 0;
  for (const Json& status : ListAt(pod, {"status", "containerStatuses"})) {
    restarts += IntAt(status, {"restartCount"}).value_or(0);
  }
  return restarts;
}

std::string NodeStatusText(const Json& node) {
  std::string text = "Unknown";
  for (const Json& condition : ListAt(node, {"status", "conditions"})) {
    if (StringAt(condition, {"type"}) != "Ready") continue;
    text = StringAt(condition, {"status"}) == "True" ? "Ready" : "NotReady";
  }
  if (BoolAt(node, {"spec", "unschedulable"})) text += ",SchedulingDisabled";
  return text;
}

std::string DeviceText(const Json& node) {
  auto amount = [&](const char* list) {
    const Json* value = FieldAt(node, {"status", list, "nvidia.com/gpu"});
    if (value == nullptr) return std::string("0");
    return value->is_string() ? value->get<std::string>() : value->dump();
  };
  return amount("allocatable") + "/" + amount("capacity");
}

std::string EventTime(const Json& event) {
  const std::string* times[] = {
      &StringAt(event, {"series", "lastObservedTime"}), &StringAt(event, {"lastTimestamp"}),
      &StringAt(event, {"eventTime"}), &StringAt(event, {"metadata", "creationTimestamp"})};
  for (const std::string* time : times) {
    if (!time->empty()) return *time;
  }
  return "";
}

Json JsonPathValue(const Json& object, const std::string& path) {
  const Json* at = &object;
  std::string_view rest = path;
  while (!rest.empty() && at != nullptr) {
    if (rest[0] == '.') {
      rest.remove_prefix(1);
      std::string name = PathName(&rest);
      at = FieldAt(*at, {name.c_str()});
    } else if (rest[0] == '[') {
      size_t end = rest.find(']');
      if (end == std::string_view::npos) return nullptr;
      at = Pick(*at, rest.substr(1, end - 1));
      rest.remove_prefix(end + 1);
    } else {
      return nullptr;
    }
  }
  return at == nullptr ? Json() : *at;
}

}  // namespace muster::kube::embedded
