#include "kube/embedded/container_rules.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "kube/embedded/json_fields.h"
#include "kube/embedded/metadata_rules.h"
#include "kube/objects/names.h"
#include "kube/objects/quantity.h"

namespace muster::kube::embedded {
namespace {

using Json = nlohmann::json;

std::string QuantityText(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// nullopt for what doesn't fit int64: the real server takes it, and whoever counts it explains.
std::optional<int64_t> Amount(const std::string& resource, const Json& value) {
  absl::StatusOr<int64_t> amount = ParseQuantity(QuantityText(value), UnitOf(resource));
  if (!amount.ok()) return std::nullopt;
  return *amount;
}

// Named with a domain that isn't Kubernetes' own: devices. They can't be overcommitted.
bool IsExtended(const std::string& resource) {
  size_t slash = resource.find('/');
  if (slash == std::string::npos) return false;
  std::string_view domain(resource.data(), slash);
  return domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io");
}

void ValidateResources(const Json& container, const std::string& path, FieldErrors* errors) {
  const Json& limits = MapAt(container, {"resources", "limits"});
  const Json& requests = MapAt(container, {"resources", "requests"});
  ValidateResourceMap(limits, path + ".resources.limits", errors);
  ValidateResourceMap(requests, path + ".resources.requests", errors);
  for (const auto& [resource, value] : requests.items()) {
    auto limit = limits.find(resource);
    std::string field = fmt::format("{}.resources.requests", path);
    if (limit == limits.end()) {
      if (IsExtended(resource)) {
        errors->Required(path + ".resources.limits",
                         "Limit must be set for non overcommitable resources");
      }
      continue;
    }
    std::optional<int64_t> wants = Amount(resource, value);
    std::optional<int64_t> most = Amount(resource, *limit);
    if (!wants || !most) continue;
    if (IsExtended(resource) && *wants != *most) {
      errors->Invalid(
          field, Quoted(QuantityText(value)),
          fmt::format("must be equal to {} limit of {}", resource, QuantityText(*limit)));
    } else if (*wants > *most) {
      errors->Invalid(field, Quoted(QuantityText(value)),
                      fmt::format("must be less than or equal to {} limit of {}", resource,
                                  QuantityText(*limit)));
    }
  }
}

void ValidateContainer(const Json& container, const std::string& path, std::set<std::string>* names,
                       FieldErrors* errors) {
  const std::string& name = StringAt(container, {"name"});
  if (name.empty()) {
    errors->Required(path + ".name");
  } else if (!IsDnsLabel(name)) {
    errors->Invalid(path + ".name", Quoted(name), kLabelRule);
  } else if (!names->insert(name).second) {
    errors->Duplicate(path + ".name", Quoted(name));
  }
  if (StringAt(container, {"image"}).empty()) errors->Required(path + ".image");
  ValidateResources(container, path, errors);
  const Json& ports = ListAt(container, {"ports"});
  for (size_t i = 0; i < ports.size(); ++i) {
    for (const char* field : {"containerPort", "hostPort"}) {
      std::optional<int64_t> port = IntAt(ports[i], {field});
      if (!port && std::string_view(field) == "hostPort") continue;
      if (!port || *port < 1 || *port > 65535) {
        errors->Invalid(fmt::format("{}.ports[{}].{}", path, i, field),
                        std::to_string(port.value_or(0)), "must be between 1 and 65535, inclusive");
      }
    }
  }
}

}  // namespace

void DefaultContainer(Json* container) {
  auto set = [&](const char* field, const char* value) {
    if (!container->contains(field)) (*container)[field] = value;
  };
  set("terminationMessagePath", "/dev/termination-log");
  set("terminationMessagePolicy", "File");
  const std::string& image = StringAt(*container, {"image"});
  size_t colon = image.rfind(':');
  bool tagged = colon != std::string::npos && image.find('/', colon) == std::string::npos;
  bool latest = !tagged || image.compare(colon, std::string::npos, ":latest") == 0;
  set("imagePullPolicy", latest ? "Always" : "IfNotPresent");
  if (!container->contains("resources")) (*container)["resources"] = Json::object();
  Json& resources = (*container)["resources"];
  const Json limits = MapAt(resources, {"limits"});
  for (const auto& [resource, limit] : limits.items()) {
    Json& requests = resources["requests"];
    if (!requests.contains(resource)) requests[resource] = limit;
  }
  auto ports = container->find("ports");
  if (ports == container->end() || !ports->is_array()) return;
  for (Json& port : *ports) {
    if (port.is_object() && !port.contains("protocol")) port["protocol"] = "TCP";
  }
}

void ValidateContainers(const Json& spec, FieldErrors* errors) {
  std::set<std::string> names;
  const Json& init_containers = ListAt(spec, {"initContainers"});
  for (size_t i = 0; i < init_containers.size(); ++i) {
    ValidateContainer(init_containers[i], fmt::format("spec.initContainers[{}]", i), &names,
                      errors);
  }
  const Json& containers = ListAt(spec, {"containers"});
  if (containers.empty()) errors->Required("spec.containers");
  for (size_t i = 0; i < containers.size(); ++i) {
    ValidateContainer(containers[i], fmt::format("spec.containers[{}]", i), &names, errors);
  }
  ValidateResourceMap(MapAt(spec, {"overhead"}), "spec.overhead", errors);
}

void ValidateResourceMap(const Json& resources, const std::string& path, FieldErrors* errors) {
  for (const auto& [resource, value] : resources.items()) {
    std::string field = fmt::format("{}[{}]", path, resource);
    if (!IsQualifiedName(resource)) {
      errors->Invalid(field, Quoted(resource), "must be a qualified name");
      continue;
    }
    std::string text = QuantityText(value);
    std::optional<int64_t> amount = Amount(resource, value);
    if (amount && *amount < 0) {
      errors->Invalid(field, Quoted(text), "must be greater than or equal to 0");
    }
    if (amount && IsExtended(resource)) {
      absl::StatusOr<int64_t> milli = ParseQuantity(text, QuantityUnit::kMilli);
      if (milli.ok() && *milli % 1000 != 0) {
        errors->Invalid(field, Quoted(text), "must be an integer");
      }
    }
  }
}

std::string QosClass(const Json& spec) {
  bool any = false;
  bool guaranteed = true;
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : ListAt(spec, {list})) {
      for (const char* resource : {"cpu", "memory"}) {
        const Json* request = FieldAt(container, {"resources", "requests", resource});
        const Json* limit = FieldAt(container, {"resources", "limits", resource});
        bool asks = request != nullptr && Amount(resource, *request).value_or(1) != 0;
        bool limited = limit != nullptr && Amount(resource, *limit).value_or(1) != 0;
        any |= asks || limited;
        guaranteed &= limited && (!asks || Amount(resource, *request) == Amount(resource, *limit));
      }
    }
  }
  if (!any) return "BestEffort";
  return guaranteed ? "Guaranteed" : "Burstable";
}

}  // namespace muster::kube::embedded
