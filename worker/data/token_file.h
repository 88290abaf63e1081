// A file of token ids, mapped into memory: 32 bytes of header, then uint16 or uint32 ids, all
// little-endian.
//
//   bytes 0-7    "MUSTERTK"
//   bytes 8-11   version, 1
//   bytes 12-15  bytes of a token, 2 or 4
//   bytes 16-23  number of tokens
//   bytes 24-31  vocabulary: every id is below it
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::worker {

// May be read by several threads. The file must not be changed or cut while it is open.
class TokenFile {
 public:
  // NotFound, or DataLoss with what is wrong with the header or the size.
  static absl::StatusOr<TokenFile> Open(const std::string& path);
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;
  ~TokenFile();

  int64_t tokens() const { return tokens_; }
  int64_t vocabulary() const { return vocabulary_; }

  // Ids [first, first + ids.size()), which must be there.
  void Read(int64_t first, std::span<int32_t> ids) const;

 private:
  TokenFile() = default;
  absl::Status Map(const std::string& path);
  absl::Status ParseHeader(const std::string& path);

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int bytes_per_token_ = 0;
  int64_t tokens_ = 0;
  int64_t vocabulary_ = 0;
};

// Writes a token file, piece by piece: to a temporary name, which gets the final one in Finish.
// Two bytes for each token if the vocabulary allows.
class TokenFileWriter {
 public:
  // InvalidArgument for a vocabulary below 1 or above 2^31.
  static absl::StatusOr<TokenFileWriter> Create(std::string path, int64_t vocabulary);
  TokenFileWriter(TokenFileWriter&& other) noexcept;
  TokenFileWriter& operator=(TokenFileWriter&&) = delete;
  ~TokenFileWriter();

  // InvalidArgument, with its place, for an id outside of the vocabulary.
  absl::Status Append(std::span<const int64_t> ids);
  absl::Status Finish();
  int64_t tokens() const { return tokens_; }

 private:
  TokenFileWriter(std::string path, int64_t vocabulary);
  absl::Status WriteBuffer();
  absl::Status Failed() const;

  std::string path_;
  int64_t vocabulary_;
  size_t bytes_per_token_;
  int64_t tokens_ = 0;
  int descriptor_ = -1;
  std::vector<std::byte> buffer_;
};

}  // namespace muster::worker
