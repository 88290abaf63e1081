#include "extender/kubectl/completion.h"

#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "fmt/format.h"

namespace muster::extender {
namespace {

// ShellCompDirective of github.com/spf13/cobra.
constexpr const char* kFilesToo = ":0\n";
constexpr const char* kNoFiles = ":4\n";

std::optional<Query> QueryCalled(const std::string& name) {
  static const auto* const queries = new std::map<std::string, Query>{{"gangs", Query::kGangs},
                                                                      {"queues", Query::kQueues},
                                                                      {"nodes", Query::kNodes},
                                                                      {"explain", Query::kExplain}};
  const auto found = queries->find(name);
  return found == queries->end() ? std::nullopt : std::optional(found->second);
}

// Where the value of this flag goes; null if it is another one.
std::string* ValueOf(std::string_view flag, QueryOptions* options) {
  if (flag == "-n" || flag == "--namespace") return &options->name_space;
  if (flag == "--context") return &options->context;
  if (flag == "--kubeconfig") return &options->kubeconfig;
  return nullptr;
}

// Flags that say where to look, of words that may not be complete.
QueryOptions OptionsIn(const std::vector<std::string>& words) {
  QueryOptions options;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (std::string* value = ValueOf(words[i].substr(0, equals), &options)) {
      if (equals != std::string::npos) {
        *value = words[i].substr(equals + 1);
      } else if (i + 1 < words.size()) {
        *value = words[++i];
      }
    }
    if (words[i] == "-A" || words[i] == "--all-namespaces") options.all_namespaces = true;
  }
  return options;
}

class Candidates {
 public:
  explicit Candidates(std::string begun) : begun_(std::move(begun)) {}
  void Add(const std::string& word, const std::string& meaning = "") {
    if (!word.starts_with(begun_)) return;
    text_ += meaning.empty() ? word + "\n" : fmt::format("{}\t{}\n", word, meaning);
  }
  std::string Take(const char* directive) { return std::move(text_) + directive; }

 private:
  const std::string begun_;
  std::string text_;
};

}  // namespace

std::string Complete(const CLI::App& app, std::vector<std::string> words,
                     const std::function<std::string(const QueryOptions&)>& names) {
  if (words.empty()) words.emplace_back();
  const std::string begun = std::move(words.back());
  words.pop_back();
  Candidates candidates(begun);
  const auto shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  const std::vector<const CLI::App*> commands = app.get_subcommands(shown);
  if (words.empty()) {
    for (const CLI::App* each : commands) candidates.Add(each->get_name(), each->get_description());
    return candidates.Take(kNoFiles);
  }
  const CLI::App* command = nullptr;
  for (const CLI::App* each : commands) {
    if (each->get_name() == words.front()) command = each;
  }
  const std::optional<Query> query = QueryCalled(words.front());
  if (command != nullptr && begun.starts_with("-")) {
    for (const CLI::Option* each : command->get_options()) {
      for (const std::string& name : each->get_lnames()) {
        candidates.Add("--" + name, each->get_description());
      }
    }
    return candidates.Take(kNoFiles);
  }
  if (!query) return candidates.Take(kFilesToo);
  const std::string& before = words.back();
  if (before == "-o" || before == "--output") {
    for (const char* form : {"table", "wide", "json", "yaml", "name"}) candidates.Add(form);
    return candidates.Take(kNoFiles);
  }
  QueryOptions options = OptionsIn(words);
  if (before == "--kubeconfig") return candidates.Take(kFilesToo);
  if (ValueOf(before, &options) != nullptr) return candidates.Take(kNoFiles);
  options.query = *query == Query::kExplain ? Query::kGangs : *query;
  options.output = "name";
  std::istringstream found(names(options));
  for (std::string name; std::getline(found, name);) {
    candidates.Add(name.substr(name.find('/') + 1));
  }
  return candidates.Take(kNoFiles);
}

}  // namespace muster::extender
