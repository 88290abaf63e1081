#include "kube/client/kubeconfig.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "kube/objects/excerpt.h"

namespace muster::kube {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;
// Who is asked for a code, or logs in with his browser, takes his time.
constexpr absl::Duration kPatienceWithPeople = absl::Minutes(5);

// What is wrong with a file, on its way out of the reading functions below.
struct BadConfig {
  std::string message;
};

[[noreturn]] void Reject(const std::string& where, std::string_view what) {
  throw BadConfig{fmt::format("{}: {}", where, what)};
}

// One named entry of a file, with where it stands.
struct Entry {
  YAML::Node value;
  std::string where;   // "FILE: users[gpu]"
  std::string folder;  // of the file
};

std::string Text(const Entry& entry, const char* key) {
  const YAML::Node node = entry.value[key];
  if (!node || node.IsNull()) return "";
  if (!node.IsScalar()) Reject(entry.where, fmt::format("{} is not a string", key));
  return node.Scalar();
}

bool Flag(const Entry& entry, const char* key) {
  const std::string text = Text(entry, key);
  if (text.empty() || text == "false") return false;
  if (text != "true") Reject(entry.where, fmt::format("{} is neither true nor false", key));
  return true;
}

std::string Resolved(const Entry& entry, const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  return (std::filesystem::path(entry.folder) / path).string();
}

std::string Decoded(const Entry& entry, const char* key) {
  const std::string text = Text(entry, key);
  std::string decoded;
  if (!absl::Base64Unescape(text, &decoded)) {
    Reject(entry.where, fmt::format("{} is not base64", key));
  }
  return decoded;
}

std::string FileText(const Entry& entry, const std::string& path) {
  auto text = ReadSmallFile(path, kMaxFileBytes);
  if (!text.ok()) Reject(entry.where, std::string(text.status().message()));
  return *std::move(text);
}

// The named clusters, users and contexts of all files, first come first kept.
class Merged {
 public:
  void AddFile(const std::string& path) {
    const auto text = ReadSmallFile(path, kMaxFileBytes);
    if (!text.ok()) throw BadConfig{std::string(text.status().message())};
    // What is wrong is told in the file's own words.
    if (!simdjson::validate_utf8(text->data(), text->size())) Reject(path, "not UTF-8");
    const YAML::Node root = YAML::Load(*text);
    if (!root.IsMap()) Reject(path, "not a kubeconfig: want a mapping");
    const std::string folder = std::filesystem::absolute(path).parent_path().string();
    const Entry top{root, path, folder};
    if (current_context_.empty()) current_context_ = Text(top, "current-context");
    AddEntries(top, "clusters", "cluster", clusters_);
    AddEntries(top, "users", "user", users_);
    AddEntries(top, "contexts", "context", contexts_);
  }

  const std::string& current_context() const { return current_context_; }
  const Entry* cluster(const std::string& name) const { return Find(clusters_, name); }
  const Entry* user(const std::string& name) const { return Find(users_, name); }
  const Entry* context(const std::string& name) const { return Find(contexts_, name); }

 private:
  using Entries = std::map<std::string, Entry>;

  static void AddEntries(const Entry& top, const char* list, const char* kind, Entries& entries) {
    const YAML::Node items = top.value[list];
    if (!items || items.IsNull()) return;
    if (!items.IsSequence()) Reject(top.where, fmt::format("{} is not a list", list));
    for (const YAML::Node& item : items) {
      if (!item.IsMap()) Reject(top.where, fmt::format("{} has an entry that is no mapping", list));
      const std::string name = Text({item, fmt::format("{}: {}", top.where, list), ""}, "name");
      YAML::Node value = item[kind];
      if (!value || value.IsNull()) value = YAML::Node(YAML::NodeType::Map);
      const std::string where = fmt::format("{}: {}[{}]", top.where, list, name);
      if (!value.IsMap()) Reject(where, fmt::format("{} is no mapping", kind));
      entries.emplace(name, Entry{value, where, top.folder});
    }
  }

