#include "worker/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "worker/checkpoint/test_directory.h"
#include "worker/checkpoint/test_small_disk.h"
#include "worker/data/convert.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file of the tokens first, first + 1, ...
std::string Counting(const std::string& path, int64_t first, int64_t count,
                     int64_t vocabulary = 1000) {
  TokenFileWriter writer = *TokenFileWriter::Create(path, vocabulary);
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  EXPECT_TRUE(writer.Append(ids).ok());
  EXPECT_TRUE(writer.Finish().ok());
  return path;
}

TEST(ShuffledOrder, IsAPermutationOfEverySizeAndAnotherForEverySeed) {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 1000}) {
    const ShuffledOrder order(size, 3);
    std::vector<int64_t> places(size);
    for (int64_t i = 0; i < size; ++i) {
      places[i] = order.At(i);
    }
    std::sort(places.begin(), places.end());
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(places[i], i) << "of " << size;
    }
  }
  int same = 0;
  int in_place = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same += ShuffledOrder(1000, 3).At(i) == ShuffledOrder(1000, 4).At(i) ? 1 : 0;
    in_place += ShuffledOrder(1000, 3).At(i) == i ? 1 : 0;
  }
  EXPECT_LT(same, 10);
  EXPECT_LT(in_place, 10);
}

TEST(Dataset, EveryTokenIsATargetOnceInEachEpochAndEpochsDiffer) {
  const TestDirectory directory;
  // 12 + 1 and 8 + 1 tokens, and 2 left over; a file too short for a window in between.
  const Dataset data =
      *Dataset::Open({Counting(directory / "a", 0, 13), Counting(directory / "b", 500, 3),
                      Counting(directory / "c", 100, 11)},
                     4, 1000, 1);
  ASSERT_EQ(data.windows(), 5);
  std::vector<std::vector<int32_t>> epochs;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int32_t> tokens(20);
    std::vector<int32_t> targets(20);
    data.Samples(5 * epoch, tokens, targets);
    for (size_t i = 0; i < targets.size(); ++i) {
      EXPECT_EQ(targets[i], tokens[i] + 1);
    }
    epochs.push_back(targets);
    std::sort(targets.begin(), targets.end());
    EXPECT_THAT(targets, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 101, 102, 103, 104, 105,
                                     106, 107, 108));
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(Dataset, AnyNumberOfRanksSeesTheSameSamplesFromAnyStepOn) {
  const TestDirectory directory;
  const Dataset data = *Dataset::Open({Counting(directory / "a", 0, 401)}, 4, 1000, 9);
  constexpr int64_t kBatch = 8;
  for (const int64_t step : {0, 3, 40}) {
    std::vector<int32_t> all(kBatch * 4);
    std::vector<int32_t> targets(kBatch * 4);
    data.Samples(step * kBatch, all, targets);
    for (const int64_t ranks : {2, 4, 8}) {
      std::vector<int32_t> joined;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        std::vector<int32_t> part(kBatch / ranks * 4);
        data.Samples(step * kBatch + rank * kBatch / ranks, part,
                     std::span(targets).first(part.size()));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, all) << ranks << " ranks, step " << step;
    }
  }
}

TEST(Dataset, DataThatDoesNotFitTheModelIsNamed) {
  const TestDirectory directory;
  const std::string path = Counting(directory / "a", 0, 10, 600);
  EXPECT_THAT(std::string(Dataset::Open({path}, 4, 500, 1).status().message()),
              HasSubstr("has a vocabulary of 600, the model only 500"));
  EXPECT_EQ(Dataset::Open({path}, 10, 600, 1).status().message(),
            "1 token files hold no sequence of 10 tokens and one more");
}

TEST(TokenFile, WideVocabulariesTakeFourBytes) {
  const TestDirectory directory;
  const std::string narrow = Counting(directory / "n", 65'530, 6, 65'536);
  const std::string wide = Counting(directory / "w", 65'530, 7, 65'537);
  EXPECT_EQ(std::filesystem::file_size(narrow), 32 + 2 * 6);
  EXPECT_EQ(std::filesystem::file_size(wide), 32 + 4 * 7);
  std::vector<int32_t> ids(2);
  TokenFile::Open(wide)->Read(5, ids);
  EXPECT_THAT(ids, ElementsAre(65'535, 65'536));
  TokenFile::Open(narrow)->Read(4, ids);
  EXPECT_THAT(ids, ElementsAre(65'534, 65'535));
}

