#include "worker/diagnose/kubernetes_line.h"

#include <algorithm>
#include <array>
#include <cstddef>

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
  constexpr std::array<std::string_view, 5> kKeys = {
      "Reason:", "Message:", "Status:", "State:", "Exit Code:"};
  const std::string_view stripped = StripBlanks(line);
  return absl::c_any_of(kKeys, [&](std::string_view key) { return stripped.starts_with(key); }) ||
         line.find("kubelet") != std::string_view::npos || IsListedPod(line);
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
  if (!text.starts_with('{') || text.find("\"log\"") == std::string_view::npos) return "";
  const nlohmann::json record = nlohmann::json::parse(text, nullptr, false);
  if (!record.is_object() || !record.contains("log") || !record["log"].is_string()) return "";
  std::string line = record["log"].get<std::string>();
  if (line.ends_with('\n')) line.pop_back();
  // Several lines are no longer one that a process wrote.
  if (line.find('\n') != std::string::npos) return "";
  for (const char* key : {"time", "ts", "timestamp", "@timestamp"}) {
    if (!record.contains(key) || !record[key].is_string()) continue;
    return Concat(record[key].get<std::string>(), " ", line);
  }
  return line;
}

bool MayBeSameImage(std::string_view there, std::string_view missed) {
  const auto image_in = [](std::string_view event) { return TextAfter(event, "image \"", "\""); };
  const std::string_view a = image_in(there);
  const std::string_view b = image_in(missed);
  return a.empty() || b.empty() || a == b;
}

}  // namespace muster::worker
