#include "extender/access/front_proxy.h"

#include <openssl/err.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "extender/admission/openssl_handles.h"
#include "fmt/format.h"

namespace muster::extender {
namespace {

using nlohmann::json;

// A list of texts, as JSON within a text.
std::vector<std::string> ListIn(const json& data, const char* key) {
  std::vector<std::string> list;
  const auto at = data.find(key);
  if (at == data.end() || !at->is_string()) return list;
  const json parsed = json::parse(at->get<std::string>(), nullptr, false);
  if (!parsed.is_array()) return list;
  for (const json& each : parsed) {
    if (each.is_string() && !each.get<std::string>().empty()) list.push_back(each);
  }
  return list;
}

X509Handle ReadDer(const std::string& der) {
  const auto* data = reinterpret_cast<const unsigned char*>(der.data());
  X509Handle certificate(d2i_X509(nullptr, &data, static_cast<long>(der.size())));
  ERR_clear_error();
  return certificate;
}

std::string CommonNameOf(const X509* certificate) {
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return "";
  unsigned char* text = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  std::string name;
  if (size > 0) name.assign(reinterpret_cast<const char*>(text), static_cast<size_t>(size));
  OPENSSL_free(text);
  return name;
}

bool IsHeader(std::string_view name, std::string_view wanted) {
  return std::equal(name.begin(), name.end(), wanted.begin(), wanted.end(), [](char a, char b) {
    return absl::ascii_tolower(static_cast<unsigned char>(a)) ==
           absl::ascii_tolower(static_cast<unsigned char>(b));
  });
}

// Of the first that says anything.
std::string ValueOf(const http::Request& request, const std::vector<std::string>& names) {
  for (const std::string& wanted : names) {
    for (const auto& [name, value] : request.headers) {
      if (!IsHeader(name, wanted)) continue;
      if (!value.empty()) return value;
      break;
    }
  }
  return "";
}

std::vector<std::string> ValuesOf(const http::Request& request,
                                  const std::vector<std::string>& names) {
  std::vector<std::string> values;
  for (const std::string& wanted : names) {
    for (const auto& [name, value] : request.headers) {
      if (IsHeader(name, wanted) && !value.empty()) values.push_back(value);
    }
  }
  return values;
}

int HexOf(char digit) {
  if (!std::isxdigit(static_cast<unsigned char>(digit))) return -1;
  return digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
}

// Keys come with what no header may hold as %XX; one that isn't well-formed is meant as it is.
std::string Unescaped(const std::string& key) {
  std::string plain;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key[i] != '%') {
      plain += key[i];
      continue;
    }
    const int high = i + 2 < key.size() ? HexOf(key[i + 1]) : -1;
    const int low = i + 2 < key.size() ? HexOf(key[i + 2]) : -1;
    if (high < 0 || low < 0) return key;
    plain += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return plain;
}

std::map<std::string, std::vector<std::string>> ExtraOf(const http::Request& request,
                                                        const std::vector<std::string>& prefixes) {
  std::map<std::string, std::vector<std::string>> extra;
  for (const std::string& prefix : prefixes) {
    for (const auto& [name, value] : request.headers) {
      if (name.size() < prefix.size() || !IsHeader(name.substr(0, prefix.size()), prefix)) continue;
      extra[Unescaped(absl::AsciiStrToLower(name.substr(prefix.size())))].push_back(value);
    }
  }
  return extra;
}

}  // namespace

absl::StatusOr<FrontProxyConfig> ReadFrontProxyConfig(std::string_view config_map) {
  const json object = json::parse(config_map, nullptr, false);
  const json* data = nullptr;
  if (object.is_object()) {
    if (const auto at = object.find("data"); at != object.end() && at->is_object()) data = &*at;
  }
  if (data == nullptr) return absl::FailedPreconditionError("it has no data");
  FrontProxyConfig config;
  if (const auto at = data->find("requestheader-client-ca-file");
      at != data->end() && at->is_string()) {
    config.authorities = *at;
  }
  config.allowed_names = ListIn(*data, "requestheader-allowed-names");
  config.user_headers = ListIn(*data, "requestheader-username-headers");
  config.uid_headers = ListIn(*data, "requestheader-uid-headers");
  config.group_headers = ListIn(*data, "requestheader-group-headers");
  config.extra_prefixes = ListIn(*data, "requestheader-extra-headers-prefix");
  if (ReadCertificates(config.authorities).empty()) {
    return absl::FailedPreconditionError("it has no certificate in requestheader-client-ca-file");
  }
  if (config.user_headers.empty()) {
    return absl::FailedPreconditionError("it has no requestheader-username-headers");
  }
  return config;
}

struct FrontProxy::Trusted {
  FrontProxyConfig config;
  std::vector<X509Handle> authorities;

  explicit Trusted(FrontProxyConfig given)
      : config(std::move(given)), authorities(ReadCertificates(config.authorities)) {}

  absl::Status Verify(const std::vector<std::string>& shown, absl::Time now) const {
    std::vector<X509Handle> chain;
    for (const std::string& der : shown) {
      chain.push_back(ReadDer(der));
      if (!chain.back()) return absl::UnauthenticatedError("a client certificate can't be read");
    }
    const std::string why = WhyUnverified(chain, authorities, X509_PURPOSE_SSL_CLIENT, now);
    if (!why.empty()) {
      return absl::UnauthenticatedError(
          fmt::format("the client certificate isn't the API server's: {}", why));
    }
    const std::vector<std::string>& names = config.allowed_names;
    if (names.empty() ||
        std::find(names.begin(), names.end(), CommonNameOf(chain[0].get())) != names.end()) {
      return absl::OkStatus();
    }
    return absl::UnauthenticatedError(
        "the client certificate's name isn't one of the API server's");
  }
};

FrontProxy::FrontProxy() = default;
FrontProxy::~FrontProxy() = default;

void FrontProxy::Trust(FrontProxyConfig config) {
  auto trusted = std::make_shared<const Trusted>(std::move(config));
  const std::lock_guard lock(mutex_);
  trusted_ = std::move(trusted);
}

bool FrontProxy::IsKnown() const { return trusted() != nullptr; }

std::shared_ptr<const FrontProxy::Trusted> FrontProxy::trusted() const {
  const std::lock_guard lock(mutex_);
  return trusted_;
}

absl::StatusOr<std::optional<Caller>> FrontProxy::CallerOf(const http::Request& request,
                                                           absl::Time now) const {
  if (request.client_certificates == nullptr || request.client_certificates->empty()) {
    return std::nullopt;
  }
  const std::shared_ptr<const Trusted> known = trusted();
  if (known == nullptr) {
    return absl::UnavailableError("it isn't known yet which certificate is the API server's");
  }
  if (absl::Status status = known->Verify(*request.client_certificates, now); !status.ok()) {
    return status;
  }
  Caller caller;
  caller.user = ValueOf(request, known->config.user_headers);
  if (caller.user.empty()) return std::nullopt;
  caller.uid = ValueOf(request, known->config.uid_headers);
  caller.groups = ValuesOf(request, known->config.group_headers);
  caller.extra = ExtraOf(request, known->config.extra_prefixes);
  return caller;
}

}  // namespace muster::extender
