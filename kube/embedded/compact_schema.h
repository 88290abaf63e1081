// Reads the compact notation in which core_schema.cc keeps the built-in kinds.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "kube/embedded/schema.h"

namespace muster::kube::embedded {

// Immutable once made. `text` must outlive it. `others` is asked for types that it doesn't define;
// aborts on one that there isn't then: the text is part of the program. Beside the notation of
// core_schema.cc, s=A|B is a string that is one of these, and a field whose name ends in + is
// required.
class CompactSchemas {
 public:
  using Others = std::shared_ptr<const Schema> (*)(std::string_view name);
  explicit CompactSchemas(std::string_view text, Others others = nullptr);

  // nullptr if there is none of that name.
  std::shared_ptr<const Schema> Find(std::string_view name) const;

 private:
  std::shared_ptr<const Schema> TypeNamed(std::string_view name);
  std::shared_ptr<const Schema> Parse(std::string_view type);

  const Others others_;
  std::map<std::string_view, std::string_view> bodies_;
  std::map<std::string_view, std::shared_ptr<const Schema>> types_;
};

}  // namespace muster::kube::embedded
