#include "worker/diagnose/kubernetes_line.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>

#include "absl/algorithm/container.h"
#include "nlohmann/json.hpp"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

// Whether "Warning  NodeNotReady  pod/train-3 ..." names an object after the reason.
bool NamesObject(std::string_view event) {
  event = StripBlanks(event.substr(event.find(' ')));
  event = StripBlanks(event.substr(std::min(event.find(' '), event.size())));
  const std::string_view object = event.substr(0, event.find(' '));
  constexpr std::array<std::string_view, 5> kKinds = {"pod/", "node/", "job/", "pytorchjob/",
                                                      "jobset/"};
  return absl::c_any_of(kKinds, [&](std::string_view kind) { return object.starts_with(kind); });
}

// What `line`, of an object that kubectl describes, tells of; empty if of nothing that matters.
std::string_view StatusKey(std::string_view line) {
  constexpr std::array<std::string_view, 5> kKeys = {
      "Reason:", "Message:", "Status:", "State:", "Exit Code:"};
  line = StripBlanks(line);
  const auto* key =
      absl::c_find_if(kKeys, [&](std::string_view word) { return line.starts_with(word); });
  return key == kKeys.end() ? std::string_view() : *key;
}

// A text of a record's, under the first of several keys that it has; empty if it has none.
std::string TextIn(const nlohmann::json& record, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (record.contains(key) && record[key].is_string()) return record[key].get<std::string>();
  }
  return "";
}

// "POD/CONTAINER" where a collector's record names a pod, or nothing.
std::string PodIn(const nlohmann::json& record) {
  const nlohmann::json* place = &record;
  for (const char* part : {"kubernetes", "labels", "pod"}) {
    if (place->contains(part) && (*place)[part].is_object()) place = &(*place)[part];
  }
  std::string pod = TextIn(*place, {"pod_name", "pod", "kubernetes_pod_name", "name"});
  const std::string container = TextIn(*place, {"container_name", "container"});
  if (pod.empty() || (place == &record && container.empty() && !record.contains("pod_name"))) {
    return "";
  }
  return Concat(pod, "/", container.empty() ? "pod" : container);
}

}  // namespace

bool IsEvent(std::string_view line) {
  // The columns of kubectl before 1.8.
  if (line.find("\tWarning\t") != line.npos || line.find("\tNormal\t") != line.npos) return true;
  for (int word = 0; word < 5; ++word) {
    const size_t blanks = std::min(line.find_first_not_of(" \t"), line.size());
    line.remove_prefix(blanks);
    const bool column = word == 0 || (blanks >= 2 && word < 3);
    const bool type = line.starts_with("Normal ") || line.starts_with("Warning ");
    if (type && (column || NamesObject(line))) return true;
    line.remove_prefix(std::min(line.find(' '), line.size()));
  }
  return false;
}

bool IsListedPod(std::string_view line) {
  for (int word = 0; word < 3; ++word) {
    const size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    line.remove_prefix(blanks);
    const std::string_view ready = line.substr(0, line.find(' '));
    const size_t slash = ready.find('/');
    // Columns stand apart; "epoch 1/8 loss=2" has none.
    const bool column = word > 0 && blanks > 1 && line.substr(ready.size()).starts_with("  ");
    if (column && slash != std::string_view::npos && ready.size() <= 7 &&
        ready.find_first_not_of("0123456789/") == std::string_view::npos) {
      return true;
    }
    line.remove_prefix(ready.size());
  }
  return false;
}

bool IsStatusLine(std::string_view line) {
  return !StatusKey(line).empty() || line.find("kubelet") != std::string_view::npos ||
         IsListedPod(line);
}

bool IsStateLine(std::string_view line) {
  const std::string_view key = StatusKey(line);
  const std::string_view after = StripBlanks(line).substr(key.size());
  return (!key.empty() && after.starts_with("  ")) || IsListedPod(line);
}

bool IsEndOfContainer(std::string_view line) {
  return StripBlanks(line).starts_with("Finished:  ");
}

std::string_view ListedObject(std::string_view line) {
  const bool pod = IsListedPod(line);
  line = StripBlanks(line);
  // Those that it describes say no object.
  if (line.starts_with("Normal ") || line.starts_with("Warning ")) return {};
  std::string_view before;
  for (int word = 0; word < 6 && !line.empty(); ++word) {
    const std::string_view here = line.substr(0, line.find(' '));
    const size_t slash = here.find('/');
    const std::string_view kind = here.substr(0, slash);
    if (pod && slash != here.npos) return before;
    if (slash != here.npos && kind == "node") return here;
    if (slash != here.npos && (kind == "pod" || kind.ends_with("job"))) {
      return here.substr(slash + 1);
    }
    before = here;
    line = StripBlanks(line.substr(here.size()));
  }
  return {};
}

std::string FamilyOf(std::string_view name) { return std::string(name.substr(0, name.find('-'))); }

std::string WithoutControlPlane(std::string_view event) {
  constexpr std::string_view kList = "nodes are available: ";
  constexpr std::string_view kTaint = " taint {node-role.kubernetes.io/";
  constexpr std::string_view kOldWords = ", that the pod didn't tolerate";
  std::string text(event);
  const size_t list = text.find(kList);
  if (list == std::string::npos) return text;
  const size_t first = list + kList.size();
  for (size_t at = text.find(kTaint, first); at != std::string::npos;
       at = text.find(kTaint, first)) {
    const size_t comma = text.rfind(", ", at);
    const size_t begin = comma == std::string::npos || comma < first ? first : comma + 2;
    size_t end = std::min(text.find('}', at), text.size() - 1) + 1;
    if (std::string_view(text).substr(end).starts_with(kOldWords)) end += kOldWords.size();
    const bool another = std::string_view(text).substr(end).starts_with(", ");
    if (begin == first && !another) return text;
    if (another) {
      text.erase(begin, end + 2 - begin);
    } else {
      text.erase(begin - 2, end - (begin - 2));
    }
  }
  return text;
}

std::string WrittenIn(std::string_view text) {
  const auto has = [&](std::string_view word) { return text.find(word) != text.npos; };
  // A program's own records name no pod and no stream.
  const bool collected = has("pod\"") || has("pod_name\"") || has("\"kubernetes\"") ||
                         has("\"stream\"") || has("\"container");
  if (!text.starts_with('{') || (!has("\"log\"") && !collected)) return "";
  const nlohmann::json record = nlohmann::json::parse(text, nullptr, false);
  // Nor do collectors tell ranks and levels.
  if (!record.is_object() || record.contains("rank") || record.contains("level")) return "";
  std::string line =
      collected ? TextIn(record, {"log", "message", "msg", "line"}) : TextIn(record, {"log"});
  if (line.ends_with('\n')) line.pop_back();
  // Several lines are no longer one that a process wrote.
  if (line.empty() || line.find('\n') != std::string::npos) return "";
  const std::string pod = PodIn(record);
  if (!pod.empty()) line = Concat("[pod/", pod, "] ", line);
  const std::string time = TextIn(record, {"time", "ts", "timestamp", "@timestamp"});
  return time.empty() ? line : Concat(time, " ", line);
}

bool MayBeSameImage(std::string_view there, std::string_view missed) {
  const auto image_in = [](std::string_view event) { return TextAfter(event, "image \"", "\""); };
  const std::string_view a = image_in(there);
  const std::string_view b = image_in(missed);
  return a.empty() || b.empty() || a == b;
}

}  // namespace muster::worker
