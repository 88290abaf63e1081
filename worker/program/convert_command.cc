#include "worker/program/convert_command.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/hugging_face.h"
#include "worker/data/convert.h"
#include "worker/program/exit.h"
#include "worker/program/settings.h"
#include "worker/program/train_config.h"

namespace muster::worker {
namespace {

struct ConvertConfig {
  std::string from = "text";
  std::string output;
  int64_t vocabulary_of_ids = 0;
  ModelChoice model;
};

void AddConvertSettings(Settings& settings, ConvertConfig& config) {
  settings.Add("from",
               "what the inputs are: text (a token for each byte), uint16 or uint32 (ids, "
               "little-endian), llm.c, or checkpoint (a directory of them, whose last one becomes "
               "Hugging Face's safetensors)",
               &config.from);
  settings.Add("output", "file to write", &config.output);
  settings.Add("token-vocabulary", "which ids may occur, for uint16, uint32 and llm.c",
               &config.vocabulary_of_ids);
  AddModelSettings(settings, config.model);
}

absl::StatusOr<std::string> Tokens(const absl::StatusOr<int64_t>& tokens) {
  if (!tokens.ok()) return tokens.status();
  return absl::StrCat(*tokens, " tokens");
}

absl::StatusOr<std::string> ConvertIds(const ConvertConfig& config, TokenEncoding encoding,
                                       const std::vector<std::string>& inputs) {
  if (config.vocabulary_of_ids < 1) {
    return absl::InvalidArgumentError(
        "set token-vocabulary to the size of the tokenizer's vocabulary, 50257 for GPT-2's");
  }
  return Tokens(ConvertTokens(inputs, encoding, config.vocabulary_of_ids, config.output));
}

absl::StatusOr<std::string> ConvertCheckpoint(const ConvertConfig& config,
                                              const std::vector<std::string>& inputs) {
  if (inputs.size() != 1) return absl::InvalidArgumentError("name one directory of checkpoints");
  const absl::StatusOr<ModelConfig> model = ModelOf(config.model);
  if (!model.ok()) return model.status();
  const absl::StatusOr<std::vector<int64_t>> steps = CommittedSteps(inputs[0]);
  if (!steps.ok()) return steps.status();
  if (steps->empty()) {
    return absl::NotFoundError(absl::StrCat(inputs[0], ": holds no committed checkpoint"));
  }
  absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(inputs[0], steps->back());
  if (!reader.ok()) return reader.status();
  const ParameterLayout layout(*model);
  if (reader->info().parameters != layout.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(inputs[0], ": has ", reader->info().parameters, " parameters (",
                     reader->info().identity, "), the model ", config.model.name, " has ",
                     layout.size(), ": set model, and what differs from it"));
  }
  std::vector<float> parameters(static_cast<size_t>(layout.size()));
  absl::Status status = reader->Read(StateKind::kParameters, 0, parameters);
  if (status.ok()) status = WriteHuggingFace(layout, parameters, config.output);
  if (!status.ok()) return status;
  return absl::StrCat(layout.size(), " parameters of step ", steps->back());
}

absl::StatusOr<std::string> Convert(const ConvertConfig& config,
                                    const std::vector<std::string>& inputs) {
  if (inputs.empty()) return absl::InvalidArgumentError("no input is named");
  if (config.output.empty()) return absl::InvalidArgumentError("output isn't set");
  if (config.from == "text") return Tokens(ConvertText(inputs, config.output));
  if (config.from == "uint16") return ConvertIds(config, TokenEncoding::kUint16, inputs);
  if (config.from == "uint32") return ConvertIds(config, TokenEncoding::kUint32, inputs);
  if (config.from == "llm.c") return ConvertIds(config, TokenEncoding::kLlmC, inputs);
  if (config.from == "checkpoint") return ConvertCheckpoint(config, inputs);
  return absl::InvalidArgumentError(
      absl::StrCat("from=", config.from, " is none of text, uint16, uint32, llm.c and checkpoint"));
}

}  // namespace

int RunConvert(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  ConvertConfig config;
  Settings settings;
  AddConvertSettings(settings, config);
  const absl::StatusOr<CommandLine> line = settings.ReadCommandLine(arguments);
  if (line.ok() && line->help) {
    out << "usage: muster-worker convert [--SETTING=VALUE...] INPUT...\n" << settings.Help();
    return 0;
  }
  if (line.ok() && line->print_config) {
    out << settings.Print();
    return 0;
  }
  const absl::StatusOr<std::string> written =
      line.ok() ? Convert(config, line->positional) : line.status();
  if (!written.ok()) {
    err << "muster-worker: " << Sentence(FailureFor(written.status())) << "\n";
    return ExitCodeFor(written.status());
  }
  out << config.output << ": " << *written << "\n";
  return 0;
}

}  // namespace muster::worker
