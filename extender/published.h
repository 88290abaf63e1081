// A message as it was published: the object, its JSON and its wire form, each made once, by whoever
// asks first. All who show it share them, so that a thousand readers cost what one does.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}

namespace muster::v1 {
class Gang;
}

namespace muster::extender {

// Immutable and thread-safe.
class Published {
 public:
  explicit Published(std::shared_ptr<const google::protobuf::Message> message);
  virtual ~Published();
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  const google::protobuf::Message& message() const { return *message_; }
  std::string_view Json() const;
  std::string_view Line() const;  // the JSON, and a newline
  std::string_view Wire() const;

 private:
  const std::shared_ptr<const google::protobuf::Message> message_;
  mutable std::once_flag line_once_, wire_once_;
  mutable std::string line_;
  mutable std::string wire_;
};

// A list at one moment.
using MessageList = Published;

using GangMessage = std::shared_ptr<const v1::Gang>;

class PublishedGang : public Published {
 public:
  explicit PublishedGang(GangMessage gang);
  const v1::Gang& gang() const { return *gang_; }

 private:
  const GangMessage gang_;
};

using SharedGang = std::shared_ptr<const PublishedGang>;

}  // namespace muster::extender
