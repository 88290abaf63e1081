#include "worker/diagnose/line_progress.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
bool IsRestart(std::string_view body) {
  constexpr std::array<std::string_view, 6> kWords = {
      "will restart worker group", "Restarting worker group", "Restarting training worker group",
      "FailureDecision.RETRY",     "SLURM_RESTART_COUNT=",    "requeue job"};
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return body.find(word) != std::string_view::npos; });
}

namespace {

// "NAME   RESTARTS   COMPLETED   AGE" of kubectl and the like.
bool IsTableHead(std::string_view body) {
  return body.find("   ") != body.npos && std::ranges::all_of(body, [](char c) {
           return absl::ascii_isupper(static_cast<unsigned char>(c)) ||
                  std::string_view(" -_/()%").find(c) != std::string_view::npos;
         });
}

}  // namespace

bool IsCompletion(std::string_view body) {
  // pytest's, and that of NCCL's tests.
  if (body.starts_with("====") && body.find(" passed") != body.npos) {
    return body.find(" failed") == body.npos && body.find(" error") == body.npos;
  }
  if (body.starts_with("# Out of bounds values : 0 OK")) return true;
  constexpr std::array<std::string_view, 7> kOfTraining = {
      "raining done",    "raining complete", "raining finished", "raining has finished",
      "raining is done", "inished training", "ompleted training"};
  constexpr std::array<std::string_view, 7> kWords = {"successfully finished",
                                                      "WorkerState.SUCCEEDED",
                                                      "'train_runtime'",
                                                      "Trainer.fit` stopped: ",
                                                      "all done",
                                                      "COMPLETED ",
                                                      "] RUNNING -> FINISHED"};
  constexpr std::array<std::string_view, 2> kOfOthers = {"  Job completed", "uning completed in "};
  const auto holds = [&](std::string_view word) { return body.find(word) != body.npos; };
  // The last is of the result that Ray gives back.
  const bool told = (holds("raining") && std::ranges::any_of(kOfTraining, holds)) ||
                    (holds("ompleted") && std::ranges::any_of(kOfOthers, holds)) ||
                    std::ranges::any_of(kWords, holds) || StripBlanks(body) == "error=None,";
  return told && !IsTableHead(body);
}

bool IsLastWord(std::string_view body) {
  // unittest's, and googletest's.
  if (body == "OK" || body.starts_with("OK (") || body.starts_with("[  PASSED  ] ")) return true;
  return body.ends_with("un complete") || body.ends_with("un completed");
}

bool SaysThatItGoesOn(std::string_view body) {
  constexpr size_t kLongest = 2000;
  if (body.size() > kLongest) return false;
  // A shell's that is told to go on.
  if (body == "+ true" || body == "+ :") return true;
  constexpr std::array<std::string_view, 25> kWords = {
      "retrying",     "retry 1/",     "retry #1",    "retried",     "will retry",
      "trying",       "try again in", "another try", "skipping",    "skipped",
      "falling back", "fell back",    "continuing",  "as expected", "expected to fail",
      "from scratch", "recreating",   "recovered",   "recovering",  "-> using",
      "does not fit", "doesn't fit",  "not usable",  "using ",      "ignoring "};
  constexpr std::string_view kFirsts = "rwtasfced-nui";  // letters of the words
  bool in_word = false;
  for (size_t at = 0; at < body.size(); ++at) {
    const bool begins =
        !std::exchange(in_word, absl::ascii_isalpha(static_cast<unsigned char>(body[at])) != 0);
    if (!begins || body[at] == ' ') continue;
    const char first = absl::ascii_tolower(static_cast<unsigned char>(body[at]));
    if (kFirsts.find(first) == kFirsts.npos) continue;
    for (const std::string_view word : kWords) {
      if (word[0] != first) continue;
      const std::string_view rest = body.substr(at + 1);
      if (!rest.starts_with(word.substr(1))) continue;
      const std::string_view after = rest.substr(word.size() - 1);
      // "trying to save", "using step-300 instead"
      if (word == "trying" && after.starts_with(" to ")) continue;
      if (word == "using " && after.find(" instead") == after.npos) continue;
      return true;
    }
  }
  return false;
}

