// Annotations that Muster reads back after a restart, and that anybody who may write the object can
// change in between: the admission record and a node's holds.
#include "coscheduling/admission/record.h"

#include <map>
#include <optional>
#include <string>

#include "kube/objects/node_holds.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

using kube::Holds;

void CheckRecord(std::string_view input) {
  const auto record = coscheduling::DecodeRecord(input);
  if (!record.ok()) {
    RequireSayable(MessageOf(record.status()));
    return;
  }
  // Times are written in milliseconds, so the first writing may cut them.
  const auto written = coscheduling::DecodeRecord(coscheduling::EncodeRecord(*record));
  Require(written.ok(), "a record that is written can be read");
  const auto again = coscheduling::DecodeRecord(coscheduling::EncodeRecord(*written));
  Require(again.ok() && *again == *written, "a record that is read is what was written");
}

void CheckHolds(std::string_view input) {
  kube::StringMap annotations = {{std::string(kube::kHoldsAnnotation), std::string(input)}};
  const Holds holds = kube::ReadHolds(annotations);
  for (const auto& [key, value] : kube::ChangeHolds(annotations, holds)) {
    if (value) {
      annotations.insert_or_assign(key, *value);
    } else {
      annotations.erase(key);
    }
  }
  Require(kube::ChangeHolds(annotations, holds).empty(), "holds are written once");
  Require(kube::ReadHolds(annotations).size() == holds.size(), "no hold is lost");
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  muster::fuzz::CheckRecord(input);
  muster::fuzz::CheckHolds(input);
}
