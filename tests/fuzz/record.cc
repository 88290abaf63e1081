// Annotations that Muster reads back after a restart, and that anybody who may write the object can
// change in between: the admission record and a node's holds.
#include "coscheduling/admission/record.h"

#include <map>
#include <optional>
#include <string>

#include "coscheduling/provisioning/holds.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

using coscheduling::Holds;

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
  kube::StringMap annotations = {{std::string(coscheduling::kHoldsAnnotation), std::string(input)}};
  const Holds holds = coscheduling::ReadHolds(annotations);
  for (const auto& [key, value] : coscheduling::ChangeHolds(annotations, holds)) {
    if (value) {
      annotations.insert_or_assign(key, *value);
    } else {
      annotations.erase(key);
    }
  }
  Require(coscheduling::ChangeHolds(annotations, holds).empty(), "holds are written once");
  Require(coscheduling::ReadHolds(annotations).size() == holds.size(), "no hold is lost");
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  muster::fuzz::CheckRecord(input);
  muster::fuzz::CheckHolds(input);
}
