// Watch lines and list pages, taken apart in one forward pass: an object's own JSON is only skipped
// over here, its decoder parses it.
#include <fmt/format.h>
#include <simdjson.h>

#include <cstring>
#include <utility>

#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

namespace ondemand = simdjson::ondemand;

// A thread's buffer and parser are given back once they have grown past this.
constexpr size_t kKeptBytes = 2 << 20;

struct ThreadState {
  ondemand::parser parser;
  std::vector<char> buffer;
};

// The text, copied to where the parser may read past its end.
class Scan {
 public:
  explicit Scan(std::string_view text) : state_(ThisThread()), text_(text) {
    auto& buffer = state_.buffer;
    if (buffer.size() < text.size() + simdjson::SIMDJSON_PADDING) {
      buffer.resize(text.size() + simdjson::SIMDJSON_PADDING);
    }
    std::memcpy(buffer.data(), text.data(), text.size());
    std::memset(buffer.data() + text.size(), ' ', simdjson::SIMDJSON_PADDING);
  }
  ~Scan() {
    if (state_.buffer.size() > kKeptBytes) state_ = ThreadState();
  }
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;

  simdjson::error_code Open(ondemand::document* document) {
    return state_.parser.iterate(state_.buffer.data(), text_.size(), state_.buffer.size())
        .get(*document);
  }

  // The same bytes in the caller's text.
  std::string_view Original(std::string_view slice) const {
    while (!slice.empty() && slice.back() <= ' ') slice.remove_suffix(1);
    return text_.substr(slice.data() - state_.buffer.data(), slice.size());
  }

 private:
  static ThreadState& ThisThread() {
    thread_local ThreadState state;
    return state;
  }

  ThreadState& state_;
  std::string_view text_;
};

using Error = simdjson::error_code;

// `visit(key, value)` returns an Error; the first one ends it.
template <typename Visit>
Error ForEachField(ondemand::object& object, Visit visit) {
  for (auto next : object) {
    ondemand::field field;
    std::string_view key;
    if (const Error error = std::move(next).get(field)) return error;
    if (const Error error = field.unescaped_key().get(key)) return error;
    if (const Error error = visit(key, field.value())) return error;
  }
  return simdjson::SUCCESS;
}

template <typename Visit>
Error ForEachField(ondemand::value value, Visit visit) {
  ondemand::object object;
  if (const Error error = value.get_object().get(object)) return error;
  return ForEachField(object, visit);
}

Error ReadText(ondemand::value value, std::string& out) {
  std::string_view text;
  if (const Error error = value.get_string().get(text)) return error;
  out = text;
  return simdjson::SUCCESS;
}

Error ReadAnnotations(ondemand::value annotations, bool& initial_events_end) {
  return ForEachField(annotations, [&](std::string_view key, ondemand::value value) -> Error {
    if (key != "k8s.io/initial-events-end") return simdjson::SUCCESS;
    std::string_view text;
    if (const Error error = value.get_string().get(text)) return error;
    initial_events_end = text == "true";
    return simdjson::SUCCESS;
  });
}

Error ReadMetadata(ondemand::value metadata, ObjectHeader& header, bool& initial_events_end) {
  return ForEachField(metadata, [&](std::string_view key, ondemand::value value) -> Error {
    if (key == "name") return ReadText(value, header.name);
    if (key == "namespace") return ReadText(value, header.name_space);
    if (key == "uid") return ReadText(value, header.uid);
    if (key == "resourceVersion") return ReadText(value, header.resource_version);
    if (key == "annotations") return ReadAnnotations(value, initial_events_end);
    return simdjson::SUCCESS;
  });
}

struct ScannedObject {
  std::string_view raw;  // in the scan's buffer
  ObjectHeader header;
  bool initial_events_end = false;
  int64_t code = 0;  // of a Status
  std::string message;
};

// An object, or a Status in an ERROR event.
Error ReadObject(ondemand::value whole, ScannedObject& out) {
  ondemand::object object;
  if (const Error error = whole.get_object().get(object)) return error;
  const auto read = [&out](std::string_view key, ondemand::value value) -> Error {
    if (key == "metadata") return ReadMetadata(value, out.header, out.initial_events_end);
    if (key == "code") {
      // Of a Status; an object of another kind may have a field of this name and any type.
      if (value.get_int64().get(out.code)) out.code = 0;
    } else if (key == "message") {
      if (ReadText(value, out.message)) out.message.clear();
    }
    return simdjson::SUCCESS;
  };
  if (const Error error = ForEachField(object, read)) return error;
  return object.raw_json().get(out.raw);
}

