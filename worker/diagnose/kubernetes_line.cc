#include "worker/diagnose/kubernetes_line.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
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

// Whether the kubelet, the scheduler or a controller gives such a reason.
bool IsReason(std::string_view word) {
  constexpr std::array<std::string_view, 48> kReasons = {"FailedScheduling",
                                                         "FailedMount",
                                                         "FailedAttachVolume",
                                                         "FailedCreatePodSandBox",
                                                         "FailedCreate",
                                                         "Failed",
                                                         "BackOff",
                                                         "ErrImagePull",
                                                         "ImagePullBackOff",
                                                         "InspectFailed",
                                                         "Unhealthy",
                                                         "Evicted",
                                                         "OOMKilling",
                                                         "SystemOOM",
                                                         "NodeNotReady",
                                                         "Preempted",
                                                         "FailedBinding",
                                                         "ProvisioningFailed",
                                                         "Scheduled",
                                                         "Pulled",
                                                         "Pulling",
                                                         "Killing",
                                                         "Started",
                                                         "Created",
                                                         "TaintManagerEviction",
                                                         "NodeShutdown",
                                                         "DeletingNode",
                                                         "Disrupting",
                                                         "DisruptionTerminating",
                                                         "DisruptionBlocked",
                                                         "SpotInterrupted",
                                                         "Preempting",
                                                         "EvictedDueToPreempt",
                                                         "UnexpectedAdmissionError",
                                                         "NetworkNotReady",
                                                         "ErrImageNeverPull",
                                                         "InvalidImageName",
                                                         "FailedKillPod",
                                                         "ExceededGracePeriod",
                                                         "DeadlineExceeded",
                                                         "BackoffLimitExceeded",
                                                         "FailedPlacement",
                                                         "NotTriggerScaleUp",
                                                         "TriggeredScaleUp",
                                                         "InsufficientCapacityError",
                                                         "RebootScheduled",
                                                         "NodeNotSchedulable",
                                                         "FailedToStartContainer"};
  return absl::c_linear_search(kReasons, word);
}

// "0/9 nodes are available: ", which nobody else says, wherever it stands.
bool SaysScheduler(std::string_view line) {
  if (line.find('/') == line.npos) return false;
  const size_t at = line.find(" nodes are available: ");
  return at != line.npos && at > 2 && absl::ascii_isdigit(static_cast<unsigned char>(line[at - 1]));
}

// What `line`, of an object that kubectl describes, tells of; empty if of nothing that matters.
std::string_view StatusKey(std::string_view line) {
  constexpr std::array<std::string_view, 5> kKeys = {
      "Reason:", "Message:", "Status:", "State:", "Exit Code:"};
  // As kubectl shows an object in YAML or JSON.
  constexpr std::array<std::string_view, 4> kPlainKeys = {
      "reason: ", "message: ", "\"reason\": ", "\"message\": "};
  const bool indented = line.starts_with("  ") || line.starts_with("- ");
  line = StripBlanks(line);
  if (indented) {
    ConsumePrefix(&line, "- ");
    for (const std::string_view key : kPlainKeys) {
      if (line.starts_with(key)) return line.substr(0, key.size());
    }
  }
  const auto* key =
      absl::c_find_if(kKeys, [&](std::string_view word) { return line.starts_with(word); });
  return key == kKeys.end() ? std::string_view() : *key;
}

using Json = nlohmann::json;

// A text of a record's, under the first of several keys that it has; empty if it has none.
std::string TextIn(const Json& record, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (record.contains(key) && record[key].is_string()) return record[key].get<std::string>();
  }
  return "";
}

const Json* ObjectIn(const Json& record, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (record.contains(key) && record[key].is_object()) return &record[key];
  }
  return nullptr;
}

// "POD/CONTAINER" where a collector's record names a pod, or nothing.
std::string PodIn(const Json& record) {
  const Json* place = &record;
  for (const char* part : {"kubernetes", "resource", "labels", "pod"}) {
    if (const Json* inner = ObjectIn(*place, {part})) place = inner;
  }
  std::string pod = TextIn(*place, {"pod_name", "pod", "kubernetes_pod_name", "name"});
  const std::string container = TextIn(*place, {"container_name", "container"});
  if (pod.empty() || (place == &record && container.empty() && !record.contains("pod_name"))) {
    return "";
  }
  return Concat(pod, "/", container.empty() ? "pod" : container);
}

