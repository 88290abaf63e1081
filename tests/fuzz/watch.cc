// What a LIST and a WATCH bring: pages, and a stream that is cut into lines.
#include <functional>
#include <string>
#include <vector>

#include "kube/client/line_splitter.h"
#include "kube/objects/decode.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

void RequireSlice(std::string_view slice, std::string_view whole) {
  Require(std::less_equal<>()(whole.data(), slice.data()) &&
              std::less_equal<>()(slice.data() + slice.size(), whole.data() + whole.size()),
          "an object is a slice of what came");
}

void CheckEvent(std::string_view line) {
  const absl::StatusOr<kube::WatchEvent> event = kube::DecodeWatchEvent(line);
  if (!event.ok()) return RequireSayable(MessageOf(event.status()));
  if (event->type == kube::WatchEvent::Type::kError) return;
  RequireSlice(event->object, line);
  Require(!event->header.resource_version.empty(), "what is followed has a version");
}

void CheckPage(std::string_view json) {
  const absl::StatusOr<kube::ListPage> page = kube::DecodeListPage(json);
  if (!page.ok()) return RequireSayable(MessageOf(page.status()));
  Require(!page->resource_version.empty(), "what is followed has a version");
  for (const kube::ListPage::Item& item : page->items) {
    RequireSlice(item.object, json);
    Require(!item.header.name.empty(), "what is listed has a name");
  }
}

// The stream's lines when it comes in pieces of this size.
std::vector<std::string> LinesOf(std::string_view stream, size_t piece) {
  constexpr size_t kLongestLine = 1000;
  kube::LineSplitter splitter(kLongestLine);
  std::vector<std::string> lines;
  for (; !stream.empty(); stream.remove_prefix(std::min(piece, stream.size()))) {
    const bool goes_on = splitter.Feed(stream.substr(0, piece), [&](std::string_view line) {
      lines.emplace_back(line);
      return true;
    });
    if (!goes_on) break;
  }
  return lines;
}

}  // namespace
}  // namespace muster::fuzz

MUSTER_FUZZ_TARGET(std::string_view input) {
  using namespace muster::fuzz;
  CheckPage(input);
  CheckEvent(input);
  const std::vector<std::string> lines = LinesOf(input, input.size() + 1);
  Require(lines == LinesOf(input, 7), "lines don't depend on how the stream was cut");
  for (const std::string& line : lines) CheckEvent(line);
}