bool ReadType(std::string_view name, WatchEvent::Type& type) {
  using Type = WatchEvent::Type;
  constexpr std::pair<std::string_view, Type> kTypes[] = {{"ADDED", Type::kAdded},
                                                          {"MODIFIED", Type::kModified},
                                                          {"DELETED", Type::kDeleted},
                                                          {"BOOKMARK", Type::kBookmark},
                                                          {"ERROR", Type::kError}};
  for (const auto& [text, value] : kTypes) {
    if (name != text) continue;
    type = value;
    return true;
  }
  return false;
}

absl::Status NotJson(std::string_view what, size_t size, Error error) {
  return absl::InvalidArgumentError(
      fmt::format("{} of {} bytes: {}", what, size, simdjson::error_message(error)));
}

bool AtEnd(ondemand::document& document) {
  return document.current_location().error() == simdjson::OUT_OF_BOUNDS;
}

template <typename Visit>
Error ForEachField(ondemand::document& document, Visit visit) {
  ondemand::object object;
  if (const Error error = document.get_object().get(object)) return error;
  if (const Error error = ForEachField(object, visit)) return error;
  return AtEnd(document) ? simdjson::SUCCESS : simdjson::TRAILING_CONTENT;
}

Error ReadEnvelope(ondemand::document& document, std::string& type, ScannedObject& scanned) {
  return ForEachField(document, [&](std::string_view key, ondemand::value value) -> Error {
    if (key == "type") return ReadText(value, type);
    if (key == "object") return ReadObject(value, scanned);
    return simdjson::SUCCESS;
  });
}

Error ReadListMetadata(ondemand::value metadata, ListPage& page) {
  return ForEachField(metadata, [&page](std::string_view key, ondemand::value value) -> Error {
    if (key == "resourceVersion") return ReadText(value, page.resource_version);
    if (key == "continue") return ReadText(value, page.continue_token);
    return simdjson::SUCCESS;
  });
}

Error ReadItems(ondemand::value value, const Scan& scan, ListPage& page) {
  bool is_null = false;
  if (const Error error = value.is_null().get(is_null)) return error;
  if (is_null) return simdjson::SUCCESS;
  ondemand::array items;
  if (const Error error = value.get_array().get(items)) return error;
  for (auto next : items) {
    ondemand::value item;
    ScannedObject scanned;
    if (const Error error = std::move(next).get(item)) return error;
    if (const Error error = ReadObject(item, scanned)) return error;
    page.items.push_back({scan.Original(scanned.raw), std::move(scanned.header)});
  }
  return simdjson::SUCCESS;
}

Error ReadList(ondemand::document& document, const Scan& scan, ListPage& page) {
  return ForEachField(document, [&](std::string_view key, ondemand::value value) -> Error {
    if (key == "metadata") return ReadListMetadata(value, page);
    if (key == "items") return ReadItems(value, scan, page);
    return simdjson::SUCCESS;
  });
}

}  // namespace

absl::StatusOr<WatchEvent> DecodeWatchEvent(std::string_view line) {
  Scan scan(line);
  ondemand::document document;
  std::string type;
  ScannedObject scanned;
  Error error = scan.Open(&document);
  if (!error) error = ReadEnvelope(document, type, scanned);
  if (error) return NotJson("watch event", line.size(), error);

  WatchEvent event;
  if (!ReadType(type, event.type)) {
    return absl::InvalidArgumentError(fmt::format("watch event of unknown type \"{}\"", type));
  }
  if (event.type == WatchEvent::Type::kError) {
    event.error_code = static_cast<int>(scanned.code);
    event.error_message = std::move(scanned.message);
    return event;
  }
  if (scanned.raw.empty()) return absl::InvalidArgumentError("watch event without an object");
  event.object = scan.Original(scanned.raw);
  event.header = std::move(scanned.header);
  event.initial_events_end =
      event.type == WatchEvent::Type::kBookmark && scanned.initial_events_end;
  if (event.header.resource_version.empty()) {
    return absl::InvalidArgumentError("watch event without metadata.resourceVersion");
  }
  if (event.type != WatchEvent::Type::kBookmark && event.header.name.empty()) {
    return absl::InvalidArgumentError("watch event without metadata.name");
  }
  return event;
}

absl::StatusOr<ListPage> DecodeListPage(std::string_view json) {
  Scan scan(json);
  ondemand::document document;
  ListPage page;
  Error error = scan.Open(&document);
  if (!error) error = ReadList(document, scan, page);
  if (error) return NotJson("list", json.size(), error);
  if (page.resource_version.empty()) {
    return absl::InvalidArgumentError("list without metadata.resourceVersion");
  }
  for (const ListPage::Item& item : page.items) {
    if (item.header.name.empty()) {
      return absl::InvalidArgumentError("list item without metadata.name");
    }
  }
  return page;
}

}  // namespace muster::kube
