#include "worker/data/convert.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>

#include "absl/functional/function_ref.h"
#include "fmt/format.h"
#include "worker/data/token_file.h"

namespace muster::worker {
namespace {

constexpr size_t kBlock = size_t{1} << 16;  // bytes; a multiple of any token's size
// llm.c's header, as in its dataloader.
constexpr int32_t kLlmcMagic16 = 20'240'520;
constexpr int32_t kLlmcMagic32 = 20'240'801;
constexpr size_t kLlmcHeader = 256;  // int32s

absl::StatusOr<std::ifstream> OpenInput(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || !std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(fmt::format("{}: can't be opened as a file", path));
  }
  return file;
}

// Appends the rest of the file, as ids of so many bytes each.
absl::Status AppendIds(std::ifstream& file, const std::string& path, size_t bytes_per_token,
                       TokenFileWriter& writer) {
  std::vector<char> block(kBlock);
  std::vector<int64_t> ids;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto count = static_cast<size_t>(file.gcount());
    if (count % bytes_per_token != 0) {
      return absl::DataLossError(
          fmt::format("{}: its last token has {} of {} bytes; it is cut short, or its ids are of "
                      "another size",
                      path, count % bytes_per_token, bytes_per_token));
    }
    ids.clear();
    for (size_t i = 0; i < count; i += bytes_per_token) {
      uint32_t id = 0;
      std::memcpy(&id, block.data() + i, bytes_per_token);
      ids.push_back(id);
    }
    if (absl::Status status = writer.Append(ids); !status.ok()) {
      return absl::Status(status.code(),
                          fmt::format("{}: {}", path, std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

// Reads llm.c's header; returns the bytes of a token.
absl::StatusOr<size_t> ReadLlmcHeader(std::ifstream& file, const std::string& path) {
  std::array<int32_t, kLlmcHeader> header = {};
  file.read(reinterpret_cast<char*>(header.data()), sizeof(header));
  if (!file || (header[0] != kLlmcMagic16 && header[0] != kLlmcMagic32)) {
    return absl::DataLossError(fmt::format("{}: has not the header of llm.c's token files", path));
  }
  const size_t bytes = header[0] == kLlmcMagic16 ? 2 : 4;
  std::error_code error;
  const uint64_t data = std::filesystem::file_size(path, error) - sizeof(header);
  if (error || header[2] < 0 || data != static_cast<uint64_t>(header[2]) * bytes) {
    return absl::DataLossError(
        fmt::format("{}: should hold {} tokens of {} bytes, but has {} "
                    "bytes of them",
                    path, header[2], bytes, data));
  }
  return bytes;
}

// Writes one token file of all inputs, each of which `append` adds to it. Returns its tokens.
absl::StatusOr<int64_t> ConvertEach(
    const std::vector<std::string>& inputs, int64_t vocabulary, const std::string& output,
    absl::FunctionRef<absl::Status(std::ifstream&, const std::string& path, TokenFileWriter&)>
        append) {
  absl::StatusOr<TokenFileWriter> writer = TokenFileWriter::Create(output, vocabulary);
  if (!writer.ok()) {
    return writer.status();
  }
  for (const std::string& path : inputs) {
    absl::StatusOr<std::ifstream> file = OpenInput(path);
    if (!file.ok()) {
      return file.status();
    }
    if (absl::Status status = append(*file, path, *writer); !status.ok()) {
      return status;
    }
  }
  const absl::Status status = writer->Finish();
  return status.ok() ? absl::StatusOr<int64_t>(writer->tokens()) : status;
}

}  // namespace

absl::StatusOr<int64_t> ConvertText(const std::vector<std::string>& inputs,
                                    const std::string& output) {
  return ConvertEach(inputs, kByteVocabulary, output,
                     [](std::ifstream& file, const std::string& path, TokenFileWriter& writer) {
                       absl::Status status = AppendIds(file, path, /*bytes_per_token=*/1, writer);
                       status.Update(writer.Append(std::array{kEndOfText}));
                       return status;
                     });
}

absl::StatusOr<int64_t> ConvertTokens(const std::vector<std::string>& inputs,
                                      TokenEncoding encoding, int64_t vocabulary,
                                      const std::string& output) {
  return ConvertEach(
      inputs, vocabulary, output,
      [encoding](std::ifstream& file, const std::string& path, TokenFileWriter& writer) {
        absl::StatusOr<size_t> bytes = encoding == TokenEncoding::kUint16 ? 2 : 4;
        if (encoding == TokenEncoding::kLlmC) {
          bytes = ReadLlmcHeader(file, path);
        }
        return bytes.ok() ? AppendIds(file, path, *bytes, writer) : bytes.status();
      });
}

}  // namespace muster::worker
