// Objects of the API as kubectl writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace muster::extender {

enum class ObjectForm { kJson, kYaml, kName };

// An object, or a list of such. Ends in a newline unless it is a list by name that is empty.
std::string ObjectText(const nlohmann::json& object, ObjectForm form);

}  // namespace muster::extender
