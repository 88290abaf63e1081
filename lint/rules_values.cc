// Amounts that nobody means, and those that a namespace rules out.
#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "kube/objects/quantity.h"
#include "kube/objects/well_known.h"
#include "lint/near.h"
#include "lint/rules.h"
#include "lint/text.h"
#include "lint/walk.h"

namespace muster::lint {
namespace {

using yaml::YamlField;
using yaml::YamlValue;

constexpr std::string_view kUnlikely = "value-unlikely";
constexpr int64_t kMebibyte = 1 << 20;
constexpr int64_t kMostCores = 1000;  // of a container; the largest machines have 896

constexpr std::array<std::string_view, 8> kResources = {
    kube::kCpu, "memory", "ephemeral-storage",        "storage", kGpu,
    kEfa,       kNeuron,  "aws.amazon.com/neuroncore"};

bool IsBytes(std::string_view resource) {
  return resource == "memory" || resource == "ephemeral-storage" || resource == "storage" ||
         resource.starts_with("hugepages-");
}

std::optional<int64_t> Parse(std::string_view text, std::string_view resource) {
  const absl::StatusOr<int64_t> amount = kube::ParseQuantity(text, kube::UnitOf(resource));
  return amount.ok() ? std::optional(*amount) : std::nullopt;
}

// The resource that was meant by a name that no node has; empty: it is one, or may be.
std::string_view ResourceMeant(std::string_view name) {
  if (std::ranges::find(kResources, name) != kResources.end()) return "";
  const auto [domain, part] = SplitOnce(name, '/');
  std::string lower(part.empty() ? domain : part);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto of = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (lower == "gpus" || lower == "gpu" || lower == "nvidia-gpu" || lower == "nvidia.com") {
    if (of("nvidia") || part.empty()) return kGpu;
  }
  if (lower == "efa" && (of("amazon") || of("aws") || part.empty())) return kEfa;
  if (part.empty() && lower == "mem") return "memory";
  if (part.empty() && (lower == "cpus" || lower == "cores")) return kube::kCpu;
  // "gpu.shared" is another one.
  if (part.find('.') != std::string_view::npos || name.size() < 5) return "";
  for (const std::string_view each : kResources) {
    const bool longer = name.size() > each.size() + 1 && name.starts_with(each);
    if (IsNear(name, each) && !longer && each.size() >= 5) return each;
  }
  return "";
}

class Values {
 public:
  Values(const WalkedObject& object, Findings* findings) : object_(object), findings_(findings) {}

  void See(const WalkedField& at) {
    if (at.Is("sizeLimit") || at.Is("volumeSize")) Bytes("storage", at.value);
    if (at.Is("nominalQuota") || at.Is("borrowingLimit") || at.Is("lendingLimit")) {
      const std::string& resource = at.parent.Get("name").Text();
      if (IsBytes(resource)) Bytes(resource, at.value);
    }
    // Kueue may count resources by names of its own.
    if (at.Is("coveredResources.*") && at.value.Text().find('/') != std::string::npos) {
      Name(at.value.Text(), at.value);
    }
    const bool limits = at.IsIn("limits") || at.IsIn("requests");
    const bool pods = limits && at.path.size() > 2 &&
                      at.path[at.path.size() - 3].starts_with("resources") && at.value.is_scalar();
    const bool quota = at.IsIn("hard") && object_.kind == "ResourceQuota";
    if (limits || at.IsIn("default") || at.IsIn("defaultRequest") || quota) {
      std::string_view resource = at.Name();
      for (const std::string_view prefix : {"requests.", "limits."}) {
        if (quota && resource.starts_with(prefix)) resource.remove_prefix(prefix.size());
      }
      if (IsBytes(resource)) Bytes(resource, at.value);
      if (limits || resource.find('/') != std::string_view::npos) Name(resource, at.value);
      const bool device = resource == kGpu || resource == kEfa || resource == kNeuron;
      if (quota && device && resource == at.Name()) {
        Add("api-refused", at.value.line(),
            fmt::format("a ResourceQuota counts {} by requests only", resource),
            Concat("call it requests.", resource));
      }
    }
    if (!pods) return;
    const std::optional<int64_t> cores = Parse(at.value.Text(), kube::kCpu);
    if (at.Name() == kube::kCpu && cores && *cores >= kMostCores * 1000) {
      Add(kUnlikely, at.value.line(),
          fmt::format("{} of cpu are as many cores, which no machine has", at.value.Text()),
          at.value.Text().find_first_not_of("0123456789") == std::string::npos
              ? fmt::format("write {}m if thousandths are meant", at.value.Text())
              : std::string("write the number of cores, without a unit"));
    }
  }

