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
  // With what stands around the JSON in a line of a watch.
  explicit Published(std::shared_ptr<const google::protobuf::Message> message,
                     std::string_view before = "", std::string_view after = "\n");
  virtual ~Published();
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  const google::protobuf::Message& message() const { return *message_; }
  std::string_view Json() const;
  std::string_view Line() const;
  std::string_view Wire() const;

 private:
  const std::string& Text() const;

  const std::shared_ptr<const google::protobuf::Message> message_;
  const std::string_view before_, after_;
  mutable std::once_flag text_once_, wire_once_;
  mutable std::string text_;  // the line
  mutable std::string wire_;
};

// A list at one moment.
using MessageList = Published;

using GangMessage = std::shared_ptr<const v1::Gang>;

// Its line says that it was updated, its wire form is the gang's alone.
class PublishedGang : public Published {
 public:
  explicit PublishedGang(GangMessage gang);
  const v1::Gang& gang() const { return *gang_; }

 private:
  const GangMessage gang_;
};

using SharedGang = std::shared_ptr<const PublishedGang>;

// The line of a watch that says that a gang is gone is this, its JSON, and kAfterGang.
inline constexpr std::string_view kBeforeDeletedGang = R"({"type":"DELETED","gang":)";
inline constexpr std::string_view kAfterGang = "}\n";

}  // namespace muster::extender
