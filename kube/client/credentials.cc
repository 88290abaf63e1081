#include "kube/client/credentials.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

namespace muster::kube {
namespace {

constexpr absl::Duration kFileLife = absl::Minutes(1);
constexpr size_t kMaxSecretBytes = 256 << 10;

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

class Fixed : public Credentials {
 public:
  explicit Fixed(Identity identity) : identity_(std::move(identity)) {}
  absl::StatusOr<Identity> Fetch() override { return identity_; }

 private:
  Identity identity_;
};

class Fetched : public Credentials {
 public:
  Fetched(Identity first, std::shared_ptr<Credentials> others)
      : first_(std::move(first)), others_(std::move(others)) {}
  absl::StatusOr<Identity> Fetch() override {
    if (first_) return *std::exchange(first_, std::nullopt);
    return others_->Fetch();
  }

 private:
  std::optional<Identity> first_;
  const std::shared_ptr<Credentials> others_;
};

class Files : public Credentials {
 public:
  Files(CredentialFiles files, Identity fixed, std::function<absl::Time()> now)
      : files_(std::move(files)), fixed_(std::move(fixed)), now_(std::move(now)) {}

  absl::StatusOr<Identity> Fetch() override {
    Identity identity = fixed_;
    if (auto status = Read(files_.token, identity.token); !status.ok()) return status;
    if (auto status = Read(files_.certificate, identity.certificate_pem); !status.ok()) {
      return status;
    }
    if (auto status = Read(files_.key, identity.key_pem); !status.ok()) return status;
    identity.token = Trim(identity.token);
    identity.refresh_at = now_() + kFileLife;
    return identity;
  }

 private:
  static absl::Status Read(const std::string& path, std::string& part) {
    if (path.empty()) return absl::OkStatus();
    auto text = ReadSmallFile(path, kMaxSecretBytes);
    if (!text.ok()) return text.status();
    if (Trim(*text).empty()) return absl::InvalidArgumentError(fmt::format("{} is empty", path));
    part = *std::move(text);
    return absl::OkStatus();
  }

  CredentialFiles files_;
  Identity fixed_;
  std::function<absl::Time()> now_;
};

}  // namespace

std::unique_ptr<Credentials> FixedCredentials(Identity identity) {
  return std::make_unique<Fixed>(std::move(identity));
}

std::unique_ptr<Credentials> StartingWith(Identity first, std::shared_ptr<Credentials> others) {
  return std::make_unique<Fetched>(std::move(first), std::move(others));
}

std::unique_ptr<Credentials> FileCredentials(CredentialFiles files, Identity fixed,
                                             std::function<absl::Time()> now) {
  return std::make_unique<Files>(std::move(files), std::move(fixed), std::move(now));
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(fmt::format("can't open {}: {}", path, strerror(errno)));
  std::string text(max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::UnavailableError(fmt::format("can't read {}", path));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > max_bytes) {
    return absl::ResourceExhaustedError(fmt::format("{} is larger than {} bytes", path, max_bytes));
  }
  return text;
}

}  // namespace muster::kube
