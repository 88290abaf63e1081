#include "extender/message_json.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <cstdlib>

namespace muster::extender {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for an Any of unknown type or an invalid Timestamp: neither can be in our messages.
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) std::abort();
  return json;
}

}  // namespace muster::extender
