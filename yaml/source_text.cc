#include "yaml/source_text.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>

#include "absl/status/status.h"
#include "yaml/tree.h"

namespace muster::yaml {
namespace {

std::string ReadStream(std::istream& in) {
  std::string text;
  std::array<char, 1 << 16> piece;
  while (text.size() <= kMaxYamlBytes && in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadSourceFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (file) {
    std::string text = ReadStream(file);
    if (!file.bad()) return text;
  }
  return absl::NotFoundError(std::strerror(errno == 0 ? EIO : errno));
}

absl::StatusOr<std::string> ReadSource(const std::string& path, std::istream& in) {
  return path == "-" ? ReadStream(in) : ReadSourceFile(path);
}

}  // namespace muster::yaml
