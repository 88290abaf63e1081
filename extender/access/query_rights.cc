#include "extender/access/query_rights.h"

#include <utility>

namespace muster::extender {
namespace {

Wanted To(const char* verb, std::string name_space, std::string name) {
  return {.verb = verb,
          .group = "scheduling.x-k8s.io",
          .resource = "podgroups",
          .name_space = std::move(name_space),
          .name = std::move(name)};
}

}  // namespace

Wanted ToGetGang(std::string name_space, std::string name) {
  return To("get", std::move(name_space), std::move(name));
}

Wanted ToListGangs(std::string name_space) { return To("list", std::move(name_space), ""); }

Wanted ToWatchGangs(std::string name_space, std::string name) {
  return To("watch", std::move(name_space), std::move(name));
}

}  // namespace muster::extender
