#include "worker/preflight/preflight_command.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr std::string_view kUsage =
    "usage: muster-worker preflight [OPTION=VALUE...]\n"
    "  --gpus=N                 GPUs that the pod asks for\n"
    "  --efa-devices=N          EFA devices that the pod asks for\n"
    "  --cuda-version=N         CUDA version of the program: 13000 is 13.0\n"
    "  --checkpoint-folder=F    must take files and renames\n"
    "  --checkpoint-bytes=N     what one node writes\n"
    "  --checkpoint-speed=N     bytes per second that the volume takes from one node\n"
    "  --grace-period=N         the pod's terminationGracePeriodSeconds\n"
    "  --output=text|json\n"
    "Exit code 0: no check failed; below 128: something must be changed first; from 128 on: "
    "another\n"
    "start, on another node, may succeed; 2: wrong arguments.\n";

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      break;
  }
  return "failed";
}

struct Parsed {
  Expectations& expected;
  bool& json;
};

struct Option {
  std::string_view name;
  int64_t least;
  int64_t most;
  void (*set)(Parsed*, int64_t);
};

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr std::array<Option, 6> kOptions = {{
    {"--gpus", 0, 1024, [](Parsed* o, int64_t n) { o->expected.gpus = static_cast<int>(n); }},
    {"--efa-devices", 0, 1024,
     [](Parsed* o, int64_t n) { o->expected.efa_devices = static_cast<int>(n); }},
    {"--cuda-version", 0, 1'000'000,
     [](Parsed* o, int64_t n) { o->expected.cuda_version = static_cast<int>(n); }},
    {"--checkpoint-bytes", 0, kAny, [](Parsed* o, int64_t n) { o->expected.checkpoint_bytes = n; }},
    {"--checkpoint-speed", 1, kAny,
     [](Parsed* o, int64_t n) { o->expected.checkpoint_bytes_per_second = n; }},
    {"--grace-period", 0, 1'000'000,
     [](Parsed* o, int64_t n) { o->expected.grace_period = absl::Seconds(n); }},
}};

// What is wrong with `argument`, or ""; nothing if it isn't known.
std::optional<std::string> Set(std::string_view argument, Parsed* parsed) {
  const size_t equals = argument.find('=');
  const std::string_view name = argument.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : argument.substr(equals + 1);
  if (name == "--output") {
    parsed->json = value == "json";
    return value == "json" || value == "text" ? "" : "--output is text or json";
  }
  if (name == "--checkpoint-folder") {
    parsed->expected.checkpoint_folder = value;
    return value.empty() ? "--checkpoint-folder needs a folder" : "";
  }
  for (const Option& option : kOptions) {
    if (option.name != name) continue;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < option.least ||
        number > option.most) {
      return Concat(name, " must be a whole number from ", option.least, " to ", option.most);
    }
    option.set(parsed, number);
    return "";
  }
  return std::nullopt;
}

}  // namespace

std::string RowsText(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    Append(&text, fmt::format("{:<8} {:<22} {}\n", VerdictName(row.verdict), row.check,
                              Printable(row.numbers, 2000)));
    if (!row.fix.empty()) Append(&text, fmt::format("{:<8} fix: {}\n", "", row.fix));
  }
  return text;
}

std::string RowsJson(const std::vector<Row>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) {
    nlohmann::json one = {{"check", row.check},
                          {"verdict", VerdictName(row.verdict)},
                          {"numbers", Printable(row.numbers, 2000)}};
    if (row.verdict != Verdict::kOk) {
      one["fix"] = row.fix;
      one["cause"] = CauseOf(row.cause).name;
    }
    list.push_back(std::move(one));
  }
  const nlohmann::json report = {{"rows", std::move(list)}, {"exitCode", ExitCodeOf(rows)}};
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string_view PreflightUsage() { return kUsage; }

std::string TakePreflightOptions(std::vector<std::string>* arguments, PreflightOptions* options) {
  Parsed parsed = {.expected = options->expected, .json = options->json};
  std::vector<std::string> others;
  for (const std::string& argument : *arguments) {
    if (argument == "--help" || argument == "-h") {
      options->help = true;
    } else if (const auto error = Set(argument, &parsed); !error.has_value()) {
      others.push_back(argument);
    } else if (!error->empty()) {
      return *error;
    }
  }
  *arguments = std::move(others);
  return "";
}

int RunPreflight(const std::vector<std::string>& arguments, Machine& machine, std::ostream& out,
                 std::ostream& err) {
  PreflightOptions options;
  std::vector<std::string> others = arguments;
  std::string error = TakePreflightOptions(&others, &options);
  if (error.empty() && !others.empty()) error = Concat("unknown argument ", others[0]);
  if (!error.empty()) {
    err << "preflight: " << error << "\n" << kUsage;
    return 2;
  }
  if (options.help) {
    out << kUsage;
    return 0;
  }
  const std::vector<Row> rows = CheckMachine(machine, options.expected);
  out << (options.json ? RowsJson(rows) : RowsText(rows));
  return ExitCodeOf(rows);
}

}  // namespace muster::worker
