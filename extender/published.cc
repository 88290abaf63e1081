#include "extender/published.h"

#include <google/protobuf/message.h>

#include <cstdlib>

#include "extender/message_json.h"
#include "muster/v1/admission.pb.h"

namespace muster::extender {

Published::Published(std::shared_ptr<const google::protobuf::Message> message)
    : message_(std::move(message)) {}
Published::~Published() = default;

std::string_view Published::Line() const {
  std::call_once(line_once_, [this] { line_ = ToJson(*message_) + "\n"; });
  return line_;
}

std::string_view Published::Json() const {
  const std::string_view line = Line();
  return line.substr(0, line.size() - 1);
}

std::string_view Published::Wire() const {
  std::call_once(wire_once_, [this] {
    if (!message_->SerializeToString(&wire_)) std::abort();  // without required fields
  });
  return wire_;
}

PublishedGang::PublishedGang(GangMessage gang) : Published(gang), gang_(std::move(gang)) {}

}  // namespace muster::extender