std::optional<int64_t> ExitCodeIn(std::string_view body) {
  if (body.starts_with(' ') || body.starts_with('+')) return std::nullopt;
  // What runs before a job or after it.
  constexpr std::array<std::string_view, 6> kOthers = {"rolog", "pilog",   "hook",
                                                       "check", "cleanup", "init"};
  if (std::ranges::any_of(kOthers,
                          [&](std::string_view word) { return body.find(word) != body.npos; })) {
    return std::nullopt;
  }
  while (!body.empty() && (body.back() == '.' || body.back() == ')' || body.back() == ' ')) {
    body.remove_suffix(1);
  }
  size_t number = body.size();
  while (number > 0 && IsDigit(body[number - 1])) --number;
  std::string_view before = body.substr(0, number);
  const bool negative = before.ends_with('-');
  if (negative) before.remove_suffix(1);
  const auto code = LeadingNumber(body.substr(number));
  const size_t words = before.find_last_not_of(" :=");
  if (!code || words == before.npos || words + 1 == before.size()) return std::nullopt;
  before = before.substr(0, words + 1);
  constexpr std::array<std::string_view, 8> kWords = {" exit",      " exit code",   " exit status",
                                                      " with code", " with status", " return code",
                                                      " exitcode",  " rc"};
  const std::string said =
      Lowered(Concat(" ", before.substr(before.size() - std::min<size_t>(before.size(), 16))));
  const bool known =
      std::ranges::any_of(kWords, [&](std::string_view word) { return said.ends_with(word); });
  return known ? std::optional(negative ? -*code : *code) : std::nullopt;
}

std::optional<bool> LossIsFinite(std::string_view body) {
  const std::string line = Lowered(body);
  const std::string_view text = line;
  constexpr std::string_view kLoss = "loss";
  std::optional<bool> finite;
  for (size_t at = text.find(kLoss); at != text.npos; at = text.find(kLoss, at + 1)) {
    const std::string_view before = text.substr(0, at);
    const size_t word = before.find_last_of(" ,{|\"'") + 1;
    const std::string_view own = before.substr(word);
    const bool of_validation = own.starts_with("val") || own.starts_with("eval") ||
                               own.starts_with("test") || before.ends_with("val ") ||
                               before.ends_with("validation ") || before.ends_with("eval ") ||
                               before.ends_with("test ");
    std::string_view value = text.substr(at + kLoss.size());
    const size_t gap = std::min(value.find_first_not_of(" \t:='\""), value.size());
    value.remove_prefix(gap);
    if (gap == 0 || value.empty() || of_validation) continue;
    ConsumePrefix(&value, "tensor(");
    ConsumePrefix(&value, "-");
    if (IsDigit(value[0])) {
      finite = true;
    } else if (value.starts_with("nan") || value.starts_with("inf")) {
      finite = finite.value_or(false);
    }
  }
  return finite;
}

bool ScaleIsZero(std::string_view body) {
  constexpr std::string_view kScale = "scale";
  for (size_t at = body.find(kScale); at != body.npos; at = body.find(kScale, at + 1)) {
    std::string_view value = body.substr(at + kScale.size());
    const size_t gap = std::min(value.find_first_not_of(" :='\""), value.size());
    value = value.substr(gap);
    const size_t end = std::min(value.find_first_not_of("0123456789.e+-"), value.size());
    const std::string_view number = value.substr(0, end);
    const bool zero = number.starts_with('0') && number.find_first_of("123456789") == number.npos;
    if (gap > 0 && zero) return true;
  }
  return false;
}

bool IsProgress(std::string_view body) {
  constexpr std::array<std::string_view, 8> kLosses = {
      "'loss'", "\"loss\"", "loss:", "loss=", "loss ", "Loss:", "Loss ", "Loss="};
  // That of regressions, which is seldom called a loss.
  constexpr std::array<std::string_view, 3> kErrors = {" mse ", " mse=", " mse: "};
  constexpr std::array<std::string_view, 5> kSpeeds = {"it/s", "s/it]", "s/it,", "tok/s",
                                                       "samples/s"};
  constexpr size_t kLongest = 2000;
  if (body.size() > kLongest || !HasDigit(body)) return false;
  const auto holds = [&](std::string_view word) { return body.find(word) != body.npos; };
  return (holds("oss") && std::ranges::any_of(kLosses, holds)) ||
         (holds(" mse") && std::ranges::any_of(kErrors, holds)) ||
         (body.find('/') != body.npos && std::ranges::any_of(kSpeeds, holds)) ||
         holds("elapsed time per iteration");
}

}  // namespace muster::worker
