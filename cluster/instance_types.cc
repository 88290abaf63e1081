#include "cluster/instance_types.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "kube/objects/excerpt.h"
#include "kube/objects/quantity.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

constexpr size_t kColumns = 7;
// EC2 has less than a thousand types, of some 60 bytes each.
constexpr size_t kMaxTableBytes = size_t{8} << 20;
// Beyond any machine, and a thousandth of what a thousandth of a core can be counted in.
constexpr int64_t kMostOfOne = 1'000'000;
constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr std::string_view kPrefix = "karpenter.k8s.aws/instance-";
// EKS Auto Mode's names for the same.
constexpr std::string_view kAutoModePrefix = "eks.amazonaws.com/instance-";

constexpr std::array<std::string_view, 12> kKnownLabels = {"family",
                                                           "category",
                                                           "generation",
                                                           "size",
                                                           "cpu",
                                                           "memory",
                                                           "gpu-count",
                                                           "gpu-name",
                                                           "gpu-manufacturer",
                                                           "accelerator-count",
                                                           "accelerator-name",
                                                           "accelerator-manufacturer"};

// What follows the prefix, or "".
std::string_view Suffix(std::string_view key) {
  if (key.starts_with(kPrefix)) return key.substr(kPrefix.size());
  if (key.starts_with(kAutoModePrefix)) return key.substr(kAutoModePrefix.size());
  return "";
}

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The letters and the number that a family begins with: "p" and "6" of p6-b200.
std::pair<std::string_view, std::string_view> CategoryAndGeneration(std::string_view family) {
  const auto* const digit = std::ranges::find_if(family, IsDigit);
  const auto* const end = std::find_if_not(digit, family.end(), IsDigit);
  return {{family.begin(), digit}, {digit, end}};
}

std::vector<std::string_view> Columns(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  std::vector<std::string_view> columns;
  while (true) {
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return columns;
    line.remove_prefix(begin);
    columns.push_back(line.substr(0, line.find_first_of(kSpace)));
    line.remove_prefix(columns.back().size());
  }
}

bool ReadCount(std::string_view text, int64_t least, int64_t* count) {
  const auto [parsed, error] = std::from_chars(text.begin(), text.end(), *count);
  return error == std::errc() && parsed == text.end() && *count >= least && *count <= kMostOfOne;
}

// A character that a name may have: what is printed and isn't a space.
bool IsNamePart(char c) { return c > ' ' && c < 0x7F; }

// What keeps the line from being read at all, or "".
std::string_view Unreadable(std::string_view line) {
  if (!simdjson::validate_utf8(line.data(), line.size())) {
    return "not UTF-8, which the table must be in";
  }
  if (line.find('\0') != std::string_view::npos) return "a zero byte; the table is text";
  return "";
}

// What is wrong, or "".
std::string ReadType(const std::vector<std::string_view>& columns, InstanceType* type) {
  if (columns.size() != kColumns) {
    return fmt::format("{} columns, must be {}: name, cpu, memory, gpu, neuron, efa, accelerator",
                       columns.size(), kColumns);
  }
  type->name = columns[0];
  if (type->name.front() == '.' || type->name.back() == '.') {
    return "the name must be FAMILY.SIZE, or another provider's without a dot";
  }
  if (!std::ranges::all_of(type->name, IsNamePart) ||
      !std::ranges::all_of(columns[6], IsNamePart)) {
    return "names must be printable ASCII";
  }
  struct Count {
    std::string_view what, text;
    int64_t least;
    int64_t* out;
  };
  for (const Count& count :
       {Count{"cpu", columns[1], 1, &type->cpu}, Count{"gpu", columns[3], 0, &type->gpu},
        Count{"neuron", columns[4], 0, &type->neuron}, Count{"efa", columns[5], 0, &type->efa}}) {
    if (!ReadCount(count.text, count.least, count.out)) {
      return fmt::format("{} {}: must be an integer from {} to {}", count.what, count.text,
                         count.least, kMostOfOne);
    }
  }
  const absl::StatusOr<int64_t> memory =
      kube::ParseQuantity(columns[2], kube::QuantityUnit::kWhole);
  if (!memory.ok() || *memory <= 0) {
    return fmt::format("memory {}: must be a quantity above 0, such as 1152Gi", columns[2]);
  }
  type->memory = *memory;
  if (columns[6] != "-") type->accelerator = columns[6];
  return "";
}

}  // namespace

