// The page at "/": gangs, their members and nodes, live from /v1/gangs?watch=true and
// /v1/nodes?watch=true. One file without outside assets.
#pragma once

#include <string_view>

namespace muster::extender {

std::string_view WebPage();

}  // namespace muster::extender
