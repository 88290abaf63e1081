#include "extender/config.h"

#include <algorithm>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "kube/objects/excerpt.h"
#include "yaml/engine_options.h"
#include "yaml/fields.h"
#include "yaml/source_text.h"
#include "yaml/tree.h"

namespace muster::extender {
namespace {

using yaml::FailAt;
using yaml::FieldError;
using yaml::Fields;

void ReadWebhook(const YAML::Node& node, ServeOptions::Webhook* webhook) {
  Fields fields(node, "webhook");
  fields.Read("serviceName", &webhook->service_name);
  fields.Read("serviceNamespace", &webhook->service_namespace);
  fields.Read("servicePort", &webhook->service_port);
  fields.Read("certFile", &webhook->cert_file);
  fields.Read("keyFile", &webhook->key_file);
  fields.Read("caFile", &webhook->ca_file);
  fields.Read("warnings", &webhook->warnings);
  fields.Read("gates", &webhook->gates);
  fields.ReadDuration("certValidity", &webhook->cert_validity);
  fields.Finish();
  const int given =
      !webhook->cert_file.empty() + !webhook->key_file.empty() + !webhook->ca_file.empty();
  if (given != 0 && given != 3) {
    FailAt(node, "webhook: certFile, keyFile and caFile go together");
  }
  if (webhook->service_name.empty() && !webhook->service_namespace.empty()) {
    FailAt(node, "webhook: serviceNamespace needs serviceName");
  }
  if (webhook->service_port < 1 || webhook->service_port > 65535) {
    FailAt(node, fmt::format("webhook.servicePort: {} is not 1 to 65535", webhook->service_port));
  }
}

void ReadQuery(const YAML::Node& node, ServeOptions::Query* query) {
  using Authentication = ServeOptions::Query::Authentication;
  Fields fields(node, "query");
  std::string authentication;
  fields.Read("authentication", &authentication);
  fields.Read("audiences", &query->audiences);
  fields.Read("serviceName", &query->service_name);
  fields.Read("serviceNamespace", &query->service_namespace);
  fields.Finish();
  if (authentication == "none") {
    query->authentication = Authentication::kNone;
  } else if (authentication == "token") {
    query->authentication = Authentication::kToken;
  } else if (!authentication.empty()) {
    FailAt(fields.Take("authentication"),
           fmt::format("query.authentication: want token or none, got \"{}\"", authentication));
  }
  if (query->service_name.empty() && !query->service_namespace.empty()) {
    FailAt(node, "query: serviceNamespace needs serviceName");
  }
}

void ReadLeaseName(const YAML::Node& node, std::string_view field, const std::string& text,
                   std::string* name_space, std::string* name) {
  const size_t slash = text.find('/');
  *name_space = text.substr(0, slash);
  *name = slash == std::string::npos ? "" : text.substr(slash + 1);
  if (name_space->empty() || name->empty() || name->find('/') != std::string::npos) {
    FailAt(node, fmt::format("{}: want NAMESPACE/NAME, got \"{}\"", field, text));
  }
}

void ReadLease(const YAML::Node& node, ServeOptions* options) {
  Fields fields(node, "lease");
  fields.Read("namespace", &options->lease_namespace);
  fields.Read("name", &options->lease_name);
  std::string follow;
  fields.Read("follow", &follow);
  fields.Read("holderPrefix", &options->follow.holder_prefix);
  fields.Finish();
  if (options->lease_name.empty()) FailAt(node, "lease.name: empty");
  if (follow.empty()) {
    if (!options->follow.holder_prefix.empty()) FailAt(node, "lease: holderPrefix needs follow");
    return;
  }
  if (node["name"] || node["namespace"]) {
    FailAt(node, "lease: follow excludes name and namespace, for a followed Lease is the only one");
  }
  ReadLeaseName(node, "lease.follow", follow, &options->follow.name_space, &options->follow.name);
}

void ReadKueueLease(const YAML::Node& node, ServeOptions::KueueLease* lease) {
  const auto text = node.as<std::string>("");
  *lease = {"", ""};
  if (!text.empty()) ReadLeaseName(node, "kueueLease", text, &lease->name_space, &lease->name);
}

void ReadInstanceTypes(const YAML::Node& node, cluster::InstanceTypes* types) {
  const auto file = node.as<std::string>("");
  const absl::StatusOr<std::string> text = yaml::ReadSourceFile(file);
  if (!text.ok()) {
    FailAt(node, fmt::format("instanceTypes: can't read file \"{}\": {}", file,
                             std::string(text.status().message())));
  }
  if (const absl::Status added = types->Add(*text, file); !added.ok()) {
    FailAt(node, fmt::format("instanceTypes: {}", std::string(added.message())));
  }
}

void ReadMaxInFlight(Fields* fields, size_t* most) {
  constexpr int64_t kLargest = 100'000;
  auto number = static_cast<int64_t>(*most);
  fields->Read("maxInFlight", &number);
  if (number < 1 || number > kLargest) {
    FailAt(fields->Take("maxInFlight"),
           fmt::format("config.maxInFlight: {}, want 1 to {}", number, kLargest));
  }
  *most = static_cast<size_t>(number);
}

void ReadExtender(const YAML::Node& node, ServeOptions* options) {
  constexpr absl::Duration kShortest = absl::Seconds(2);
  constexpr absl::Duration kLongest = absl::Minutes(10);
  Fields fields(node, "extender");
  fields.ReadDuration("httpTimeout", &options->http_timeout);
  fields.Finish();
  if (options->http_timeout < kShortest || options->http_timeout > kLongest) {
    FailAt(fields.Take("httpTimeout"),
           fmt::format("extender.httpTimeout: {}, want {} to {}",
                       absl::FormatDuration(options->http_timeout), absl::FormatDuration(kShortest),
                       absl::FormatDuration(kLongest)));
  }
  options->engine.bind_wait = options->http_timeout / 2;
}

void ReadAll(const YAML::Node& root, ServeOptions* options) {
  if (!root || root.IsNull()) return;
  Fields fields(root, "config");
  if (const YAML::Node engine = fields.Take("engine")) {
    yaml::ReadEngineOptions(engine, &options->engine);
  }
  if (const YAML::Node extender = fields.Take("extender")) ReadExtender(extender, options);
  if (const YAML::Node webhook = fields.Take("webhook")) ReadWebhook(webhook, &options->webhook);
  if (const YAML::Node query = fields.Take("query")) ReadQuery(query, &options->query);
  if (const YAML::Node lease = fields.Take("lease")) ReadLease(lease, options);
  if (const YAML::Node lease = fields.Take("kueueLease")) {
    ReadKueueLease(lease, &options->kueue_lease);
  }
  yaml::ReadQuotaOptions(&fields, &options->engine);
  if (const YAML::Node types = fields.Take("instanceTypes")) {
    ReadInstanceTypes(types, &options->engine.instance_types);
  }
  ReadMaxInFlight(&fields, &options->max_in_flight);
  fields.ReadDuration("stopGrace", &options->stop_grace);
  fields.Finish();
}

}  // namespace

absl::Status ApplyConfig(std::string_view yaml, const std::string& file, ServeOptions* options) {
  auto error = [&file](int line, std::string_view message) {
    // Some of the reader's errors don't know their place.
    return absl::InvalidArgumentError(
        fmt::format("{}:{}: {}", file, std::max(line, 1), kube::Excerpt(message)));
  };
  // The stricter reader goes first: what it takes, the other one takes in bounded memory.
  const yaml::YamlFile strict = yaml::ParseYaml(yaml);
  if (strict.error) return error(strict.error->line, strict.error->message);
  if (strict.documents.size() > 1) {
    return error(strict.documents[1].line(), "a second document; the configuration is one");
  }
  try {
    ReadAll(YAML::Load(std::string(yaml)), options);
    return absl::OkStatus();
  } catch (const FieldError& field) {
    return error(field.line, field.message);
  } catch (const YAML::Exception& yaml_error) {
    return error(yaml_error.mark.line + 1, yaml_error.msg);
  }
}

absl::Status ReadConfig(const std::string& path, ServeOptions* options) {
  const absl::StatusOr<std::string> text = yaml::ReadSourceFile(path);
  if (!text.ok()) {
    return absl::NotFoundError(fmt::format("{}:1: {}", path, std::string(text.status().message())));
  }
  return ApplyConfig(*text, path, options);
}

}  // namespace muster::extender
