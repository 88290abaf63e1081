// The REST interface's description (OpenAPI 3.0), made from the messages' descriptors, so that it
// can't differ from what is served.
#pragma once

#include <string>

namespace muster::extender {

std::string OpenApiJson();

}  // namespace muster::extender