// The time of a record, which is a text or the seconds, milliseconds or so since 1970.
std::string TimeIn(const Json& record) {
  for (const char* key :
       {"time", "ts", "timestamp", "@timestamp", "Timestamp", "date", "__REALTIME_TIMESTAMP"}) {
    if (!record.contains(key)) continue;
    const Json& value = record[key];
    double number = 0;
    if (value.is_number()) {
      number = value.get<double>();
    } else if (value.is_string()) {
      const std::string& text = value.get_ref<const std::string&>();
      if (text.find_first_not_of("0123456789.") != text.npos) return text;
      if (!absl::SimpleAtod(text, &number)) return "";
    }
    constexpr double kLargest = 1e11;  // of seconds
    while (number > kLargest) number /= 1000;
    if (number < 1e9) return "";
    return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                            absl::FromUnixMillis(static_cast<int64_t>(number * 1000)),
                            absl::UTCTimeZone());
  }
  return "";
}

// An event's words in a single line.
std::string OneLine(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return text;
}

// As kubectl lists events: "0s  Warning  FailedScheduling  pod/train-0  MESSAGE".
std::string ListedEvent(std::string_view type, std::string_view reason, std::string_view kind,
                        std::string_view name, std::string_view message) {
  std::string object = Lowered(kind.empty() ? "object" : kind);
  return Concat("0s  ", type == "Normal" ? "Normal" : "Warning", "  ", reason, "  ", object, "/",
                name.empty() ? "-" : name, "  ", OneLine(std::string(message)));
}

// The same of a record in which an exporter, or the API, keeps an event.
std::string EventIn(const Json& record) {
  const Json* event = &record;
  for (const char* part : {"jsonPayload", "event", "object", "kube_event", "body"}) {
    const Json* inner = ObjectIn(record, {part});
    if (inner != nullptr && inner->contains("reason")) event = inner;
  }
  const Json* object = ObjectIn(*event, {"involvedObject", "regarding", "involved_object"});
  const std::string reason = TextIn(*event, {"reason"});
  const std::string message = TextIn(*event, {"message", "note", "msg"});
  const std::string type = TextIn(*event, {"type", "eventType"});
  const bool typed = type == "Warning" || type == "Normal";
  if (reason.empty() || message.empty() || (object == nullptr && !typed)) return "";
  std::string kind =
      object == nullptr ? TextIn(*event, {"kind", "objectKind"}) : TextIn(*object, {"kind"});
  std::string name = object == nullptr ? TextIn(*event, {"name", "pod", "pod_name", "objectName"})
                                       : TextIn(*object, {"name"});
  if (kind.empty() && object == nullptr && !name.empty()) kind = "pod";
  return ListedEvent(type, reason, kind, name, message);
}

// The value of "KEY=VALUE" or KEY="VALUE" in a line of such words.
std::string LogfmtText(std::string_view line, std::string_view key) {
  for (size_t at = line.find(key); at != line.npos; at = line.find(key, at + 1)) {
    if ((at > 0 && line[at - 1] != ' ') || !line.substr(at + key.size()).starts_with('=')) continue;
    std::string_view rest = line.substr(at + key.size() + 1);
    if (!ConsumePrefix(&rest, "\"")) return std::string(rest.substr(0, rest.find(' ')));
    std::string value;
    for (size_t i = 0; i < rest.size() && rest[i] != '"'; ++i) {
      if (rest[i] == '\\' && i + 1 < rest.size()) ++i;
      value.push_back(rest[i]);
    }
    return value;
  }
  return "";
}

// The same of an event in words of the form KEY=VALUE.
std::string EventInLogfmt(std::string_view line) {
  const std::string reason = LogfmtText(line, "reason");
  std::string type = LogfmtText(line, "type");
  if (type.empty()) type = LogfmtText(line, "event_type");
  std::string message;
  for (const char* key : {"message", "msg", "note"}) {
    if (message.empty()) message = LogfmtText(line, key);
  }
  if (reason.empty() || message.empty() || (type != "Warning" && type != "Normal")) return "";
  std::string kind = LogfmtText(line, "kind");
  std::string name;
  for (const char* key : {"pod", "name", "object", "objectName"}) {
    if (name.empty()) name = LogfmtText(line, key);
  }
  const size_t slash = name.find('/');
  if (slash != name.npos) {
    if (kind.empty()) kind = name.substr(0, slash);
    name = name.substr(slash + 1);
  }
  return ListedEvent(type, reason, kind.empty() ? "pod" : kind, name, message);
}

