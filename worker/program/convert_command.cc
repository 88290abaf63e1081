#include "worker/program/convert_command.h"

#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/checkpoint/hugging_face.h"
#include "worker/data/convert.h"
#include "worker/program/exit.h"
#include "worker/program/saved_run.h"
#include "worker/program/settings.h"
#include "worker/program/train_config.h"

namespace muster::worker {
namespace {

struct ConvertConfig {
  std::string from = "text";
  std::string output;
  int64_t vocabulary_of_ids = 0;
  std::optional<int64_t> step;
  std::string type = "fp32";
  int64_t shard_bytes = ExportOptions().most_shard_bytes;
  ModelChoice model;
};

void AddConvertSettings(Settings& settings, ConvertConfig& config) {
  settings.Add("from",
               "what the inputs are: text (a token for each byte), uint16 or uint32 (ids, "
               "little-endian), llm.c, or checkpoint (a directory of them, of which one becomes a "
               "directory that transformers' from_pretrained loads)",
               &config.from);
  settings.Add("output", "file to write; for a checkpoint the directory to make", &config.output);
  settings.Add("token-vocabulary", "which ids may occur, for uint16, uint32 and llm.c",
               &config.vocabulary_of_ids);
  settings.Add("step", "of the checkpoint; default: the last one", &config.step);
  settings.Add("type", "of a checkpoint's weights: fp32 or bf16", &config.type);
  settings.Add("shard-bytes", "of a checkpoint's weights in one file, at most",
               &config.shard_bytes);
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
  if (config.type != "fp32" && config.type != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("type=", config.type, " is neither fp32 nor bf16"));
  }
  if (config.shard_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard-bytes=", config.shard_bytes, " is below 1"));
  }
  absl::StatusOr<SavedRun> run = OpenSavedRun(inputs[0], config.step, config.model);
  if (!run.ok()) return run.status();
  std::string output = config.output;
  while (output.size() > 1 && output.back() == '/') output.pop_back();
  const absl::Status status = WriteHuggingFace(
      run->model,
      [&run](int64_t offset, std::span<float> values) {
        return run->reader.Read(StateKind::kParameters, offset, values);
      },
      output,
      {.type = config.type == "bf16" ? SafetensorsType::kBf16 : SafetensorsType::kF32,
       .most_shard_bytes = config.shard_bytes});
  if (!status.ok()) return status;
  return absl::StrCat(run->reader.info().parameters, " parameters of step ",
                      run->reader.info().step, ", ", config.type);
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
