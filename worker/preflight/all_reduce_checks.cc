#include "worker/preflight/all_reduce_checks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>

#include "fmt/format.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr char kResult[] = "all-reduce result";
constexpr char kInNodes[] = "all-reduce in nodes";
constexpr char kAcross[] = "all-reduce across";

struct Variable {
  const char* name;
  std::string_view harmful;  // a value; with '!' every other one
};
constexpr std::array<Variable, 3> kNodeVariables = {
    {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_P2P_LEVEL", "LOC"}, {"NCCL_SHM_DISABLE", "1"}}};
constexpr std::array<Variable, 3> kFabricVariables = {
    {{"NCCL_NET", "Socket"}, {"NCCL_NET_PLUGIN", "none"}, {"FI_PROVIDER", "!efa"}}};

std::string HarmfulOf(Machine& machine, std::span<const Variable> variables) {
  std::string text;
  for (const Variable& variable : variables) {
    const auto value = machine.Environment(variable.name);
    if (!value) continue;
    std::string_view harmful = variable.harmful;
    const bool all_but = ConsumePrefix(&harmful, "!");
    if ((*value == harmful) == all_but) continue;
    Append(&text, text.empty() ? "" : ", ", variable.name, "=", *value);
  }
  return text;
}

std::string Rate(double rate) { return fmt::format("{:.1f} GB/s", rate); }

// One node of the job.
struct Node {
  int number = 0;
  int ranks = 0;
  const RankAllReduce* first = nullptr;
  double rate = 0;       // of its slowest rank
  double threshold = 0;  // 0: none
  bool slow() const { return rate < threshold; }
};

std::string Named(const Node& node) {
  return Concat("node ", node.number, " (", node.first->host, ")");
}

class Judgement {
 public:
  Judgement(const std::vector<RankAllReduce>& ranks, const AllReduceExpectations& expected)
      : ranks_(ranks), expected_(expected) {
    for (const RankAllReduce& rank : ranks) {
      Node& node = nodes_[rank.node];
      if (node.first == nullptr)
        node = {.number = rank.node, .first = &rank, .rate = rank.found.node};
      node.rate = std::min(node.rate, rank.found.node);
      ++node.ranks;
    }
    for (auto& [number, node] : nodes_) {
      const InstanceBandwidth* known =
          FindBandwidth(expected.table, node.first->links.instance_type);
      node.threshold = expected.node.value_or(known == nullptr ? 0 : known->node);
    }
  }

  AllReduceVerdict All() {
    if (CheckResult()) {
      CheckInNodes();
      if (nodes_.size() > 1) CheckAcross();
    }
    return std::move(verdict_);
  }

 private:
  void Accuse(const RankAllReduce& rank) {
    if (verdict_.rank_at_fault.has_value()) return;
    verdict_.rank_at_fault = rank.rank;
    verdict_.host_at_fault = rank.host;
  }

  bool CheckResult() {
    std::string wrong;
    size_t named = 0;
    for (const RankAllReduce& rank : ranks_) {
      if (!rank.found.wrong.has_value() || named == kMaxNamed) continue;
      ++named;
      Accuse(rank);
      const WrongSum& sum = *rank.found.wrong;
      Append(&wrong, wrong.empty() ? "" : "; ", "rank ", rank.rank, " on ", rank.host,
             rank.gpu.empty() ? "" : Concat(", ", rank.gpu, ","),
             sum.reach == Reach::kNode ? " in its node" : " across nodes", ": element ",
             sum.element,
             fmt::format(" is {} instead of {}, {} wrong in all", sum.found, sum.expected,
                         sum.wrong_elements));
    }
    verdict_.rows.push_back(
        wrong.empty()
            ? Row{.check = kResult,
                  .numbers = Concat("exact on ", ranks_.size(),
                                    ranks_.size() == 1 ? " rank of " : " ranks of ", nodes_.size(),
                                    nodes_.size() == 1 ? " node" : " nodes")}
            : FailedRow(kResult, CauseId::kAllReduceWrong, wrong));
    return wrong.empty();
  }

  // Slowest first: what is too long is cut at its end.
  std::vector<const Node*> Measured() const {
    std::vector<const Node*> measured;
    for (const auto& [number, node] : nodes_) {
      if (node.ranks > 1) measured.push_back(&node);
    }
    std::ranges::stable_sort(measured, {}, &Node::rate);
    return measured;
  }

  void CheckInNodes() {
    const std::vector<const Node*> measured = Measured();
    if (measured.empty()) return;
    std::string numbers;
    std::vector<const Node*> slow;
    bool known = true;
    for (const Node* node : measured) {
      Append(&numbers, numbers.empty() ? "" : ", ", Named(*node), " ", Rate(node->rate));
      if (node->slow()) slow.push_back(node);
      known = known && node->threshold > 0;
    }
    const double threshold = measured[0]->threshold;
    if (slow.empty()) {
      verdict_.rows.push_back(
          known ? Row{.check = kInNodes,
                      .numbers = Concat(numbers, "; at least ", Rate(threshold), " is expected")}
                : NoThreshold(kInNodes, numbers, "--node-bandwidth"));
      return;
    }
    Append(&numbers, "; ", Rate(slow[0]->threshold), " is expected of ", TypeOf(*slow[0]));
    std::string variables;
    for (const Node* node : slow) {
      verdict_.nodes_at_fault.push_back(node->number);
      if (variables.empty()) variables = node->first->links.keeps_from_node;
    }
    std::ranges::sort(verdict_.nodes_at_fault);
    Accuse(*slow[0]->first);
    verdict_.rows.push_back(!variables.empty() ? Switched(kInNodes, numbers, variables)
                            // What all nodes have in common is no node's fault.
                            : slow.size() == measured.size() && slow.size() > 1
                                ? FailedRow(kInNodes, CauseId::kAllReduceSlow, numbers)
                                : FailedRow(kInNodes, CauseId::kGpuLinksSlow, numbers));
  }

  void CheckAcross() {
    double rate = ranks_[0].found.across;
    for (const RankAllReduce& rank : ranks_) rate = std::min(rate, rank.found.across);
    double threshold = 0;
    const Node* weakest = nullptr;  // whose type is expected to reach the least
    bool known = true;
    for (const auto& [number, node] : nodes_) {
      const InstanceBandwidth* type =
          FindBandwidth(expected_.table, node.first->links.instance_type);
      const double own = expected_.across.value_or(
          type == nullptr ? 0
                          : AcrossThreshold(*type, node.ranks, static_cast<int>(nodes_.size())));
      known = known && own > 0;
      if (weakest != nullptr && own >= threshold) continue;
      threshold = own;
      weakest = &node;
    }
    std::string numbers =
        Concat(Rate(rate), " among ", ranks_.size(), " ranks of ", nodes_.size(), " nodes");
    if (!known) {
      verdict_.rows.push_back(NoThreshold(kAcross, numbers, "--fabric-bandwidth"));
      return;
    }
    if (rate >= threshold) {
      Append(&numbers, "; at least ", Rate(threshold), " is expected");
      verdict_.rows.push_back({.check = kAcross, .numbers = numbers});
      return;
    }
    Append(&numbers, "; ", Rate(threshold), " is expected of ", TypeOf(*weakest));
    verdict_.rows.push_back(WhyAcross(numbers));
  }

  // The nodes' own obstacle, if one has any.
  Row WhyAcross(std::string numbers) {
    for (const auto& [number, node] : nodes_) {
      const LinkFacts& links = node.first->links;
      const std::string& variables =
          links.keeps_from_fabric.empty() ? links.keeps_from_node : links.keeps_from_fabric;
      // Other machines have other networks.
      const bool on_ec2 = FindBandwidth(Ec2Bandwidths(), links.instance_type) != nullptr;
      const bool no_device = on_ec2 && links.efa_devices == 0;
      const bool no_plugin = on_ec2 && !links.has_plugin;
      if (!no_device && !no_plugin && variables.empty()) continue;
      Accuse(*node.first);
      if (!variables.empty())
        return Switched(kAcross, Concat(numbers, "; ", Named(node)), variables);
      Append(&numbers, "; ", Named(node),
             no_device ? " has no EFA device in this container" : " doesn't find aws-ofi-nccl");
      return FailedRow(kAcross, no_device ? CauseId::kNoEfaProvider : CauseId::kNetworkIsSocket,
                       numbers);
    }
    if (const auto measured = Measured(); !measured.empty()) {
      Append(&numbers, "; the slowest in itself is ", Named(*measured[0]), " with ",
             Rate(measured[0]->rate));
    }
    return FailedRow(kAcross, CauseId::kAllReduceSlow, numbers);
  }

  static Row Switched(std::string check, const std::string& numbers, const std::string& variables) {
    Row row = FailedRow(std::move(check), CauseId::kConfigurationInvalid,
                        Concat(numbers, "; set in the environment: ", variables));
    row.fix = "Remove these variables; NCCL finds the fastest way by itself.";
    return row;
  }

  std::string TypeOf(const Node& node) const {
    const std::string& type = node.first->links.instance_type;
    return type.empty() ? Named(node) : type;
  }

  Row NoThreshold(std::string check, const std::string& numbers, std::string_view flag) const {
    std::string types;
    for (const auto& [number, node] : nodes_) {
      const std::string& type = node.first->links.instance_type;
      if (FindBandwidth(expected_.table, type) != nullptr) continue;
      types = type;
      break;
    }
    return {.check = std::move(check),
            .verdict = Verdict::kWarning,
            .numbers = Concat(numbers, "; not judged: nothing is known of ",
                              types.empty() ? "this machine's instance type" : types),
            .fix = Concat("Say what is expected by ", flag,
                          ", by --bandwidths, or by --instance-type."),
            .cause = CauseId::kConfigurationInvalid};
  }

  const std::vector<RankAllReduce>& ranks_;
  const AllReduceExpectations& expected_;
  std::map<int, Node> nodes_;
  AllReduceVerdict verdict_;
};

// As it goes through a communicator; ranks have one version of the program.
struct Told {
  int32_t node = 0;
  std::array<char, 256> host = {};
  std::array<char, 64> instance_type = {};
  std::array<char, 256> keeps_from_node = {}, keeps_from_fabric = {};
  int32_t efa_devices = 0;
  int32_t has_plugin = 0;
  double node_rate = 0, across_rate = 0;
  int32_t is_wrong = 0;
  int32_t wrong_reach = 0;
  int64_t element = 0, wrong_elements = 0;
  float found = 0, expected = 0;
};

template <size_t Size>
void Put(const std::string& text, std::array<char, Size>& place) {
  std::copy_n(text.begin(), std::min(text.size(), Size - 1), place.begin());
}

template <size_t Size>
std::string Taken(const std::array<char, Size>& place) {
  return {place.data(), strnlen(place.data(), Size)};
}

}  // namespace

LinkFacts ReadLinksInNode(Machine& machine, const std::string& instance_type) {
  LinkFacts links = {.instance_type = instance_type};
  if (links.instance_type.empty()) {
    links.instance_type = machine.Environment("MUSTER_INSTANCE_TYPE").value_or("");
  }
  constexpr std::string_view kDmi = "/sys/devices/virtual/dmi/id/";
  if (links.instance_type.empty() &&
      StripBlanks(machine.ReadFile(Concat(kDmi, "sys_vendor")).value_or("")) == "Amazon EC2") {
    links.instance_type = StripBlanks(machine.ReadFile(Concat(kDmi, "product_name")).value_or(""));
  }
  links.keeps_from_node = HarmfulOf(machine, kNodeVariables);
  return links;
}

LinkFacts ReadLinks(Machine& machine, const std::string& instance_type) {
  LinkFacts links = ReadLinksInNode(machine, instance_type);
  links.efa_devices = CountEfaDevices(machine).given;
  links.has_plugin = FindNetworkPlugin(machine).ok();
  links.keeps_from_fabric = HarmfulOf(machine, kFabricVariables);
  return links;
}

absl::StatusOr<std::vector<RankAllReduce>> ShareAllReduces(Communicator& ranks,
                                                           const RankAllReduce& own,
                                                           absl::Duration timeout) {
  std::vector<Told> all(ranks.world_size());
  Told& mine = all[ranks.rank()];
  mine.node = own.node;
  Put(own.host, mine.host);
  Put(own.links.instance_type, mine.instance_type);
  Put(own.links.keeps_from_node, mine.keeps_from_node);
  Put(own.links.keeps_from_fabric, mine.keeps_from_fabric);
  mine.efa_devices = own.links.efa_devices;
  mine.has_plugin = own.links.has_plugin ? 1 : 0;
  mine.node_rate = own.found.node;
  mine.across_rate = own.found.across;
  if (own.found.wrong.has_value()) {
    const WrongSum& wrong = *own.found.wrong;
    mine.is_wrong = 1;
    mine.wrong_reach = static_cast<int32_t>(wrong.reach);
    mine.element = wrong.element;
    mine.wrong_elements = wrong.wrong_elements;
    mine.found = wrong.found;
    mine.expected = wrong.expected;
  }
  absl::Status status = ranks.AllGather(std::as_bytes(std::span(&mine, 1)),
                                        std::as_writable_bytes(std::span(all)), timeout);
  if (!status.ok()) return status;
  std::vector<RankAllReduce> read;
  for (const Told& told : all) {
    RankAllReduce& rank = read.emplace_back();
    rank.rank = static_cast<int>(read.size()) - 1;
    rank.node = told.node;
    rank.host = Taken(told.host);
    rank.links = {.instance_type = Taken(told.instance_type),
                  .efa_devices = told.efa_devices,
                  .has_plugin = told.has_plugin != 0,
                  .keeps_from_node = Taken(told.keeps_from_node),
                  .keeps_from_fabric = Taken(told.keeps_from_fabric)};
    rank.found.node = told.node_rate;
    rank.found.across = told.across_rate;
    if (told.is_wrong == 0) continue;
    rank.found.wrong = {.reach = static_cast<Reach>(told.wrong_reach),
                        .element = told.element,
                        .found = told.found,
                        .expected = told.expected,
                        .wrong_elements = told.wrong_elements};
  }
  return read;
}

AllReduceVerdict CheckAllReduces(const std::vector<RankAllReduce>& ranks,
                                 const AllReduceExpectations& expected) {
  return Judgement(ranks, expected).All();
}

std::optional<Failure> FailureOf(const AllReduceVerdict& verdict, int node) {
  const auto failed = std::ranges::find(verdict.rows, Verdict::kFailed, &Row::verdict);
  if (failed == verdict.rows.end()) return std::nullopt;
  const bool others = failed->cause == CauseId::kGpuLinksSlow &&
                      !std::ranges::binary_search(verdict.nodes_at_fault, node);
  return Failure{.cause = others ? CauseId::kPeerSlow : failed->cause,
                 .detail = Concat(failed->check, ": ", failed->numbers),
                 .rank = verdict.rank_at_fault,
                 .host = verdict.host_at_fault};
}

}  // namespace muster::worker
