// The safetensors format (github.com/huggingface/safetensors), read and written: an 8-byte length,
// a JSON header that names each tensor's type, shape and place, and the tensors' bytes.
//
// A file is not trusted: its header is held to the format's own rules (places in bounds, of the
// size that type and shape say, without overlap or hole) before any tensor is read, and reads are
// by pread, so a file cut short is an error and not a signal.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/file.h"

namespace muster::worker {

struct SafetensorsEntry {
  std::string type;  // "F32", "BF16", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes, from the start of the data
  uint64_t end = 0;

  int64_t elements() const;  // 1 without dimensions
};

// A file that is open for reading. Its const methods may be called by several threads.
class SafetensorsFile {
 public:
  // NotFound, or DataLoss with what is wrong with the file.
  static absl::StatusOr<SafetensorsFile> Open(std::string path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry, std::less<>>& entries() const { return entries_; }
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  const SafetensorsEntry* Find(std::string_view name) const;

  // Elements [first, first + values.size()) of a tensor of type F32, BF16 or F16 as floats.
  // OutOfRange past the tensor's end; InvalidArgument for other types.
  absl::Status Read(const SafetensorsEntry& entry, int64_t first, std::span<float> values) const;

 private:
  SafetensorsFile(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status ReadHeader();
  absl::Status Parse(std::string_view header, uint64_t data_size);
  absl::Status CheckPlaces(uint64_t data_size) const;

  std::string path_;
  FileDescriptor file_;
  uint64_t data_begin_ = 0;
  std::map<std::string, SafetensorsEntry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

enum class SafetensorsType { kF32, kBf16 };
std::string_view SafetensorsTypeName(SafetensorsType type);  // "F32", "BF16"
int64_t SafetensorsTypeBytes(SafetensorsType type);          // of an element

// A tensor of floats to write. `produce` is called once, in turn; what it returns must hold as many
// floats as the shape says and live until the next is asked for. As BF16 each is rounded to the
// nearest one, halfway to the even.
struct SafetensorsTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::function<absl::StatusOr<std::span<const float>>()> produce;
  SafetensorsType type = SafetensorsType::kF32;
};

// Writes the tensors to `path`: to a temporary name beside it, flushed to disk, then renamed, so
// that the name never stands for half a file. Cancelled soon after `stop` asks for it; what is
// under the temporary name stays there, as after other errors.
absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, std::string, std::less<>>& metadata,
                              const std::vector<SafetensorsTensor>& tensors,
                              const std::stop_token& stop = {});

}  // namespace muster::worker