 private:
  void Add(std::string_view rule, int line, std::string_view text, const std::string& fix) {
    if (findings_->HasErrorAt(object_.file, line)) return;
    findings_->Add(rule, object_.file, line, Concat(object_.what, ": ", text), fix);
  }

  static std::string Digits(std::string_view text) {
    return std::string(text.substr(0, text.find_first_not_of("0123456789.")));
  }

  void Bytes(std::string_view resource, const YamlValue& value) {
    const std::string& text = value.Text();
    const std::string number = Digits(text);
    if (number.empty() || number == "0") return;
    const bool thousandths = text.ends_with('m') && text.size() == number.size() + 1;
    const std::optional<int64_t> bytes = Parse(text, resource);
    if (!thousandths && (!bytes || *bytes >= kMebibyte)) return;
    Add(kUnlikely, value.line(),
        thousandths ? fmt::format("{} of {} is {} thousandths of a byte: m is milli", text,
                                  resource, number)
                    : fmt::format("{} of {} is {}: a unit is missing, or another one is meant",
                                  text, resource, Counted(*bytes, "byte")),
        fmt::format("write {0}Gi, or {0}Mi", number));
  }

  void Name(std::string_view resource, const YamlValue& value) {
    const std::string_view meant = ResourceMeant(resource);
    if (meant.empty()) return;
    Add("device-unknown", value.line(), fmt::format("it asks for {}, which no node has", resource),
        Concat("the resource is called ", meant));
  }

