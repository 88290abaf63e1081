#include "lint/launch_command.h"

#include <algorithm>
#include <array>
#include <iterator>
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

// Options that take no value, of torchrun, accelerate and deepspeed.
constexpr std::array<std::string_view, 14> kFlags = {
    "--standalone", "-m",       "--module",      "--no-python",   "--run-path",
    "--use-env",    "--help",   "--multi-gpu",   "--use-fsdp",    "--use-deepspeed",
    "--debug",      "--no-ssh", "--force-multi", "--same-network"};

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
  if (container.words_line > 0) {
    for (Command& command : commands) {
      for (Word& word : command) word.line = container.words_line;
    }
  }
  return commands;
}

// Index of the first option, or the command's size if it doesn't start torchrun.
size_t OptionsOf(const Command& command) {
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& text = command[i].text;
    if (text == "torchrun" || text.ends_with("/torchrun")) return i + 1;
    if (text == "launch" && i > 0 && command[i - 1].text == "accelerate") return i + 1;
    if (text == "deepspeed" && (i == 0 || command[i - 1].text == "exec")) return i + 1;
    if (i > 0 && command[i - 1].text == "-m" &&
        (text == "torch.distributed.run" || text == "torch.distributed.launch")) {
      return i + 1;
    }
  }
  return command.size();
}

// What mpirun runs, whose own options follow; as far as it can be told from an option's value.
bool StartsProgram(std::string_view before, std::string_view word) {
  constexpr std::string_view kWithoutValue[] = {"--allow-run-as-root", "--tag-output",
                                                "--oversubscribe", "-v", "--report-bindings"};
  const bool of_option = before.starts_with('-') &&
                         std::ranges::find(kWithoutValue, before) == std::end(kWithoutValue);
  return !of_option && (word.starts_with("python") || word == "bash" || word == "sh" ||
                        word.starts_with('/') || word.starts_with("./"));
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t number = 0;
  if (!ParseInt(text, &number)) return std::nullopt;
  return number;
}

void TakeOption(std::string_view name, std::string_view value, int line, TorchrunCall* call) {
  if (name == "--nnodes" || name == "--num-machines" || name == "--num-nodes") {
    if (name == "--num-machines") call->nodes_said = "accelerate --num_machines";
    if (name == "--num-nodes") call->nodes_said = "deepspeed --num_nodes";
    call->nodes_line = line;
    const std::pair<std::string_view, std::string_view> bounds = SplitOnce(value, ':');
    call->min_nodes = Number(bounds.first);
    call->max_nodes =
        value.find(':') == std::string_view::npos ? call->min_nodes : Number(bounds.second);
  } else if (name == "--nproc-per-node" || name == "--num-gpus" || name == "--num-processes") {
    call->processes_line = line;
    call->processes = Number(value);
    if (name == "--num-gpus") call->processes_said = "--num_gpus is";
    if (name == "--num-processes") call->processes_said = "--num_processes for each machine is";
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
  const size_t at_name = at - 1;
  call.line = command[at_name].line;
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
  if (command[at_name].text == "torchrun" || command[at_name].text.ends_with("/torchrun") ||
      command[at_name].text.starts_with("torch.")) {
    return call;
  }
  // accelerate's is the number of all processes, and neither has torchrun's default of one.
  if (call.processes_line == 0) {
    call.processes_line = call.line;
  } else if (command[at_name].text == "launch") {
    const bool even = call.processes && call.min_nodes && *call.min_nodes > 0 &&
                      *call.processes % *call.min_nodes == 0;
    call.processes = even ? std::optional(*call.processes / *call.min_nodes) : std::nullopt;
  }
  return call;
}

}  // namespace

std::vector<MpirunCall> FindMpirun(const Container& container) {
  std::vector<MpirunCall> calls;
  for (const Command& command : SplitCommands(container)) {
    const auto start = std::ranges::find_if(command, [](const Word& word) {
      const std::string name = word.text.substr(word.text.rfind('/') + 1);
      return name == "mpirun" || name == "mpiexec";
    });
    if (start == command.end()) continue;
    MpirunCall call;
    for (auto word = start + 1; word < command.end() && word + 1 < command.end(); ++word) {
      if (StartsProgram(word[-1].text, word->text)) break;
      const Word& value = word[1];
      LocatedCount* count = nullptr;
      std::string_view text = value.text;
      if (word->text == "-np" || word->text == "--np" || word->text == "-n") {
        count = &call.processes;
      } else if (word->text == "-N" || word->text.ends_with("-npernode")) {
        count = &call.per_node;
      } else if (word->text == "--map-by" && text.starts_with("ppr:") && text.ends_with(":node")) {
        count = &call.per_node;
        text = Split(text, ":")[1];
      } else if (word->text == "-H" || word->text == "-host" || word->text == "--host") {
        call.host_slots = {0, value.line};
        for (const std::string_view host : Split(text, ",")) {
          // Without a number it is one slot, and with "*" as many as there are cores.
          const std::optional<int64_t> slots =
              host.find(':') == std::string_view::npos ? 1 : Number(SplitOnce(host, ':').second);
          if (!slots || host.starts_with('$')) {
            call.host_slots = {};
            break;
          }
          call.host_slots.value += *slots;
        }
      }
      if (count == nullptr || count->present()) continue;
      if (const std::optional<int64_t> number = Number(text)) *count = {*number, value.line};
    }
    calls.push_back(call);
  }
  return calls;
}

std::vector<TorchrunCall> FindTorchrun(const Container& container) {
  std::vector<TorchrunCall> calls;
  for (const Command& command : SplitCommands(container)) {
    const size_t options = OptionsOf(command);
    // By itself, the name without any word after it is a package to install, or an echo.
    if (options < command.size()) calls.push_back(ReadOptions(command, options));
  }
  return calls;
}

}  // namespace muster::lint
