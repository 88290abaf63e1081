#include "worker/diagnose/diagnose_command.h"

#include <cstddef>
#include <optional>
#include <string_view>

#include "worker/diagnose/diagnosis.h"
#include "worker/diagnose/report.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr std::string_view kUsage =
    "usage: muster-worker diagnose [-o text|json] FILE...\n"
    "Explains workers' logs, NCCL's, the kernel's, and what kubectl describe prints; several at "
    "once\n"
    "tell who failed first. - is standard input.\n"
    "Exit code 0: something was explained; 1: nothing was recognised; 2: a file couldn't be "
    "read.\n";

struct Options {
  bool help = false;
  bool json = false;
  std::vector<std::string> files;
};

// Sets `error` where the arguments are wrong.
Options ParseOptions(const std::vector<std::string>& arguments, std::string* error) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i];
    std::optional<std::string_view> format;
    if (argument == "-h" || argument == "--help") {
      options.help = true;
    } else if (argument == "-o" || argument == "--output") {
      format = ++i < arguments.size() ? std::string_view(arguments[i]) : std::string_view();
    } else if (ConsumePrefix(&argument, "--output=")) {
      format = argument;
    } else if (argument.size() > 1 && argument[0] == '-') {
      *error = "unknown option " + arguments[i];
    } else {
      options.files.push_back(arguments[i]);
    }
    if (format && format != "text" && format != "json") *error = "-o is followed by text or json";
    if (format) options.json = format == "json";
  }
  if (options.files.empty() && error->empty()) *error = "no file is named";
  return options;
}

}  // namespace

int RunDiagnose(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  std::string error;
  const Options options = ParseOptions(arguments, &error);
  if (options.help) {
    out << kUsage;
    return 0;
  }
  if (!error.empty()) {
    err << "diagnose: " << error << "\n" << kUsage;
    return 2;
  }
  Diagnosis diagnosis;
  bool unreadable = false;
  for (const std::string& file : options.files) {
    const absl::Status status = diagnosis.ReadFile(file);
    if (status.ok()) continue;
    unreadable = true;
    err << "diagnose: " << status.message() << "\n";
  }
  const Explanation explanation = diagnosis.Explain();
  const bool explained = !explanation.findings.empty();
  if (options.json) {
    out << ExplanationJson(explanation);
  } else if (explained) {
    out << ExplanationText(explanation);
  } else {
    out << "Nothing in it shows a cause that is known.\n";
  }
  if (unreadable) return 2;
  return explained ? 0 : 1;
}

}  // namespace muster::worker
