// What the API server and kubectl read to learn which resources there are.
#pragma once

#include <string>

namespace muster::extender {

std::string ApiGroupListJson();     // of /apis
std::string ApiGroupJson();         // of /apis/GROUP
std::string ApiResourceListJson();  // of /apis/GROUP/VERSION
// Of /openapi/v2: only that there is nothing more, for it is merged with everybody else's.
std::string OpenApiV2Json();
std::string OpenApiV3RootJson();  // of /openapi/v3
std::string OpenApiV3Json();      // of /openapi/v3/apis/GROUP/VERSION

}  // namespace muster::extender
