#include "worker/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

struct Header {
  std::array<char, 8> magic = {'M', 'U', 'S', 'T', 'E', 'R', 'T', 'K'};
  uint32_t version = 1;
  uint32_t bytes_per_token = 0;
  uint64_t tokens = 0;
  uint64_t vocabulary = 0;
};
static_assert(sizeof(Header) == 32);

constexpr int64_t kMostVocabulary = int64_t{1} << 31;
constexpr size_t kBufferBytes = size_t{1} << 20;

std::string ErrorText(int error) { return std::generic_category().message(error); }

std::string TemporaryPath(const std::string& path) { return path + ".tmp"; }

}  // namespace

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path) {
  TokenFile file;
  if (absl::Status status = file.Map(path); !status.ok()) {
    return status;
  }
  if (absl::Status status = file.ParseHeader(path); !status.ok()) {
    return status;
  }
  return file;
}

TokenFile::TokenFile(TokenFile&& other) noexcept { *this = std::move(other); }

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(bytes_per_token_, other.bytes_per_token_);
  std::swap(tokens_, other.tokens_);
  std::swap(vocabulary_, other.vocabulary_);
  return *this;
}

TokenFile::~TokenFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

absl::Status TokenFile::Map(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const std::string message = fmt::format("{}: can't open: {}", path, ErrorText(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || static_cast<size_t>(status.st_size) < sizeof(Header)) {
    ::close(descriptor);
    return absl::DataLossError(fmt::format("{}: {} bytes; a token file has a header of {}", path,
                                           status.st_size, sizeof(Header)));
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) {
    return absl::UnavailableError(fmt::format("{}: can't map: {}", path, ErrorText(error)));
  }
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  return absl::OkStatus();
}

absl::Status TokenFile::ParseHeader(const std::string& path) {
  Header header;
  std::memcpy(&header, data_, sizeof(header));
  if (header.magic != Header().magic) {
    return absl::DataLossError(fmt::format(
        "{}: is not a token file; make one with the worker's converter from text or raw ids",
        path));
  }
  if (header.version != Header().version) {
    return absl::DataLossError(fmt::format("{}: is of version {}; this worker reads {}", path,
                                           header.version, Header().version));
  }
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4) {
    return absl::DataLossError(
        fmt::format("{}: has tokens of {} bytes; 2 or 4 are known", path, header.bytes_per_token));
  }
  if (header.vocabulary < 1 || header.vocabulary > kMostVocabulary) {
    return absl::DataLossError(fmt::format("{}: has a vocabulary of {}", path, header.vocabulary));
  }
  const uint64_t data = size_ - sizeof(Header);
  if (data % header.bytes_per_token != 0 || data / header.bytes_per_token != header.tokens) {
    return absl::DataLossError(
        fmt::format("{}: should hold {} tokens of {} bytes, but has {} bytes of them; it is cut "
                    "short or damaged",
                    path, header.tokens, header.bytes_per_token, data));
  }
  bytes_per_token_ = static_cast<int>(header.bytes_per_token);
  tokens_ = static_cast<int64_t>(header.tokens);
  vocabulary_ = static_cast<int64_t>(header.vocabulary);
  return absl::OkStatus();
}

void TokenFile::Read(int64_t first, std::span<int32_t> ids) const {
  const std::byte* from = data_ + sizeof(Header) + first * bytes_per_token_;
  for (int32_t& id : ids) {
    if (bytes_per_token_ == 2) {
      uint16_t narrow = 0;
      std::memcpy(&narrow, from, sizeof(narrow));
      id = narrow;
    } else {
      std::memcpy(&id, from, sizeof(id));
    }
    from += bytes_per_token_;
  }
}

absl::StatusOr<TokenFileWriter> TokenFileWriter::Create(std::string path, int64_t vocabulary) {
  if (vocabulary < 1 || vocabulary > kMostVocabulary) {
    return absl::InvalidArgumentError(
        fmt::format("a vocabulary of {}; it must be from 1 to {}", vocabulary, kMostVocabulary));
  }
  TokenFileWriter writer(std::move(path), vocabulary);
  writer.descriptor_ =
      ::open(TemporaryPath(writer.path_).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.descriptor_ < 0) {
    return writer.Failed();
  }
  writer.buffer_.resize(sizeof(Header));  // filled in by Finish
  return writer;
}

TokenFileWriter::TokenFileWriter(std::string path, int64_t vocabulary)
    : path_(std::move(path)),
      vocabulary_(vocabulary),
      bytes_per_token_(vocabulary <= 65'536 ? 2 : 4) {}

TokenFileWriter::TokenFileWriter(TokenFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      vocabulary_(other.vocabulary_),
      bytes_per_token_(other.bytes_per_token_),
      tokens_(other.tokens_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)) {}

TokenFileWriter::~TokenFileWriter() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(TemporaryPath(path_).c_str());
  }
}

absl::Status TokenFileWriter::Append(std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocabulary_) {
      return absl::InvalidArgumentError(fmt::format(
          "token {} at place {} is not in the vocabulary of {}", id, tokens_, vocabulary_));
    }
    const auto wide = static_cast<uint32_t>(id);
    const auto* bytes = reinterpret_cast<const std::byte*>(&wide);
    buffer_.insert(buffer_.end(), bytes, bytes + bytes_per_token_);
    ++tokens_;
  }
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : WriteBuffer();
}

absl::Status TokenFileWriter::WriteBuffer() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t count = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (count < 0 && errno != EINTR) {
      return Failed();
    }
    done += count < 0 ? 0 : static_cast<size_t>(count);
  }
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Finish() {
  if (absl::Status status = WriteBuffer(); !status.ok()) {
    return status;
  }
  Header header;
  header.bytes_per_token = static_cast<uint32_t>(bytes_per_token_);
  header.tokens = static_cast<uint64_t>(tokens_);
  header.vocabulary = static_cast<uint64_t>(vocabulary_);
  if (::pwrite(descriptor_, &header, sizeof(header), 0) != sizeof(header) ||
      ::fsync(descriptor_) != 0 || std::rename(TemporaryPath(path_).c_str(), path_.c_str()) != 0) {
    return Failed();
  }
  ::close(std::exchange(descriptor_, -1));
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Failed() const {
  const std::string message = fmt::format("{}: can't write: {}", path_, ErrorText(errno));
  return errno == ENOSPC || errno == EFBIG ? absl::ResourceExhaustedError(message)
                                           : absl::UnavailableError(message);
}

}  // namespace muster::worker
