#include "worker/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/checkpoint/checksum.h"
#include "worker/checkpoint/test_directory.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file of that header and as many bytes of data, each 0x3F.
std::string FileOf(const TestDirectory& directory, const std::string& header, size_t data,
                   int64_t length = -1) {
  const std::string path = directory / "file.safetensors";
  std::ofstream file(path, std::ios::binary);
  const uint64_t written = length < 0 ? header.size() : static_cast<uint64_t>(length);
  file.write(reinterpret_cast<const char*>(&written), sizeof(written));
  file << header << std::string(data, '\x3F');
  return path;
}

struct HostileCase {
  const char* what;
  std::string header;
  size_t data;
  const char* message;
};

TEST(Safetensors, AHeaderThatDoesNotFitItsFileIsRefused) {
  const std::vector<HostileCase> cases = {
      {"not JSON", "{", 0, "not a JSON object"},
      {"not an object", "[1]", 0, "not a JSON object"},
      {"no type", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "has no dtype"},
      {"unknown type", R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4,
       "is of the unknown type \"F31\""},
      {"negative size", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
       "has a size that is not a whole number"},
      {"fractional offset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}})", 4,
       "has an offset that is not a whole number"},
      {"sizes whose product passes 64 bits",
       R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "more elements than 64 bits"},
      {"place smaller than the shape", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
       4, "lies from byte 0 to 4, but its shape takes 8 bytes"},
      {"end before begin", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
       "lies from byte 4 to 0"},
      {"overlap",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "tensor \"b\" begins at byte 4, the one before ends at 8"},
      {"hole", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
       "tensor \"a\" begins at byte 4, the one before ends at 0"},
      {"data cut short", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
       "its tensors take 8 bytes, the file holds 7"},
      {"bytes after the last tensor", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       5, "its tensors take 4 bytes, the file holds 5"},
      {"metadata that is no text", R"({"__metadata__":{"a":1}})", 0, "is not a string"},
  };
  const TestDirectory directory;
  for (const HostileCase& hostile : cases) {
    const absl::Status status =
        SafetensorsFile::Open(FileOf(directory, hostile.header, hostile.data)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << hostile.what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.message)) << hostile.what;
  }
}

TEST(Safetensors, ALengthThatPassesTheFileIsRefusedBeforeAnythingIsAllocated) {
  const TestDirectory directory;
  for (const int64_t length : {int64_t{3}, int64_t{1} << 40, INT64_MAX}) {
    EXPECT_EQ(SafetensorsFile::Open(FileOf(directory, "{}", 0, length)).status().code(),
              absl::StatusCode::kDataLoss);
  }
  std::ofstream(directory / "short") << "1234567";
  EXPECT_EQ(SafetensorsFile::Open(directory / "short").status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(SafetensorsFile::Open(directory / "none").status().code(), absl::StatusCode::kNotFound);
}

TEST(Safetensors, EveryFileCutShortIsRefused) {
  const TestDirectory directory;
  const std::vector<float> values = {1, 2, 3};
  const std::string path = directory / "whole";
  ASSERT_TRUE(
      WriteSafetensors(
          path, {{"k", "v"}},
          {{.name = "a", .shape = {3}, .produce = [&] { return std::span<const float>(values); }}})
          .ok());
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  for (int64_t length = 0; length < size; ++length) {
    std::filesystem::copy_file(path, directory / "cut",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(directory / "cut", length);
    EXPECT_FALSE(SafetensorsFile::Open(directory / "cut").ok()) << length << " bytes";
  }
}

TEST(Safetensors, WritingEndsWhereItIsToldTo) {
  const TestDirectory directory;
  const std::vector<float> values = {1, 2, 3};
  std::stop_source stop;
  int produced = 0;
  const auto produce = [&] {
    if (++produced == 2) stop.request_stop();
    return std::span<const float>(values);
  };
  std::vector<SafetensorsTensor> tensors;
  for (const char* name : {"a", "b", "c"}) {
    tensors.push_back({.name = name, .shape = {3}, .produce = produce});
  }
  const std::string path = directory / "never";
  EXPECT_EQ(WriteSafetensors(path, {}, tensors, stop.get_token()).code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(produced, 2);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Safetensors, WhatIsWrittenInManyPiecesIsWhole) {
  const TestDirectory directory;
  // Past two pieces and a part, which begin somewhere within the values.
  std::vector<float> values((size_t{140} << 20) / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 999'983);
  const auto shape = static_cast<int64_t>(values.size());
  const std::string path = directory / "long";
  ASSERT_TRUE(WriteSafetensors(path, {},
                               {{.name = "a",
                                 .shape = {shape},
                                 .produce = [&] { return std::span<const float>(values); }}})
                  .ok());
  const SafetensorsFile file = *SafetensorsFile::Open(path);
  std::vector<float> read(values.size(), std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(file.Read(*file.Find("a"), 0, read).ok());
  EXPECT_TRUE(read == values);
}

TEST(Safetensors, HalvesAreReadAsFloats) {
  const TestDirectory directory;
  const std::string path = FileOf(directory,
                                  R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                  R"("h":{"dtype":"F16","shape":[],"data_offsets":[4,6]},)"
                                  R"("i":{"dtype":"I8","shape":[1],"data_offsets":[6,7]}})",
                                  7);
  const SafetensorsFile file = *SafetensorsFile::Open(path);
  std::vector<float> values(2);
  ASSERT_TRUE(file.Read(*file.Find("b"), 0, values).ok());
  EXPECT_THAT(values, ElementsAre(0.74609375F, 0.74609375F));  // 0x3F3F
  ASSERT_TRUE(file.Read(*file.Find("h"), 0, std::span(values).first(1)).ok());
  EXPECT_EQ(values[0], 1.8115234375F);
  EXPECT_EQ(file.Read(*file.Find("i"), 0, std::span(values).first(1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file.Read(*file.Find("b"), 1, values).code(), absl::StatusCode::kOutOfRange);
}

TEST(Checksum, IsCrc32cHoweverItIsCut) {
  const std::string_view digits = "123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(Crc32c(bytes), 0xE3069283);
  EXPECT_EQ(Crc32c(bytes.subspan(4), Crc32c(bytes.first(4))), 0xE3069283);
}

}  // namespace
}  // namespace muster::worker
