#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace muster::worker {
namespace {

// The format's own bound.
constexpr uint64_t kMostHeader = 100'000'000;
constexpr size_t kReadBlock = size_t{1} << 20;  // elements, to convert at a time
constexpr std::string_view kMetadata = "__metadata__";

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

// 0 for a type that the format doesn't know.
uint64_t BytesOf(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, uint64_t>, 14> kTypes = {{
      {"F64", 8},
      {"I64", 8},
      {"U64", 8},
      {"F32", 4},
      {"I32", 4},
      {"U32", 4},
      {"F16", 2},
      {"BF16", 2},
      {"I16", 2},
      {"U16", 2},
      {"F8_E4M3", 1},
      {"F8_E5M2", 1},
      {"I8", 1},
      {"U8", 1},
  }};
  const auto* found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == type; });
  return found != kTypes.end() ? found->second : (type == "BOOL" ? 1 : 0);
}

float FromBfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t ToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const auto fraction = static_cast<float>(bits & 1023);
  float value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(fraction + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// Empty unless the entry is as the format says; then what is wrong.
std::string ParseEntry(const nlohmann::json& json, SafetensorsEntry& entry) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
      !json.contains("shape") || !json["shape"].is_array() || !json.contains("data_offsets") ||
      !json["data_offsets"].is_array() || json["data_offsets"].size() != 2) {
    return "has no dtype, shape and two data_offsets";
  }
  entry.type = json["dtype"].get<std::string>();
  uint64_t bytes = BytesOf(entry.type);
  if (bytes == 0) {
    return fmt::format("is of the unknown type \"{}\"", entry.type);
  }
  for (const nlohmann::json& size : json["shape"]) {
    if (!size.is_number_unsigned()) {
      return "has a size that is not a whole number from 0 on";
    }
    const auto extent = size.get<uint64_t>();
    if (__builtin_mul_overflow(bytes, extent, &bytes) ||
        extent > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return "has more elements than 64 bits can count";
    }
    entry.shape.push_back(static_cast<int64_t>(extent));
  }
  for (const nlohmann::json& offset : json["data_offsets"]) {
    if (!offset.is_number_unsigned()) {
      return "has an offset that is not a whole number from 0 on";
    }
  }
  entry.begin = json["data_offsets"][0].get<uint64_t>();
  entry.end = json["data_offsets"][1].get<uint64_t>();
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return fmt::format("lies from byte {} to {}, but its shape takes {} bytes", entry.begin,
                       entry.end, bytes);
  }
  return "";
}

}  // namespace

int64_t SafetensorsEntry::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(std::string path) {
  absl::StatusOr<FileDescriptor> descriptor = OpenForReading(path);
  if (!descriptor.ok()) {
    return descriptor.status();
  }
  SafetensorsFile file(std::move(path), *std::move(descriptor));
  if (absl::Status status = file.ReadHeader(); !status.ok()) {
    return status;
  }
  return file;
}

absl::Status SafetensorsFile::ReadHeader() {
  const absl::StatusOr<uint64_t> size = FileSize(file_, path_);
  if (!size.ok()) {
    return size.status();
  }
  uint64_t length = 0;
  if (absl::Status status = ReadAt(file_, path_, 0, std::as_writable_bytes(std::span(&length, 1)));
      !status.ok()) {
    return status;
  }
  if (length > kMostHeader || length > *size - sizeof(length)) {
    return absl::DataLossError(
        fmt::format("{}: its header should have {} bytes, of {} in the file; it is cut short or "
                    "not a safetensors file",
                    path_, length, *size));
  }
  std::string header(length, '\0');
  if (absl::Status status = ReadAt(file_, path_, sizeof(length),
                                   std::as_writable_bytes(std::span(header.data(), header.size())));
      !status.ok()) {
    return status;
  }
  data_begin_ = sizeof(length) + length;
  return Parse(header, *size - data_begin_);
}

absl::Status SafetensorsFile::Parse(std::string_view header, uint64_t data_size) {
  const nlohmann::json json =
      nlohmann::json::parse(header, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(fmt::format("{}: its header is not a JSON object", path_));
  }
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) {
          return absl::DataLossError(
              fmt::format("{}: metadata \"{}\" is not a string", path_, key));
        }
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    SafetensorsEntry entry;
    if (const std::string problem = ParseEntry(value, entry); !problem.empty()) {
      return absl::DataLossError(fmt::format("{}: tensor \"{}\" {}", path_, name, problem));
    }
    entries_.emplace(name, std::move(entry));
  }
  return CheckPlaces(data_size);
}

