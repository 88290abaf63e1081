#include <algorithm>
#include <utility>

#include "kube/objects/decode.h"
#include "kube/objects/json_value.h"

namespace muster::kube {

template <>
absl::StatusOr<Event> Decode<Event>(std::string_view json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue about = root.Get("involvedObject");
  const JsonValue series = root.Get("series");
  Event event;
  event.about.kind = about.Get("kind").String();
  event.about.name_space = about.Get("namespace").String();
  event.about.name = about.Get("name").String();
  event.about.uid = about.Get("uid").String();
  event.type = root.Get("type").String();
  event.reason = root.Get("reason").String();
  event.message = root.Get("message").String();
  event.count =
      std::max({root.Get("count").Int(1), series.Get("count").Int(1), static_cast<int64_t>(1)});
  for (const JsonValue& time :
       {root.Get("metadata").Get("creationTimestamp"), root.Get("firstTimestamp"),
        root.Get("lastTimestamp"), root.Get("eventTime"), series.Get("lastObservedTime")}) {
    event.last = std::max(event.last, time.Time().value_or(absl::InfinitePast()));
  }
  if (!reader.status().ok()) return reader.status();
  return event;
}

}  // namespace muster::kube