  static const Entry* Find(const Entries& entries, const std::string& name) {
    const auto at = entries.find(name);
    return at == entries.end() ? nullptr : &at->second;
  }

  std::string current_context_;
  Entries clusters_;
  Entries users_;
  Entries contexts_;
};

void ReadCluster(const Entry& entry, ClientConfig& config) {
  config.server = Text(entry, "server");
  const bool has_scheme =
      config.server.starts_with("https://") || config.server.starts_with("http://");
  if (!has_scheme) {
    Reject(entry.where,
           fmt::format("server is \"{}\", must start with https:// or http://", config.server));
  }
  while (config.server.back() == '/') config.server.pop_back();
  config.insecure = Flag(entry, "insecure-skip-tls-verify");
  config.tls_server_name = Text(entry, "tls-server-name");
  config.proxy_url = Text(entry, "proxy-url");
  config.ca_pem = Decoded(entry, "certificate-authority-data");
  const std::string ca_file = Resolved(entry, Text(entry, "certificate-authority"));
  if (config.ca_pem.empty() && !ca_file.empty()) config.ca_pem = FileText(entry, ca_file);
  if (config.insecure && !config.ca_pem.empty()) {
    Reject(entry.where, "insecure-skip-tls-verify excludes a certificate authority");
  }
}

std::string ClusterJson(const ClientConfig& config) {
  nlohmann::json cluster = {{"server", config.server}};
  if (!config.ca_pem.empty()) {
    cluster["certificate-authority-data"] = absl::Base64Escape(config.ca_pem);
  }
  if (config.insecure) cluster["insecure-skip-tls-verify"] = true;
  if (!config.tls_server_name.empty()) cluster["tls-server-name"] = config.tls_server_name;
  if (!config.proxy_url.empty()) cluster["proxy-url"] = config.proxy_url;
  return cluster.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ExecPlugin ReadExec(const Entry& exec, const ClientConfig& config, bool by_person) {
  ExecPlugin plugin;
  plugin.command = Text(exec, "command");
  if (plugin.command.empty()) Reject(exec.where, "command is missing");
  if (plugin.command.find('/') != std::string::npos) {
    plugin.command = Resolved(exec, plugin.command);
  }
  plugin.api_version = Text(exec, "apiVersion");
  if (plugin.api_version != "client.authentication.k8s.io/v1" &&
      plugin.api_version != "client.authentication.k8s.io/v1beta1") {
    Reject(exec.where,
           fmt::format("apiVersion is \"{}\", must be client.authentication.k8s.io/v1 or v1beta1",
                       plugin.api_version));
  }
  const std::string mode = Text(exec, "interactiveMode");
  plugin.interactive = by_person && mode != "Never" && isatty(STDIN_FILENO) == 1;
  if (mode == "Always" && !plugin.interactive) {
    Reject(exec.where, "interactiveMode is Always, but there is no terminal");
  }
  if (plugin.interactive) plugin.timeout = kPatienceWithPeople;
  plugin.install_hint = Text(exec, "installHint");
  for (const YAML::Node& argument : exec.value["args"]) {
    if (!argument.IsScalar()) Reject(exec.where, "args has an element that is not a string");
    plugin.arguments.push_back(argument.Scalar());
  }
  for (const YAML::Node& variable : exec.value["env"]) {
    if (!variable.IsMap()) Reject(exec.where, "env has an element that is no mapping");
    const Entry entry{variable, exec.where + ".env", exec.folder};
    plugin.environment.emplace_back(Text(entry, "name"), Text(entry, "value"));
  }
  if (Flag(exec, "provideClusterInfo")) plugin.cluster_json = ClusterJson(config);
  return plugin;
}

void RejectUnsupported(const Entry& user) {
  constexpr std::array<std::string_view, 7> kUnsupported = {
      "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra"};
  for (const auto& key : kUnsupported) {
    const YAML::Node node = user.value[std::string(key)];
    if (node && !node.IsNull()) Reject(user.where, fmt::format("{} is not supported", key));
  }
}

std::shared_ptr<Credentials> ReadUser(const Entry& user, const ClientConfig& config,
                                      bool by_person) {
  RejectUnsupported(user);
  Identity fixed;
  CredentialFiles files;
  fixed.certificate_pem = Decoded(user, "client-certificate-data");
  fixed.key_pem = Decoded(user, "client-key-data");
  if (fixed.certificate_pem.empty()) {
    files.certificate = Resolved(user, Text(user, "client-certificate"));
  }
  if (fixed.key_pem.empty()) files.key = Resolved(user, Text(user, "client-key"));
  const bool has_certificate = !fixed.certificate_pem.empty() || !files.certificate.empty();
  const bool has_key = !fixed.key_pem.empty() || !files.key.empty();
  if (has_certificate != has_key) {
    Reject(user.where, "needs both a client certificate and a client key, or neither");
  }
  files.token = Resolved(user, Text(user, "tokenFile"));
  if (files.token.empty()) fixed.token = Text(user, "token");

  const YAML::Node exec = user.value["exec"];
  const auto now = [] { return absl::Now(); };
  if (exec && !exec.IsNull()) {
    if (!exec.IsMap()) Reject(user.where, "exec is no mapping");
    if (!files.token.empty() || !fixed.token.empty()) {
      Reject(user.where, "exec excludes token and tokenFile");
    }
    if (!files.certificate.empty()) fixed.certificate_pem = FileText(user, files.certificate);
    if (!files.key.empty()) fixed.key_pem = FileText(user, files.key);
    const Entry entry{exec, user.where + ".exec", user.folder};
    return ExecCredentials(ReadExec(entry, config, by_person), std::move(fixed), now);
  }
  const bool from_files = !files.token.empty() || !files.certificate.empty() || !files.key.empty();
  if (from_files) return FileCredentials(std::move(files), std::move(fixed), now);
  return FixedCredentials(std::move(fixed));
}

ClientConfig Resolve(const Merged& merged, const KubeconfigUse& use) {
  const std::string& name = use.context.empty() ? merged.current_context() : use.context;
  if (name.empty()) throw BadConfig{"kubeconfig: current-context is not set"};
  const Entry* context = merged.context(name);
  if (!context) throw BadConfig{fmt::format("kubeconfig: there is no context \"{}\"", name)};
  const std::string cluster_name = Text(*context, "cluster");
  const Entry* cluster = merged.cluster(cluster_name);
  if (!cluster) {
    Reject(context->where, fmt::format("there is no cluster \"{}\"", cluster_name));
  }
  ClientConfig config;
  ReadCluster(*cluster, config);
  config.proxy_of_environment = use.by_person;
  config.name_space = Text(*context, "namespace");
  if (config.name_space.empty()) config.name_space = "default";
  const std::string user_name = Text(*context, "user");
  if (user_name.empty()) {
    config.credentials = FixedCredentials({});
    return config;
  }
  const Entry* user = merged.user(user_name);
  if (!user) Reject(context->where, fmt::format("there is no user \"{}\"", user_name));
  config.credentials = ReadUser(*user, config, use.by_person);
  return config;
}

}  // namespace

absl::StatusOr<ClientConfig> LoadKubeconfig(const std::vector<std::string>& paths,
                                            const KubeconfigUse& use) {
  std::string reading;
  try {
    Merged merged;
    bool found = false;
    for (const std::string& path : paths) {
      if (paths.size() > 1 && !std::filesystem::exists(path)) continue;
      reading = path;
      merged.AddFile(path);
      found = true;
    }
    if (!found) {
      return absl::NotFoundError(
          fmt::format("none of the kubeconfig files exists: {}", fmt::join(paths, ", ")));
    }
    return Resolve(merged, use);
  } catch (const BadConfig& error) {
    return absl::InvalidArgumentError(Excerpt(error.message));
  } catch (const YAML::Exception& error) {
    // Its text has the position and the kind of fault, not the file's content.
    return absl::InvalidArgumentError(Excerpt(fmt::format("{}: {}", reading, error.what())));
  }
}

}  // namespace muster::kube