absl::Status SafetensorsFile::CheckPlaces(uint64_t data_size) const {
  std::vector<std::tuple<uint64_t, uint64_t, std::string_view>> places;
  places.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) {
    places.emplace_back(entry.begin, entry.end, name);
  }
  std::sort(places.begin(), places.end());
  uint64_t expected = 0;
  for (const auto& [begin, end, name] : places) {
    if (begin != expected) {
      return absl::DataLossError(
          fmt::format("{}: tensor \"{}\" begins at byte {}, the one before "
                      "ends at {}",
                      path_, name, begin, expected));
    }
    expected = end;
  }
  if (expected != data_size) {
    return absl::DataLossError(
        fmt::format("{}: its tensors take {} bytes, the file holds {}; it is cut short or damaged",
                    path_, expected, data_size));
  }
  return absl::OkStatus();
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

absl::Status SafetensorsFile::Read(const SafetensorsEntry& entry, int64_t first,
                                   std::span<float> values) const {
  if (first < 0 || first > entry.elements() ||
      static_cast<int64_t>(values.size()) > entry.elements() - first) {
    return absl::OutOfRangeError(fmt::format("{}: {} elements from {} on were asked for, of {}",
                                             path_, values.size(), first, entry.elements()));
  }
  const uint64_t bytes = BytesOf(entry.type);
  const uint64_t offset = data_begin_ + entry.begin + static_cast<uint64_t>(first) * bytes;
  if (entry.type == "F32") {
    return ReadAt(file_, path_, offset, std::as_writable_bytes(values));
  }
  if (entry.type != "BF16" && entry.type != "F16") {
    return absl::InvalidArgumentError(fmt::format(
        "{}: a tensor is of type {}; F32, BF16 and F16 can be read", path_, entry.type));
  }
  const auto convert = entry.type == "BF16" ? FromBfloat16 : FromHalf;
  std::vector<uint16_t> block;
  for (size_t done = 0; done < values.size(); done += block.size()) {
    block.resize(std::min(kReadBlock, values.size() - done));
    if (absl::Status status =
            ReadAt(file_, path_, offset + done * bytes, std::as_writable_bytes(std::span(block)));
        !status.ok()) {
      return status;
    }
    std::transform(block.begin(), block.end(), values.begin() + static_cast<ptrdiff_t>(done),
                   convert);
  }
  return absl::OkStatus();
}

std::string_view SafetensorsTypeName(SafetensorsType type) {
  return type == SafetensorsType::kF32 ? "F32" : "BF16";
}

int64_t SafetensorsTypeBytes(SafetensorsType type) {
  return static_cast<int64_t>(BytesOf(SafetensorsTypeName(type)));
}

namespace {

absl::Status WriteTensor(const FileDescriptor& file, const std::string& path, SafetensorsType type,
                         std::span<const float> values, const std::stop_token& stop) {
  if (type == SafetensorsType::kF32) {
    return WriteInPieces(file, path, std::as_bytes(values), stop);
  }
  absl::Status status;
  std::vector<uint16_t> block;
  for (size_t done = 0; done < values.size() && status.ok(); done += block.size()) {
    block.resize(std::min(kReadBlock, values.size() - done));
    std::transform(values.begin() + static_cast<ptrdiff_t>(done),
                   values.begin() + static_cast<ptrdiff_t>(done + block.size()), block.begin(),
                   ToBfloat16);
    status = WriteInPieces(file, path, std::as_bytes(std::span(block)), stop);
  }
  return status;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, std::string, std::less<>>& metadata,
                              const std::vector<SafetensorsTensor>& tensors,
                              const std::stop_token& stop) {
  nlohmann::json json = nlohmann::json::object();
  if (!metadata.empty()) {
    json[std::string(kMetadata)] = metadata;
  }
  uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const SafetensorsEntry entry = {.type = std::string(SafetensorsTypeName(tensor.type)),
                                    .shape = tensor.shape};
    const uint64_t end =
        offset + static_cast<uint64_t>(entry.elements() * SafetensorsTypeBytes(tensor.type));
    json[tensor.name] = {
        {"dtype", entry.type}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();

  const std::string temporary = path + ".tmp";
  const absl::StatusOr<FileDescriptor> file = OpenForWriting(temporary);
  if (!file.ok()) {
    return file.status();
  }
  absl::Status status = WriteAll(*file, temporary, std::as_bytes(std::span(&length, 1)));
  status.Update(WriteAll(*file, temporary, std::as_bytes(std::span(header))));
  for (const SafetensorsTensor& tensor : tensors) {
    if (!status.ok()) {
      return status;
    }
    const absl::StatusOr<std::span<const float>> values = tensor.produce();
    status =
        values.ok() ? WriteTensor(*file, temporary, tensor.type, *values, stop) : values.status();
  }
  if (status.ok()) {
    status = Flush(*file, temporary);
  }
  return status.ok() ? Rename(temporary, path) : status;
}

}  // namespace muster::worker
