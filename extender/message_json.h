// The JSON mapping of the admission API's messages, as REST serves them.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace muster::extender {

// One line, lowerCamelCase names, enums by name, 64-bit numbers as strings (proto3's mapping).
// Fields without presence are printed also when they hold their default, so that a reader sees
// "attempt":0 and "members":[] rather than nothing.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace muster::extender
