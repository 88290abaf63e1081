#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kube/client/credentials.h"
#include "kube/client/subprocess.h"
#include "kube/objects/json_value.h"

namespace muster::kube {
namespace {

// A credential is fetched anew this long before it expires, so that no request goes out with one
// that expires on the way; at the latest when half its life is over.
constexpr absl::Duration kExpiryMargin = absl::Seconds(30);
// One without an expiry is kept until the server refuses it.
constexpr absl::Duration kNoExpiry = absl::Hours(24 * 365 * 10);

class Exec : public Credentials {
 public:
  Exec(ExecPlugin plugin, Identity fixed, std::function<absl::Time()> now)
      : plugin_(std::move(plugin)), fixed_(std::move(fixed)), now_(std::move(now)) {}

  absl::StatusOr<Identity> Fetch() override {
    Subprocess subprocess;
    subprocess.program = plugin_.command;
    subprocess.arguments = plugin_.arguments;
    subprocess.environment = plugin_.environment;
    subprocess.environment.emplace_back("KUBERNETES_EXEC_INFO", ExecInfo());
    subprocess.timeout = plugin_.timeout;
    subprocess.interactive = plugin_.interactive;
    const auto ran = RunSubprocess(subprocess);
    if (absl::IsNotFound(ran.status()) && !plugin_.install_hint.empty()) {
      return absl::NotFoundError(
          fmt::format("{}; {}", std::string(ran.status().message()), plugin_.install_hint));
    }
    if (!ran.ok()) return ran.status();
    if (ran->exit_code != 0) {
      return absl::UnavailableError(
          fmt::format("credential plugin \"{}\" exited with {}{}{}", plugin_.command,
                      ran->exit_code, ran->error_text.empty() ? "" : ": ", ran->error_text));
    }
    return Read(ran->output);
  }

 private:
  std::string ExecInfo() const {
    nlohmann::json info = {{"apiVersion", plugin_.api_version},
                           {"kind", "ExecCredential"},
                           {"spec", {{"interactive", plugin_.interactive}}}};
    if (!plugin_.cluster_json.empty()) {
      info["spec"]["cluster"] = nlohmann::json::parse(plugin_.cluster_json);
    }
    return info.dump();
  }

  absl::Status Reject(std::string_view what) const {
    return absl::InvalidArgumentError(
        fmt::format("credential plugin \"{}\": {}", plugin_.command, what));
  }

  // Messages name fields, never their values.
  absl::StatusOr<Identity> Read(const std::string& output) const {
    JsonReader reader(output);
    const JsonValue root = reader.root();
    if (!root.present()) return Reject("output is not a JSON object");
    const JsonValue version = root.Get("apiVersion");
    const JsonValue status = root.Get("status");
    const JsonValue expiry = status.Get("expirationTimestamp");
    for (const JsonValue& text :
         {version, root.Get("kind"), status.Get("token"), status.Get("clientCertificateData"),
          status.Get("clientKeyData")}) {
      if (text.present() && !text.IsString()) return Reject(text.Path() + " is not a string");
    }
    if (root.Get("kind").View() != "ExecCredential") return Reject("kind is not ExecCredential");
    if (version.View() != plugin_.api_version) {
      return Reject(
          fmt::format("apiVersion differs from the kubeconfig's {}", plugin_.api_version));
    }
    Identity identity = fixed_;
    identity.token = status.Get("token").String();
    if (status.Get("clientCertificateData").present()) {
      identity.certificate_pem = status.Get("clientCertificateData").String();
      identity.key_pem = status.Get("clientKeyData").String();
    }
    if (identity.token.empty() && identity.certificate_pem.empty()) {
      return Reject("status has neither token nor clientCertificateData");
    }
    if (identity.certificate_pem.empty() != identity.key_pem.empty()) {
      return Reject("status needs both clientCertificateData and clientKeyData, or neither");
    }
    const auto expires = expiry.Time();
    if (expiry.present() && !expires) {
      return Reject("status.expirationTimestamp is not an RFC 3339 time");
    }
    const absl::Time now = now_();
    const absl::Duration life = expires ? *expires - now : kNoExpiry;
    if (life <= absl::ZeroDuration()) return Reject("the credential has already expired");
    identity.refresh_at = now + std::max(life - kExpiryMargin, life / 2);
    return identity;
  }

  ExecPlugin plugin_;
  Identity fixed_;
  std::function<absl::Time()> now_;
};

}  // namespace

std::unique_ptr<Credentials> ExecCredentials(ExecPlugin plugin, Identity fixed,
                                             std::function<absl::Time()> now) {
  return std::make_unique<Exec>(std::move(plugin), std::move(fixed), std::move(now));
}

}  // namespace muster::kube
