#include "worker/diagnose/gpu_memory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "fmt/format.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

struct Weight {
  int64_t bytes;
  std::string_view text;
};

constexpr std::array<Weight, 4> kWeights = {{
    {int64_t{4096} * 14336 * 2, "4096 x 14336 in bf16 (Llama-3-8B)"},
    {int64_t{128256} * 4096 * 2, "128256 x 4096 in bf16 (Llama-3-8B)"},
    {int64_t{8192} * 28672 * 2, "8192 x 28672 in bf16 (Llama-3-70B)"},
    {int64_t{50257} * 1600 * 4, "50257 x 1600 in fp32 (GPT-2 XL)"},
}};

// "112.00 MiB" at the beginning of `text`, after blanks.
std::optional<int64_t> LeadingSize(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || space > 16) return std::nullopt;
  const std::string_view digits = text.substr(0, space);
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  const std::string_view unit = text.substr(space + 1, 3);
  const double factor = unit == "GiB"               ? static_cast<double>(kGiB)
                        : unit == "MiB"             ? static_cast<double>(kMiB)
                        : unit == "KiB"             ? 1024.0
                        : unit.substr(0, 2) == "by" ? 1.0
                                                    : 0.0;
  if (factor == 0 || !(number >= 0) || number > 1e6) return std::nullopt;
  return std::llround(number * factor);
}

std::optional<int64_t> SizeAfter(std::string_view line, std::string_view word) {
  const size_t at = line.find(word);
  return at == std::string_view::npos ? std::nullopt : LeadingSize(line.substr(at + word.size()));
}

// The size that stands before `word`: "119.38 MiB free".
std::optional<int64_t> SizeBefore(std::string_view line, std::string_view word) {
  const size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t from = line.substr(0, at).find_last_of(";(");
  return LeadingSize(line.substr(from == std::string_view::npos ? 0 : from + 1));
}

// Where PyTorch can't tell which process it is itself, it lists all of the GPU alike ("Process 7
// has 70.24 GiB memory in use."): the smallest that holds what PyTorch has taken.
std::optional<int64_t> OwnAmong(std::string_view line) {
  const auto allocated = SizeAfter(line, "Of the allocated memory");
  const size_t reserved = line.find("allocated by PyTorch, and");
  if (!allocated || reserved == line.npos) return std::nullopt;
  const int64_t taken = *allocated + SizeAfter(line.substr(reserved), "PyTorch, and").value_or(0);
  std::optional<int64_t> own;
  constexpr std::string_view kProcess = "Process ";
  for (size_t at = line.find(kProcess); at != line.npos; at = line.find(kProcess, at + 1)) {
    const auto size = SizeAfter(line.substr(at, 64), " has");
    if (size && *size >= taken && (!own || *size < *own)) own = size;
  }
  return own;
}

std::optional<int64_t> Either(std::optional<int64_t> first, std::optional<int64_t> second) {
  return first ? first : second;
}

}  // namespace

int64_t GpuMemoryReport::Others() const { return std::max<int64_t>(0, total - free - own); }

bool GpuMemoryReport::HeldByOthers() const { return Others() > total / 10; }

std::optional<GpuMemoryReport> ReadGpuMemory(std::string_view line) {
  const auto asked = SizeAfter(line, "Tried to allocate");
  // PyTorch 2.1 spells it so.
  const auto total =
      Either(Either(SizeAfter(line, "total capacity of"), SizeAfter(line, "total capacty of")),
             SizeBefore(line, " total capacity;"));
  const auto free = Either(SizeAfter(line, "of which"), SizeBefore(line, " free;"));
  auto own = Either(
      SizeAfter(line, "this process has"),
      Either(SizeBefore(line, " reserved in total by PyTorch"), SizeBefore(line, " cached)")));
  if (!own) own = OwnAmong(line);
  if (!asked || !total || !free || !own) return std::nullopt;
  return GpuMemoryReport{.asked = *asked, .total = *total, .free = *free, .own = *own};
}

std::string_view WholeWeight(int64_t bytes) {
  const auto* found = std::ranges::find_if(
      kWeights, [&](const Weight& weight) { return std::abs(weight.bytes - bytes) <= kMiB / 100; });
  return found == kWeights.end() ? std::string_view() : found->text;
}

std::string DescribeMemory(const GpuMemoryReport& report) {
  std::string text =
      Concat(FormatBytes(report.Others()), " of the GPU's ", FormatBytes(report.total),
             " belong to other processes, ", FormatBytes(report.own), " to this one, ",
             FormatBytes(report.free), " were free, and it asked for ", FormatBytes(report.asked));
  if (const std::string_view weight = WholeWeight(report.asked); !weight.empty()) {
    Append(&text, ", which is one whole weight, ", weight,
           ": the model is copied whole to this GPU, not partitioned");
  }
  return text;
}

std::string FormatBytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes >= kGiB ? fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB))
                       : fmt::format("{:.2f} MiB", value / static_cast<double>(kMiB));
}

}  // namespace muster::worker
