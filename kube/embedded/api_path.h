// The parts of a request path under /api and /apis.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster::kube::embedded {

struct ApiPath {
  std::string group;  // "" for core
  std::string version;
  std::string name_space;
  std::string plural;       // empty: discovery of the group version
  std::string name;         // empty: the collection
  std::string subresource;  // "status", "binding", ...
};

// nullopt unless it has the form
//   /api/VERSION | /apis/GROUP/VERSION, then [/namespaces/NS]/PLURAL[/NAME[/SUBRESOURCE]].
// and is printable ASCII. A namespace itself is {plural: "namespaces", name: NS}.
std::optional<ApiPath> ParseApiPath(std::string_view path);

}  // namespace muster::kube::embedded