std::string_view InstanceType::Family() const {
  return std::string_view(name).substr(0, name.find('.'));
}

std::string_view InstanceType::Size() const {
  return IsEc2() ? std::string_view(name).substr(name.find('.') + 1) : std::string_view();
}

const InstanceTypes& InstanceTypes::BuiltIn() {
  static const InstanceTypes* types = [] {
    auto* built_in = new InstanceTypes;
    if (!built_in->Add(BuiltInInstanceTypes(), "instance_types.txt").ok()) std::abort();
    return built_in;
  }();
  return *types;
}

absl::Status InstanceTypes::Add(std::string_view text, std::string_view file) {
  std::vector<InstanceType> added;
  std::set<std::string, std::less<>> names;
  const auto reject = [file](int number, std::string_view what) {
    return absl::InvalidArgumentError(kube::Excerpt(fmt::format("{}:{}: {}", file, number, what)));
  };
  if (text.size() > kMaxTableBytes) {
    const auto lines = std::ranges::count(text.substr(0, kMaxTableBytes), '\n');
    return reject(static_cast<int>(lines) + 1,
                  fmt::format("the file goes on past {} bytes, more than is read", kMaxTableBytes));
  }
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (const std::string_view why = Unreadable(line); !why.empty()) return reject(number, why);
    line = line.substr(0, line.find('#'));
    const std::vector<std::string_view> columns = Columns(line);
    if (columns.empty()) continue;
    InstanceType type;
    std::string wrong = ReadType(columns, &type);
    if (wrong.empty() && !names.insert(type.name).second) wrong = "stands twice in this file";
    if (!wrong.empty()) return reject(number, fmt::format("{}: {}", columns[0], wrong));
    added.push_back(std::move(type));
  }
  for (InstanceType& type : added) {
    families_.emplace(type.Family());
    std::string name = type.name;
    types_.insert_or_assign(std::move(name), std::move(type));
  }
  return absl::OkStatus();
}

const InstanceType* InstanceTypes::Find(std::string_view name) const {
  const auto it = types_.find(name);
  return it == types_.end() ? nullptr : &it->second;
}

bool InstanceTypes::KnowsFamily(std::string_view family) const {
  return families_.contains(family);
}

bool IsInstanceTypeLabel(std::string_view key) {
  return key == kube::kInstanceTypeLabel ||
         std::ranges::find(kKnownLabels, Suffix(key)) != kKnownLabels.end();
}

std::string InstanceTypeLabel(const InstanceType& type, std::string_view key) {
  if (key == kube::kInstanceTypeLabel) return type.name;
  const std::string_view label = Suffix(key);
  const auto [category, generation] = CategoryAndGeneration(type.Family());
  if (label == "family") return std::string(type.Family());
  if (label == "size") return std::string(type.Size());
  if (label == "category") return std::string(category);
  if (label == "generation") return std::string(generation);
  if (label == "cpu") return std::to_string(type.cpu);
  if (label == "memory") return std::to_string(type.memory / kMebibyte);
  if (label.starts_with("gpu-") && type.gpu > 0) {
    if (label == "gpu-count") return std::to_string(type.gpu);
    if (label == "gpu-name") return type.accelerator;
    if (label == "gpu-manufacturer") return "nvidia";
  }
  if (label.starts_with("accelerator-") && type.neuron > 0) {
    if (label == "accelerator-count") return std::to_string(type.neuron);
    if (label == "accelerator-name") return type.accelerator;
    if (label == "accelerator-manufacturer") return "aws";
  }
  return "";
}

}  // namespace muster::cluster
