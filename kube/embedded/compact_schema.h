// Reads the compact notation in which core_schema.cc keeps the built-in kinds.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "kube/embedded/schema.h"

namespace muster::kube::embedded {

// Immutable once made. `text` must outlive it. Aborts on a type that is named but not defined: the
// text is part of the program.
class CompactSchemas {
 public:
  explicit CompactSchemas(std::string_view text);

  // nullptr if there is none of that name.
  std::shared_ptr<const Schema> Find(std::string_view name) const;

 private:
  std::shared_ptr<const Schema> TypeNamed(std::string_view name);
  std::shared_ptr<const Schema> Parse(std::string_view type);

  std::map<std::string_view, std::string_view> bodies_;
  std::map<std::string_view, std::shared_ptr<const Schema>> types_;
};

}  // namespace muster::kube::embedded