TEST(TokenFile, AFileThatIsNotWholeIsRefused) {
  const TestDirectory directory;
  const std::string path = Counting(directory / "a", 0, 10);
  for (uint64_t size = 0; size < 52; ++size) {
    std::filesystem::copy_file(path, directory / "cut",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(directory / "cut", size);
    EXPECT_EQ(TokenFile::Open(directory / "cut").status().code(), absl::StatusCode::kDataLoss)
        << size << " bytes";
  }
  EXPECT_EQ(TokenFile::Open(directory / "none").status().code(), absl::StatusCode::kNotFound);
}

struct HeaderCase {
  size_t at;
  char byte;
  const char* message;
};

TEST(TokenFile, AHeaderThatMakesNoSenseIsRefused) {
  const TestDirectory directory;
  const std::vector<HeaderCase> cases = {
      {0, 'X', "is not a token file"},  {8, 2, "is of version 2"},
      {12, 3, "has tokens of 3 bytes"}, {23, 1, "should hold 72057594037927946 tokens"},
      {24, 0, "has a vocabulary of 0"}, {31, 1, "has a vocabulary of 72057594037928192"},
  };
  for (const HeaderCase& damaged : cases) {
    const std::string path = Counting(directory / "a", 0, 10, 256);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    if (damaged.at == 24) {
      file.seekp(25);
      file.put(0);  // 256 is one byte further
    }
    file.seekp(static_cast<std::streamoff>(damaged.at));
    file.put(damaged.byte);
    file.close();
    EXPECT_THAT(std::string(TokenFile::Open(path).status().message()), HasSubstr(damaged.message));
  }
}

TEST(TokenFile, AnUnfinishedOneLeavesNothing) {
  const TestDirectory directory;
  Counting(directory / "a", 0, 10);
  {
    TokenFileWriter writer = *TokenFileWriter::Create(directory / "a", 5);
    EXPECT_EQ(writer.Append(std::vector<int64_t>{4, 5}).message(),
              "token 5 at place 1 is not in the vocabulary of 5");
  }
  EXPECT_EQ(TokenFile::Open(directory / "a")->tokens(), 10);
  EXPECT_FALSE(std::filesystem::exists(directory / "a.tmp"));
}

TEST(TokenFile, AFullDiskIsSaidAndLeavesNothing) {
  const TestDirectory directory;
  SmallDisk disk(directory.path(), 1 << 20);
  ASSERT_EQ(disk.error(), "") << "this test needs root and mount namespaces";
  Counting(directory / "a", 0, 10);
  ASSERT_TRUE(disk.LeaveFree(disk.page()));
  {
    TokenFileWriter writer = *TokenFileWriter::Create(directory / "b", 1000);
    ASSERT_TRUE(writer.Append(std::vector<int64_t>(10'000, 1)).ok());
    const absl::Status status = writer.Finish();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), directory / "b" + ": can't write: No space left on device");
  }
  EXPECT_EQ(TokenFile::Open(directory / "a")->tokens(), 10);
  EXPECT_EQ(disk.free(), disk.page());
}

TEST(Convert, TextBecomesBytesAndAnEndAfterEachDocument) {
  const TestDirectory directory;
  std::ofstream(directory / "1") << "h\xC3\xA9";
  std::ofstream(directory / "2") << "";
  EXPECT_EQ(*ConvertText({directory / "1", directory / "2"}, directory / "out"), 5);
  const TokenFile file = *TokenFile::Open(directory / "out");
  EXPECT_EQ(file.vocabulary(), 257);
  std::vector<int32_t> ids(5);
  file.Read(0, ids);
  EXPECT_THAT(ids, ElementsAre('h', 0xC3, 0xA9, 256, 256));
  EXPECT_EQ(ConvertText({directory / "none"}, directory / "out").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(Convert, IdsOfAnotherTokenizerAreTakenAsTheyAre) {
  const TestDirectory directory;
  const std::vector<uint32_t> ids = {0, 70'000, 128'255};
  const auto bytes = std::as_bytes(std::span(ids));
  std::ofstream(directory / "raw", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  ASSERT_EQ(*ConvertTokens({directory / "raw"}, TokenEncoding::kUint32, 128'256, directory / "out"),
            3);
  std::vector<int32_t> read(3);
  TokenFile::Open(directory / "out")->Read(0, read);
  EXPECT_THAT(read, ElementsAre(0, 70'000, 128'255));
  EXPECT_THAT(std::string(ConvertTokens({directory / "raw"}, TokenEncoding::kUint32, 100'000,
                                        directory / "out")
                              .status()
                              .message()),
              HasSubstr("token 128255 at place 2 is not in the vocabulary of 100000"));
  std::filesystem::resize_file(directory / "raw", 11);
  EXPECT_THAT(std::string(ConvertTokens({directory / "raw"}, TokenEncoding::kUint32, 128'256,
                                        directory / "out")
                              .status()
                              .message()),
              HasSubstr("its last token has 3 of 4 bytes"));
}

TEST(Convert, LlmcsFilesAreReadByTheirHeader) {
  const TestDirectory directory;
  std::vector<int32_t> header(256);
  header[0] = 20'240'520;
  header[1] = 1;
  header[2] = 2;
  std::ofstream file(directory / "llmc.bin", std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()), 1024);
  file << std::string("\x01\x00\x50\xC4", 4);
  file.close();
  ASSERT_EQ(
      *ConvertTokens({directory / "llmc.bin"}, TokenEncoding::kLlmC, 50'257, directory / "out"), 2);
  std::vector<int32_t> ids(2);
  TokenFile::Open(directory / "out")->Read(0, ids);
  EXPECT_THAT(ids, ElementsAre(1, 0xC450));
  std::filesystem::resize_file(directory / "llmc.bin", 1026);
  EXPECT_EQ(ConvertTokens({directory / "llmc.bin"}, TokenEncoding::kLlmC, 50'257, directory / "out")
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster::worker
