#include "kube/objects/workload_name.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "fmt/format.h"

namespace muster::kube {
namespace {

constexpr size_t kMaxPrefix = 247;
constexpr size_t kHashDigits = 5;

std::string Sha1(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace

std::string WorkloadName(const OwnerReference& owner) {
  const size_t slash = owner.api_version.find('/');
  const std::string group = slash == std::string::npos ? "" : owner.api_version.substr(0, slash);
  std::string kind = owner.kind;
  std::ranges::transform(kind, kind.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string prefix = fmt::format("{}-{}", kind, owner.name).substr(0, kMaxPrefix);
  const std::string hash =
      Sha1(fmt::format("{}\n{}\n{}\n{}", owner.kind, group, owner.name, owner.uid));
  return fmt::format("{}-{}", prefix, hash.substr(0, kHashDigits));
}

}  // namespace muster::kube