  const WalkedObject& object_;
  Findings* const findings_;
};

// --- what a namespace allows ---

// What a quota's entry counts of the pods of a job; "pods" are they themselves.
int64_t AsksInAll(const Workload& workload, std::string_view resource) {
  int64_t sum = 0;
  for (const PodTemplate& pods : workload.templates) {
    const int64_t each = resource == "pods" ? 1 : pods.Asks(resource).value;
    int64_t all = 0;
    if (__builtin_mul_overflow(each, pods.pods, &all) || __builtin_add_overflow(sum, all, &sum)) {
      return 0;
    }
  }
  return sum;
}

void CheckQuota(const WalkedObject& quota, const Manifests& manifests, Findings* findings) {
  const YamlValue spec = quota.yaml.Get("spec");
  if (spec.Get("scopes").present() || spec.Get("scopeSelector").present()) return;
  for (const YamlField& field : spec.Get("hard").Fields()) {
    std::string_view resource = field.key;
    if (resource.starts_with("requests.")) resource.remove_prefix(9);
    const std::optional<int64_t> hard = Parse(field.value->text, resource);
    if (!hard) continue;
    for (const Workload& workload : manifests.workloads) {
      const int64_t asked = AsksInAll(workload, resource);
      if (workload.name_space != quota.name_space || asked <= *hard || !workload.is_gang) continue;
      const std::string amount = resource == kube::kCpu ? Concat((asked + 999) / 1000)
                                 : IsBytes(resource)
                                     ? Concat((asked + kMebibyte - 1) / kMebibyte, "Mi")
                                     : Concat(asked);
      findings->Add("quota-too-small", quota.file, field.line,
                    fmt::format("{} allows {} of {} in namespace {}, and {} asks for {}: the API "
                                "server refuses some of its pods",
                                quota.what, field.value->text, field.key, quota.name_space,
                                workload.ToString(), amount),
                    fmt::format("raise {} to {}, or make the job smaller", field.key, amount),
                    Concat(field.key, ": \"", amount, "\"\n"));
      break;
    }
  }
}

// What one container asks for of a resource, with what a LimitRange gives it that says nothing.
struct Asked {
  const LocatedCount* request = nullptr;  // nullptr: nothing
  const LocatedCount* limit = nullptr;
};

Asked AskedOf(const Container& container, std::string_view resource) {
  Asked asked;
  const auto limit = container.limits.find(resource);
  const auto request = container.requests.find(resource);
  if (limit != container.limits.end()) asked.limit = &limit->second;
  asked.request = request != container.requests.end() ? &request->second : asked.limit;
  return asked;
}

// What the range's entry of that name has for the resource.
LocatedCount EntryOf(const YamlValue& item, std::string_view entry, std::string_view resource) {
  const YamlValue value = item.Get(entry).Get(resource);
  const std::optional<int64_t> amount = Parse(value.Text(), resource);
  return value.present() && amount ? LocatedCount{*amount, value.line()} : LocatedCount();
}

void CheckContainer(const WalkedObject& range, const YamlValue& item, const std::string& resource,
                    const Workload& workload, const PodTemplate& pods, const Container& container,
                    Findings* findings) {
  const Asked asked = AskedOf(container, resource);
  const auto tell = [&](const std::string& file, int line, const std::string& message,
                        const std::string& fix) {
    findings->Add("api-refused", file, line,
                  fmt::format("{}: container {} {}, so that the API server refuses its pods",
                              workload.ToString(), container.name, message),
                  fix);
  };
  const LocatedCount given = EntryOf(item, "default", resource);
  if (given.present() && asked.limit == nullptr && asked.request != nullptr &&
      asked.request->value > given.value) {
    const std::string text = item.Get("default").Get(resource).Text();
    tell(range.file, given.line,
         fmt::format("requests more {} than the {} that {} gives it as its limit", resource, text,
                     range.what),
         fmt::format("set a {} limit in the container, not below its request, or leave {} out of "
                     "the LimitRange's default",
                     resource, resource));
  }
  const LocatedCount min = EntryOf(item, "min", resource);
  if (min.present() && asked.request != nullptr && asked.request->value < min.value) {
    const std::string text = item.Get("min").Get(resource).Text();
    tell(pods.file, asked.request->line,
         fmt::format("requests less {} than {}'s min {}", resource, range.what, text),
         fmt::format("request {} of {} at least", text, resource));
  }
  int64_t ratio = 0;
  const YamlValue most = item.Get("maxLimitRequestRatio").Get(resource);
  if (ParseInt(most.Text(), &ratio) && asked.limit != nullptr && asked.request != nullptr &&
      asked.request->value > 0 && asked.limit->value / asked.request->value > ratio) {
    tell(pods.file, asked.limit->line,
         fmt::format("has a {} limit of more than {} times its request, which {} rules out",
                     resource, ratio, range.what),
         fmt::format("lower the {} limit, or raise the request", resource));
  }
}

void CheckMost(const WalkedObject& range, const YamlValue& item, const YamlField& field,
               const Workload& workload, const PodTemplate& pods, Findings* findings) {
  const bool of_pod = item.Get("type").Text() == "Pod";
  const std::optional<int64_t> max = Parse(field.value->text, field.key);
  LocatedCount asks = pods.Asks(field.key);
  for (const Container& each : pods.containers) {
    if (!of_pod) asks = each.Asks(field.key);
    if (max && asks.value > *max) break;
  }
  if (!max || asks.value <= *max) return;
  findings->Add("api-refused", pods.file, asks.line,
                fmt::format("{} asks for more {} than {}'s {}, which the API server refuses",
                            workload.ToString(), field.key, range.what, field.value->text),
                fmt::format("ask for {} of {} at most, or raise max in line {} of {}",
                            field.value->text, field.key, field.line, range.what));
}

void CheckLimitRange(const WalkedObject& range, const Manifests& manifests, Findings* findings) {
  for (const YamlValue& item : range.yaml.At("spec.limits").Items()) {
    const bool of_pod = item.Get("type").Text() == "Pod";
    if (!of_pod && item.Get("type").Text() != "Container") continue;
    std::set<std::string> resources;
    for (const char* entry : {"default", "min", "maxLimitRequestRatio"}) {
      for (const YamlField& field : item.Get(entry).Fields()) resources.insert(field.key);
    }
    for (const Workload& workload : manifests.workloads) {
      if (workload.name_space != range.name_space) continue;
      for (const PodTemplate& pods : workload.templates) {
        for (const YamlField& field : item.Get("max").Fields()) {
          CheckMost(range, item, field, workload, pods, findings);
        }
        for (const Container& container : pods.containers) {
          for (const std::string& resource : resources) {
            if (of_pod) break;
            CheckContainer(range, item, resource, workload, pods, container, findings);
          }
        }
      }
    }
  }
}

}  // namespace

void CheckAllValues(const Manifests& manifests, Findings* findings) {
  for (const WalkedObject& object : WalkedObjects(manifests)) {
    if (object.kind == "ResourceQuota") CheckQuota(object, manifests, findings);
    if (object.kind == "LimitRange") CheckLimitRange(object, manifests, findings);
    Values values(object, findings);
    Walk(object.yaml, [&](const WalkedField& at) { values.See(at); });
  }
}

}  // namespace muster::lint