// The same of client-go's "Event(v1.ObjectReference{Kind:"Pod", ... Name:"train-0"}): type:
// 'Warning' reason: 'FailedScheduling' MESSAGE".
std::string EventOfRecorder(std::string_view line) {
  const std::string_view type = TextAfter(line, "type: '", "'");
  const std::string_view reason = TextAfter(line, "reason: '", "'");
  if (type.empty() || reason.empty()) return "";
  std::string_view message = line.substr(line.find("reason: '") + 9 + reason.size());
  ConsumePrefix(&message, "' ");
  return ListedEvent(type, reason, TextAfter(line, "Kind:\"", "\""),
                     TextAfter(line, " Name:\"", "\""), message);
}

std::string_view Bare(std::string_view word) {
  constexpr std::string_view kMarks = "[](){}:,;\"'";
  while (!word.empty() && kMarks.find(word.front()) != kMarks.npos) word.remove_prefix(1);
  while (!word.empty() && kMarks.find(word.back()) != kMarks.npos) word.remove_suffix(1);
  return word;
}

// Whether a word is of the letters of objects' names, which have a dash where they are a job's
// pods.
bool IsPodName(std::string_view word) {
  return word.find('-') != word.npos && absl::c_all_of(word, [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

// The same of "[Warning] FailedMount pod/train-0: MESSAGE", "event(Pod/train-0) FailedMount:
// MESSAGE" and "TIME   FailedMount   train-0   MESSAGE".
std::string EventInWords(std::string_view line) {
  constexpr int kMostWords = 8;
  std::string_view type;
  std::string_view before;
  std::string_view rest = line;
  for (int i = 0; i < kMostWords && !rest.empty(); ++i) {
    const size_t blanks = std::min(rest.find_first_not_of(" \t"), rest.size());
    rest.remove_prefix(blanks);
    const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
    const std::string_view word = Bare(rest.substr(0, end));
    rest.remove_prefix(end);
    if (word == "Warning" || word == "Normal") {
      type = word;
      continue;
    }
    if (word.size() < 5 || !absl::ascii_isupper(static_cast<unsigned char>(word[0])) ||
        !IsReason(word)) {
      before = word;
      continue;
    }
    const bool columns = i > 0 && blanks > 1 && rest.starts_with("  ");
    std::string_view message = StripBlanks(rest);
    std::string_view object = Bare(message.substr(0, message.find(' ')));
    const size_t slash_at = object.find('/');
    const bool named = slash_at != object.npos && slash_at > 2 &&
                       absl::ascii_isalpha(static_cast<unsigned char>(object[0]));
    if (!named && slash_at != object.npos) object = {};
    if (named || columns) message.remove_prefix(std::min(message.find(' '), message.size()));
    if (!named && before.find('/') != before.npos) object = before;
    const size_t open = object.rfind('(');
    if (open != object.npos) object.remove_prefix(open + 1);
    const size_t slash = object.find('/');
    if (type.empty() && slash == object.npos && !columns) return "";
    if (slash == object.npos && !columns) {
      const bool pod = IsPodName(object);
      if (!pod) object = {};
      if (pod) message.remove_prefix(std::min(message.find(' '), message.size()));
    }
    const std::string_view kind = slash == object.npos ? "pod" : object.substr(0, slash);
    const std::string_view name = slash == object.npos ? object : object.substr(slash + 1);
    return ListedEvent(type, word, kind, name, StripBlanks(message));
  }
  return "";
}

// An event in any of these forms; empty if it is none, or one as kubectl lists them.
std::string EventInText(std::string_view line) {
  if (line.find('=') == line.npos && line.find('\'') == line.npos) return "";
  if (line.find("reason") != line.npos) {
    std::string event = EventInLogfmt(line);
    if (event.empty()) event = EventOfRecorder(line);
    if (!event.empty()) return event;
  }
  return "";
}

}  // namespace

namespace {

// Whether a line is an event as kubectl prints it.
bool IsShownEvent(std::string_view line) {
  // The columns of kubectl before 1.8.
  if (line.find('\t') != line.npos &&
      (line.find("\tWarning\t") != line.npos || line.find("\tNormal\t") != line.npos)) {
    return true;
  }
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

}  // namespace

bool IsEvent(std::string_view line) { return IsShownEvent(line) || SaysScheduler(line); }

bool MayTellOfEvent(std::string_view line) {
  constexpr size_t kBeginning = 200;
  const size_t end = std::min(line.size(), kBeginning);
  const auto is_letter = [&](size_t at) {
    return at < line.size() && absl::ascii_isalpha(static_cast<unsigned char>(line[at]));
  };
  for (size_t at = 0; at < end; ++at) {
    if (!is_letter(at)) continue;
    const size_t begin = at;
    while (is_letter(at)) ++at;
    const bool upper = absl::ascii_isupper(static_cast<unsigned char>(line[begin]));
    if (upper && at - begin > 5 && IsReason(line.substr(begin, at - begin))) return true;
  }
  return false;
}

std::string AsListed(std::string_view line, std::string_view body) {
  std::string event = EventInWords(line);
  if (event.empty()) return event;
  // kubectl's columns stand apart.
  const bool apart = body.find("  ") != body.npos;
  const bool shown =
      IsShownEvent(line) || (apart && IsShownEvent(body)) || IsListedPod(line) || IsListedPod(body);
  return shown ? "" : event;
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
  if (key.ends_with(' ')) return true;
  const std::string_view after = StripBlanks(line).substr(key.size());
  return (!key.empty() && after.starts_with("  ")) || IsListedPod(line);
}

bool IsEndOfContainer(std::string_view line) {
  return StripBlanks(line).starts_with("Finished:  ");
}

std::string_view KeyedValue(std::string_view line, std::string_view key) {
  line = StripBlanks(line);
  const bool json = ConsumePrefix(&line, "\"");
  if (!ConsumePrefix(&line, key)) return {};
  if (json && !ConsumePrefix(&line, "\"")) return {};
  if (!ConsumePrefix(&line, ": ")) return {};
  if (line.ends_with(',')) line.remove_suffix(1);
  if (line.size() > 1 && line.starts_with('"') && line.ends_with('"')) {
    line = line.substr(1, line.size() - 2);
  }
  return line;
}

std::string EventOf(std::string_view object, std::string_view reason, std::string_view message) {
  return ListedEvent("Warning", reason, "pod", object, message);
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
    // After the reason, without a kind.
    if (slash == here.npos && IsReason(before) && IsPodName(here)) return here;
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
  // After a collector's time and tag, "kube.train: ".
  constexpr size_t kLongestTag = 160;
  const size_t open = text.substr(0, kLongestTag).find('{');
  if (open == text.npos || !text.ends_with('}')) return EventInText(text);
  const std::string_view body = text.substr(open);
  const auto has = [&](std::string_view word) { return body.find(word) != body.npos; };
  // A program's own records name no pod and no stream.
  const bool collected = has("pod\"") || has("pod_name\"") || has("\"kubernetes\"") ||
                         has("\"stream\"") || has("\"container") || has("ogStream") ||
                         has("\"ingestionTime\"") || has("\"__REALTIME") || has("\"textPayload\"");
  const bool event = has("\"reason\"");
  if (!event && !has("\"log\"") && (!collected || open > 0)) return "";
  if (open > 0 && !collected && !event) return "";
  const Json record = Json::parse(body, nullptr, false);
  if (!record.is_object()) return "";
  if (event) {
    if (std::string line = EventIn(record); !line.empty()) return line;
  }
  // Nor do collectors tell ranks and levels.
  if (record.contains("rank") || record.contains("level")) return "";
  std::string line = collected ? TextIn(record, {"log", "message", "msg", "line", "MESSAGE",
                                                 "textPayload", "Message", "@message"})
                               : TextIn(record, {"log"});
  const auto empty = [&](const char* key) { return record.contains(key) && record[key] == ""; };
  const bool told =
      !line.empty() || empty("log") || (collected && (empty("message") || empty("MESSAGE")));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  // Several lines are no longer one that a process wrote.
  if (!told || line.find('\n') != std::string::npos) return "";
  if (line.empty()) line = " ";
  const std::string pod = PodIn(record);
  if (!pod.empty()) line = Concat("[pod/", pod, "] ", line);
  const std::string time = TimeIn(record);
  return time.empty() ? line : Concat(time, " ", line);
}

bool MayBeSameImage(std::string_view there, std::string_view missed) {
  const auto image_in = [](std::string_view event) { return TextAfter(event, "image \"", "\""); };
  const std::string_view a = image_in(there);
  const std::string_view b = image_in(missed);
  return a.empty() || b.empty() || a == b;
}

}  // namespace muster::worker
