#include "extender/published.h"

#include <google/protobuf/message.h>

#include <cstdlib>

#include "extender/message_json.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {

Published::Published(std::shared_ptr<const google::protobuf::Message> message,
                     std::string_view before, std::string_view after)
    : message_(std::move(message)), before_(before), after_(after) {}
Published::~Published() = default;

const std::string& Published::Text() const {
  std::call_once(text_once_, [this] {
    const std::string json = ToJson(*message_);
    text_.reserve(before_.size() + json.size() + after_.size());
    text_.append(before_).append(json).append(after_);
  });
  return text_;
}

std::string_view Published::Line() const { return Text(); }

std::string_view Published::Json() const {
  const std::string_view line = Text();
  return line.substr(before_.size(), line.size() - before_.size() - after_.size());
}

std::string_view Published::Wire() const {
  std::call_once(wire_once_, [this] {
    if (!message_->SerializeToString(&wire_)) std::abort();  // without required fields
  });
  return wire_;
}

PublishedGang::PublishedGang(GangMessage gang)
    : Published(gang, R"({"type":"UPDATED","gang":)", kAfterGang), gang_(std::move(gang)) {}

}  // namespace muster::extender
