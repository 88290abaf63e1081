#include "lint/launch_command.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "lint/text.h"

namespace muster::lint {
namespace {

struct Word {
  std::string text;
  int line;
};
using Command = std::vector<Word>;

// torchrun's options that take no value.
constexpr std::array<std::string_view, 7> kFlags = {
    "--standalone", "-m", "--module", "--no-python", "--run-path", "--use-env", "--help"};

bool EndsCommand(std::string_view word) {
  return word == ";" || word == "&&" || word == "||" || word == "|" || word == "&";
}

std::string Unquoted(std::string_view word) {
  if (word.size() >= 2 && (word.front() == '"' || word.front() == '\'') &&
      word.back() == word.front()) {
    word = word.substr(1, word.size() - 2);
  }
  return std::string(word);
}

// Splits a script as far as finding options in it needs: words, commands, comments, and lines that
// go on after a backslash. Quotes are only taken off.
void SplitScript(const yaml::YamlValue& word, std::vector<Command>* commands) {
  commands->emplace_back();
  int line = word.node()->line + (word.node()->literal ? 1 : 0);
  const int step = word.node()->literal ? 1 : 0;
  for (std::string_view text : Split(word.Text(), "\n")) {
    bool goes_on = false;
    for (std::string_view part : SplitWords(text)) {
      if (part.starts_with('#')) break;
      goes_on = part == "\\";
      if (goes_on) continue;
      const bool ends = part.size() > 1 && part.back() == ';';
      if (ends) part.remove_suffix(1);
      if (EndsCommand(part)) {
        commands->emplace_back();
        continue;
      }
      commands->back().push_back({Unquoted(part), line});
      if (ends) commands->emplace_back();
    }
    if (!goes_on) commands->emplace_back();
    line += step;
  }
}

std::vector<Command> SplitCommands(const Container& container) {
  std::vector<Command> commands(1);
  for (const yaml::YamlValue& word : container.words) {
    if (!word.is_scalar()) continue;
    if (word.Text().find_first_of(" \n\t") == std::string::npos) {
      commands.back().push_back({word.Text(), word.node()->line});
    } else {
      SplitScript(word, &commands);
    }
  }
  return commands;
}

// Index of the first option, or the command's size if it doesn't start torchrun.
size_t OptionsOf(const Command& command) {
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& text = command[i].text;
    if (text == "torchrun" || text.ends_with("/torchrun")) return i + 1;
    if (i > 0 && command[i - 1].text == "-m" &&
        (text == "torch.distributed.run" || text == "torch.distributed.launch")) {
      return i + 1;
    }
  }
  return command.size();
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t number = 0;
  if (!ParseInt(text, &number)) return std::nullopt;
  return number;
}

void TakeOption(std::string_view name, std::string_view value, int line, TorchrunCall* call) {
  if (name == "--nnodes") {
    call->nodes_line = line;
    const std::pair<std::string_view, std::string_view> bounds = SplitOnce(value, ':');
    call->min_nodes = Number(bounds.first);
    call->max_nodes =
        value.find(':') == std::string_view::npos ? call->min_nodes : Number(bounds.second);
  } else if (name == "--nproc-per-node") {
    call->processes_line = line;
    call->processes = Number(value);
  } else if (name == "--rdzv-conf") {
    for (const std::string_view setting : Split(value, ",")) {
      const std::pair<std::string_view, std::string_view> pair = SplitOnce(setting, '=');
      if (pair.first == "timeout" || pair.first == "join_timeout") {
        call->rendezvous_seconds = Number(pair.second);
      }
    }
  }
}

// Up to the first word that is neither an option nor an option's value: the training script.
TorchrunCall ReadOptions(const Command& command, size_t at) {
  TorchrunCall call;
  call.line = command[at - 1].line;
  while (at < command.size() && command[at].text.starts_with('-')) {
    const Word& option = command[at++];
    const std::pair<std::string_view, std::string_view> pair = SplitOnce(option.text, '=');
    // Both spellings are torchrun's own.
    std::string name(pair.first);
    std::ranges::replace(name, '_', '-');
    if (std::ranges::find(kFlags, name) != kFlags.end()) continue;
    std::string value = Unquoted(pair.second);
    if (option.text.find('=') == std::string::npos) {
      if (at == command.size()) break;
      value = command[at++].text;
    }
    TakeOption(name, value, option.line, &call);
  }
  return call;
}

}  // namespace

std::vector<TorchrunCall> FindTorchrun(const Container& container) {
  std::vector<TorchrunCall> calls;
  for (Command& command : SplitCommands(container)) {
    if (container.words_line > 0) {
      for (Word& word : command) word.line = container.words_line;
    }
    const size_t options = OptionsOf(command);
    // By itself, the name without any word after it is a package to install, or an echo.
    if (options < command.size()) calls.push_back(ReadOptions(command, options));
  }
  return calls;
}

}  // namespace muster::lint
