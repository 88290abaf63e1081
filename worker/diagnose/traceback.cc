#include "worker/diagnose/traceback.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr int kMaxMessageLines = 60;
constexpr int kMaxStrays = 200;
constexpr size_t kMaxIndent = 4;  // of an exception without frames
constexpr size_t kMaxWhere = 300;
constexpr std::string_view kHeader = "Traceback (most recent call last):";
constexpr std::string_view kBoxHeader = "Traceback (most recent call last) ";
constexpr std::string_view kBar = "│";

bool IsHeader(std::string_view body) {
  body = StripBlanks(body);
  return body.ends_with(kHeader) ||
         (body.starts_with("╭") && body.find(kBoxHeader) != std::string_view::npos);
}

// "During handling ..." and its kin: what comes next belongs to the same exception.
bool IsLink(std::string_view body) {
  return body.starts_with("During handling of the above exception") ||
         body.starts_with("The above exception was the direct cause") ||
         (body.starts_with("-- Process ") &&
          body.ends_with(" terminated with the following error:"));
}

// The dotted name that `body` begins with if a colon or nothing follows it, or empty.
std::string_view NameBefore(std::string_view body) {
  size_t end = 0;
  while (end < body.size() && (absl::ascii_isalnum(static_cast<unsigned char>(body[end])) ||
                               body[end] == '_' || body[end] == '.')) {
    ++end;
  }
  if (end == 0 || absl::ascii_isdigit(static_cast<unsigned char>(body[0]))) return {};
  const std::string_view rest = body.substr(end);
  const bool ends = StripBlanks(rest).empty() || rest == ":" || rest.starts_with(": ");
  return ends ? body.substr(0, end) : std::string_view();
}

// Whether a line looks like an exception even where no traceback is read.
bool IsExceptionName(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEnds = {"Error",   "Exception", "Interrupt",
                                                     "Timeout", "NotFound",  "Exhausted"};
  const size_t dot = name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
  return last.size() > 5 && absl::ascii_isupper(static_cast<unsigned char>(last[0])) &&
         absl::c_any_of(last, [](char c) { return absl::ascii_islower(c); }) &&
         absl::c_any_of(kEnds, [&](std::string_view end) { return last.ends_with(end); });
}

// Whether a line that ends a traceback may be its exception: "wandb: ..." and "srun: ..." are
// others' words, which come where Python prints none, after SystemExit say.
bool MayBeException(std::string_view name) {
  return name.find('.') != std::string_view::npos ||
         (!name.empty() && absl::ascii_isupper(static_cast<unsigned char>(name[0])));
}

bool IsInstalled(std::string_view path) {
  constexpr std::array<std::string_view, 7> kPlaces = {
      "site-packages/", "dist-packages/", "/lib/python3",   "<frozen",
      "<string>",       "/bin/torchrun",  "/bin/accelerate"};
  return absl::c_any_of(
      kPlaces, [&](std::string_view place) { return path.find(place) != std::string_view::npos; });
}

// "PATH:LINE in FUNCTION" of Python's "  File "PATH", line LINE, in FUNCTION".
std::string FrameIn(std::string_view body) {
  const std::string_view path = TextAfter(body, "File \"", "\"");
  const auto line = NumberAfter(body, "\", line ");
  if (path.empty() || !line || IsInstalled(path)) return "";
  const size_t in = body.find(", in ");
  const std::string_view function =
      in == std::string_view::npos ? std::string_view() : StripBlanks(body.substr(in + 5));
  return Printable(Concat(path, ":", *line, function.empty() ? "" : " in ", function), kMaxWhere);
}

// Code that a program made of a text and gave a name, "<completion>" say; those that Python, its
// libraries and notebooks give aren't meant.
bool IsOfGivenCode(std::string_view path) {
  constexpr std::array<std::string_view, 9> kOthers = {
      "<string>", "<stdin>", "<frozen",  "<ipython",         "<eval_with_key>",
      "<module>", "<unk",    "<command", "<__array_function"};
  return path.starts_with('<') &&
         absl::c_none_of(kOthers, [&](std::string_view other) { return path.starts_with(other); });
}

// A frame of what Python runs when it ends, or of logging, which prints what its handlers raise and
// goes on.
bool IsOfTeardown(std::string_view body) {
  if (body.find("/logging/__init__.py\", line ") != body.npos && body.ends_with(", in emit")) {
    return true;
  }
  constexpr std::array<std::string_view, 5> kFunctions = {
      ", in _run_finalizers", ", in _exit_function", ", in _python_exit", ", in __del__",
      ", in _run_exitfuncs"};
  return absl::c_any_of(kFunctions, [&](std::string_view end) { return body.ends_with(end); });
}

// A line of code that writes to standard output or error, tqdm's bars included.
bool IsOfPrinting(std::string_view code) {
  constexpr std::array<std::string_view, 6> kWords = {"print(",    "sys.stdout", "sys.stderr",
                                                      "fp_write(", "fp.write(",  "fp.flush("};
  return absl::c_any_of(kWords,
                        [&](std::string_view word) { return code.find(word) != code.npos; });
}

// A frame of a library that talks to servers.
bool IsOfClient(std::string_view body) {
  if (body.find("File \"") == body.npos) return false;
  constexpr std::array<std::string_view, 16> kPlaces = {
      "/http/client.py", "/urllib/request.py", "/urllib3/",  "/requests/",
      "/httpx/",         "/httpcore/",         "/redis/",    "/pymongo/",
      "/kafka/",         "/psycopg",           "/mlflow/",   "/smtplib.py",
      "/aiohttp/",       "/elasticsearch/",    "/botocore/", "/paramiko/"};
  return absl::c_any_of(kPlaces,
                        [&](std::string_view place) { return body.find(place) != body.npos; });
}

bool IsOfDataLoading(std::string_view body) {
  return body.find("torch/utils/data/") != body.npos &&
         (body.ends_with(", in _process_data") || body.ends_with(", in _next_data") ||
          body.ends_with(", in _process_next_batch") || body.ends_with(", in fetch"));
}

// "0000-00-00 00:00:00 (worker_3) : " of what a program's own logging writes before each line:
// times differ, the names of processes don't.
std::string WithoutDigits(std::string_view text) {
  std::string shape(text);
  constexpr std::string_view kBetween = " \t[](){}<>|";
  size_t at = 0;
  while (at < shape.size()) {
    const size_t end = std::min(shape.find_first_of(kBetween, at), shape.size());
    const std::string_view word = text.substr(at, end - at);
    // "2026-03-02T10:41:17Z" and glog's "E0302" are times all the same.
    const bool glog = word.size() > 3 && std::string_view("IWEF").find(word[0]) != word.npos;
    const bool named = absl::c_any_of(word.substr(glog ? 1 : 0), [](char c) {
      return absl::ascii_isalpha(static_cast<unsigned char>(c)) && c != 'T' && c != 'Z';
    });
    for (size_t i = at; i < end && !named; ++i) {
      if (absl::ascii_isdigit(static_cast<unsigned char>(shape[i]))) shape[i] = '0';
    }
    at = end + 1;
  }
  return shape;
}

bool BeginsLike(std::string_view shape, std::string_view body) {
  return !shape.empty() && body.size() >= shape.size() &&
         WithoutDigits(body.substr(0, shape.size())) == shape;
}

bool HoldsOneOf(std::string_view text, std::span<const std::string_view> words) {
  return absl::c_any_of(words, [&](std::string_view word) { return text.find(word) != text.npos; });
}

// "OSError: x" of "FAILED tests/a.py::test_b - OSError: x" in pytest's summary, or nothing.
std::string_view ToldOfTest(std::string_view body) {
  if (!ConsumePrefix(&body, "FAILED ") && !ConsumePrefix(&body, "ERROR ")) return {};
  const size_t dash = body.find(" - ");
  const bool test = dash != body.npos && body.substr(0, dash).find(".py::") != body.npos;
  if (!test) return {};
  body.remove_prefix(dash + 3);
  return IsExceptionName(NameBefore(body)) ? body : std::string_view();
}

// What a frame is for, by its file's and its function's name.
Doing DoingOf(std::string_view body) {
  const std::string path = Lowered(TextAfter(body, "File \"", "\""));
  const size_t in = body.find(", in ");
  if (path.empty() || in == body.npos) return Doing::kUnsaid;
  constexpr std::array<std::string_view, 4> kSharing = {
      "multiprocessing/heap.py", "multiprocessing/shared_memory.py",
      "multiprocessing/synchronize.py", "multiprocessing/reductions.py"};
  if (HoldsOneOf(path, kSharing)) return Doing::kSharing;
  const std::string_view file = std::string_view(path).substr(path.rfind('/') + 1);
  const std::string names = Concat(file, " ", Lowered(body.substr(in + 5)));
  constexpr std::array<std::string_view, 7> kCheckpoint = {
      "checkpoint",  "ckpt",        "save_pretrained", "from_pretrained",
      "load_state_", "save_state_", "safetensors"};
  // Of activations, which are never written.
  constexpr std::array<std::string_view, 4> kRecomputation = {
      "utils/checkpoint.py", "checkpointing.py", "checkpoint_wrapper", "gradient_checkpoint"};
  if (HoldsOneOf(names, kCheckpoint) && !HoldsOneOf(path, kRecomputation)) {
    return Doing::kCheckpoint;
  }
  constexpr std::array<std::string_view, 5> kData = {"data", "corpus", "shard", "__getitem__",
                                                     "tokenize"};
  constexpr std::array<std::string_view, 3> kLibraries = {"/utils/data/", "/datasets/",
                                                          "/webdataset/"};
  constexpr std::array<std::string_view, 6> kOther = {"metadata",    "parallel", "dataclass",
                                                      "fully_shard", "sharded",  "tokenizer"};
  const bool data = HoldsOneOf(names, kData) && !HoldsOneOf(names, kOther);
  return data || HoldsOneOf(path, kLibraries) ? Doing::kData : Doing::kUnsaid;
}

// A frame that checks arguments, or a configuration, by its function's and its file's name.
bool IsOfValidation(std::string_view body) {
  const size_t in = body.find(", in ");
  if (in == body.npos) return false;
  const std::string_view function = body.substr(in + 5);
  constexpr std::array<std::string_view, 8> kFunctions = {
      "validate_arg", "validate_conf", "validate_cfg", "check_arg",
      "check_conf",   "check_cfg",     "verify_arg",   "parse_args"};
  if (HoldsOneOf(function, kFunctions)) return true;
  if (!function.starts_with("__post_init__") && !function.starts_with("validate") &&
      !function.starts_with("_validate")) {
    return false;
  }
  constexpr std::array<std::string_view, 4> kFiles = {"arguments", "args.py", "config", "cfg"};
  const std::string_view path = TextAfter(body, "File \"", "\"");
  return HoldsOneOf(path.substr(path.rfind('/') + 1), kFiles);
}

// The same of rich's "│ PATH:LINE in FUNCTION   │".
std::string FrameInBox(std::string_view body) {
  if (!ConsumePrefix(&body, kBar)) return "";
  body = StripBlanks(body);
  if (body.ends_with(kBar)) body = StripBlanks(body.substr(0, body.size() - kBar.size()));
  const size_t in = body.find(" in ");
  const std::string_view place = body.substr(0, in);
  const size_t colon = place.rfind(':');
  const bool frame = in != std::string_view::npos && colon != std::string_view::npos &&
                     place.find(' ') == std::string_view::npos &&
                     LeadingNumber(place.substr(colon + 1)).has_value();
  return !frame || IsInstalled(place) ? "" : Printable(body, kMaxWhere);
}

}  // namespace

std::string_view ExceptionIn(std::string_view record) {
  for (size_t at = record.find(": "); at != record.npos; at = record.find(": ", at + 1)) {
    const size_t before = record.substr(0, at).find_last_of(" \"'(");
    const size_t begin = before == record.npos ? 0 : before + 1;
    if (!IsExceptionName(record.substr(begin, at - begin))) continue;
    const bool quoted = begin > 0 && record[begin - 1] == '"';
    const size_t end = quoted ? record.find('"', at) : record.npos;
    return record.substr(begin, end == record.npos ? end : end - begin);
  }
  return {};
}

std::string WithReprsPrinted(std::string_view text) {
  std::string printed;
  size_t from = 0;
  for (size_t open = text.find('('); open != text.npos; open = text.find('(', open + 1)) {
    size_t begin = open;
    while (begin > from && (absl::ascii_isalnum(static_cast<unsigned char>(text[begin - 1])) ||
                            text[begin - 1] == '_' || text[begin - 1] == '.')) {
      --begin;
    }
    if (!IsExceptionName(text.substr(begin, open - begin))) continue;
    std::string_view rest = text.substr(open + 1);
    std::string number;
    if (const size_t comma = rest.find(", "); !rest.empty() && IsDigit(rest[0])) {
      if (comma == rest.npos || !LeadingNumber(rest) ||
          rest.find_first_not_of("0123456789") != comma) {
        continue;
      }
      number = Concat("[Errno ", rest.substr(0, comma), "] ");
      rest.remove_prefix(comma + 2);
    }
    if (rest.empty() || (rest[0] != '\'' && rest[0] != '"')) continue;
    const char quote = rest[0];
    size_t close = rest.find(quote, 1);
    while (close != rest.npos && rest[close - 1] == '\\') close = rest.find(quote, close + 1);
    if (close == rest.npos) continue;
    const size_t end = rest.find(')', close);
    if (end == rest.npos) continue;
    Append(&printed, text.substr(from, open - from), ": ", number, rest.substr(1, close - 1),
           rest.substr(close + 1, end - close - 1));
    from = text.size() - rest.size() + end + 1;
    open = from - 1;
  }
  if (from > 0) printed.append(text.substr(from));
  return printed;
}

std::string_view Raised::Headline() const {
  return StripBlanks(std::string_view(text).substr(0, text.find('\n')));
}

Doing Raised::WhatItDid() const {
  const bool by_worker = absl::c_any_of(before, [](std::string_view earlier) {
    return earlier.find("in DataLoader worker process") != earlier.npos;
  });
  if (doing == Doing::kSharing) return doing;
  const bool by_builder = text.find("DatasetGenerationError") != text.npos;
  if (in_data_loading || by_worker || by_builder) return Doing::kData;
  constexpr std::array<std::string_view, 6> kCheckpoint = {"checkpoint", "ckpt",  ".safetensors",
                                                           ".pt'",       ".pth'", ".distcp"};
  constexpr std::array<std::string_view, 12> kData = {".jsonl",    ".csv", ".parquet", ".arrow",
                                                      ".tfrecord", ".tar", ".npz",     ".npy",
                                                      ".jpg",      ".png", ".wav",     ".mds"};
  if (HoldsOneOf(text, kCheckpoint)) return Doing::kCheckpoint;
  return HoldsOneOf(text, kData) ? Doing::kData : doing;
}

bool TracebackReader::Read(int64_t number, std::string_view body, bool apart) {
  if (const std::string_view told = ToldOfTest(body); !told.empty()) {
    body = told;
    apart = true;
  }
  if (state_ != State::kIdle && BeginsLike(prefix_, body)) {
    body.remove_prefix(prefix_.size());
    // What comes next may be a record of its own as well as more of the message.
    apart |= state_ == State::kMessage;
  }
  const size_t blanks = std::min(body.find_first_not_of(' '), body.size());
  if (IsHeader(body)) {
    const size_t at = body.find(kHeader);
    const bool own = body.substr(blanks).starts_with("Original ") ||
                     IsExceptionName(NameBefore(body.substr(blanks)));
    if (at != body.npos && at > blanks && !own) {
      prefix_ = WithoutDigits(body.substr(0, at));
    } else if (state_ == State::kIdle) {
      prefix_.clear();
    }
    Begin(body.substr(blanks));
    const bool whole = body[blanks] == 'T' || body[blanks] == 'O' ||
                       body.substr(blanks).starts_with("traceback : ");  // in torchrun's summary
    indent_ = whole ? blanks : 0;
    raised_.is_quoted |= body[blanks] == 'T' && announced_ && *announced_ < blanks;
    return true;
  }
  if (blanks < body.size()) {
    announced_ = StripBlanks(body).ends_with(':') ? std::optional(blanks) : std::nullopt;
    apart |= state_ == State::kMessage && blanks < indent_;
  }
  // The header may have been cut off, or lost among others' lines.
  if (state_ == State::kIdle && blanks > 0) {
    NoteFrame(body);
    after_frame_ |= body.substr(blanks).starts_with("File \"");
  } else if (state_ == State::kIdle) {
    const std::string_view name = NameBefore(body);
    if (std::exchange(after_frame_, false) && MayBeException(name) && !apart) {
      raised_.has_frames = true;
      Raise(number, body);
      return true;
    }
    if (!IsExceptionName(name)) raised_ = {};
  }
  // One that is quoted is indented as a whole.
  body.remove_prefix(std::min(blanks, state_ == State::kIdle ? kMaxIndent : indent_));
  switch (state_) {
    case State::kFrames:
      return ReadFrames(number, body, apart);
    case State::kMessage:
      return ReadMessage(number, body, apart);
    case State::kLinked:
      if (StripBlanks(body).empty()) return true;
      // The header was lost among others' lines.
      if (body.starts_with("  File \"") || IsExceptionName(NameBefore(body))) {
        state_ = State::kFrames;
        return ReadFrames(number, body, apart);
      }
      Complete();
      return ReadIdle(number, body);
    case State::kIdle:
      break;
  }
  return ReadIdle(number, body);
}

void TracebackReader::Begin(std::string_view body) {
  // "OSError: Traceback (most recent call last):", which hands on what a worker raised.
  const bool hands_on = state_ == State::kFrames && IsExceptionName(NameBefore(body));
  const bool goes_on = state_ == State::kLinked || hands_on || body.starts_with("Original ");
  if (state_ == State::kMessage && goes_on) Link();
  if (!goes_on && state_ != State::kIdle) Complete();
  state_ = State::kFrames;
  strays_ = 0;
}

// What was raised so far led to what comes.
void TracebackReader::Link() {
  if (raised_.before.size() < kMaxChain) raised_.before.push_back(std::move(raised_.text));
  raised_.text.clear();
  state_ = State::kLinked;
}

void TracebackReader::Raise(int64_t number, std::string_view body) {
  raised_.line = number;
  raised_.text = body.substr(0, kMaxText);
  message_lines_ = 0;
  blank_ = false;
  state_ = State::kMessage;
}

void TracebackReader::NoteFrame(std::string_view body) {
  std::string where = body.starts_with(kBar) ? FrameInBox(body) : FrameIn(body);
  if (!where.empty()) raised_.where = std::move(where);
  if (const std::string_view path = TextAfter(body, "File \"", "\""); !path.empty()) {
    (IsOfGivenCode(path) ? raised_.in_given_code : raised_.in_own_code) = true;
    raised_.in_validation = IsOfValidation(body);
  }
  if (body.find_first_not_of(" ^~") != body.npos && body.find("File \"") == body.npos) {
    raised_.in_printing = IsOfPrinting(body);
  }
  raised_.in_data_loading |= IsOfDataLoading(body);
  raised_.asked_server |= IsOfClient(body);
  if (const Doing doing = DoingOf(body); doing != Doing::kUnsaid) raised_.doing = doing;
  // What else it may load is told by who calls it.
  if (raised_.doing == Doing::kUnsaid && body.find("/torch/serialization.py") != body.npos) {
    raised_.doing = Doing::kCheckpoint;
  }
}

bool TracebackReader::ReadFrames(int64_t number, std::string_view body, bool apart) {
  // Blanks may have been lost on the way.
  const bool frame = body.starts_with("File \"") && body.find("\", line ") != body.npos;
  if (body.empty() || body[0] == ' ' || body[0] == '\t' || frame || body.starts_with(kBar) ||
      body.starts_with("╰")) {
    NoteFrame(body);
    if (IsOfTeardown(body)) raised_.in_teardown = true;
    strays_ = 0;
    return true;
  }
  const std::string_view name = NameBefore(body);
  // After lines of others, "Sender: ..." may be the next of them.
  const bool like_one = strays_ > 0 ? name.find('.') != name.npos : MayBeException(name);
  if (IsExceptionName(name) || (like_one && !apart)) {
    raised_.has_frames = true;
    Raise(number, body);
    return true;
  }
  // "ray.exceptions.RayTaskError(ValueError): ray::Worker.run() (pid=3907, ip=10.0.5.89, ...": the
  // last one is the innermost.
  if (body.find("ray::") != body.npos) {
    if (const auto pid = NumberAfter(body, "(pid=")) raised_.pid = pid;
  }
  // Lines of other processes run into each other.
  if (++strays_ > kMaxStrays) Complete();
  return false;
}

bool TracebackReader::ReadMessage(int64_t number, std::string_view body, bool apart) {
  if (IsLink(body)) {
    if (body.starts_with("-- Process ")) {
      raised_.process = static_cast<int>(NumberAfter(body, "-- Process ").value_or(0));
    }
    Link();
    return true;
  }
  if (StripBlanks(body).empty()) {
    const bool second = std::exchange(blank_, true);
    if (second) Complete();
    return !second;
  }
  // "backend='inductor' raised:" passes on what comes next.
  // So do those of several ranks' failures that torch.distributed.checkpoint collects.
  const bool passes_on =
      StripBlanks(raised_.text).ends_with(" raised:") ||
      (!apart && raised_.text.find("CheckpointException ranks:") != raised_.text.npos);
  const bool another = !passes_on && (apart || IsExceptionName(NameBefore(body)));
  if (another || ++message_lines_ > kMaxMessageLines) {
    Complete();
    return ReadIdle(number, body);
  }
  blank_ = false;
  if (raised_.text.size() + body.size() < kMaxText) Append(&raised_.text, "\n", body);
  return true;
}

bool TracebackReader::ReadIdle(int64_t number, std::string_view body) {
  if (body.starts_with("Exception ignored in")) {
    ignored_ = true;
    return true;
  }
  if (body.starts_with("Exception in thread ")) {
    in_thread_ = true;
    return true;
  }
  if (!IsExceptionName(NameBefore(body))) return false;
  Raise(number, body);
  return true;
}

void TracebackReader::Complete() {
  // A traceback that was cut off before its exception says nothing.
  if (raised_.text.empty() && !raised_.before.empty()) {
    raised_.text = std::move(raised_.before.back());
    raised_.before.pop_back();
  }
  raised_.in_thread = std::exchange(in_thread_, false);
  if (!raised_.text.empty() && !ignored_) complete_.push_back(std::move(raised_));
  raised_ = {};
  indent_ = 0;
  ignored_ = false;
  state_ = State::kIdle;
}

std::optional<Raised> TracebackReader::Take() {
  if (complete_.empty()) return std::nullopt;
  Raised first = std::move(complete_.front());
  complete_.erase(complete_.begin());
  return first;
}

std::optional<Raised> TracebackReader::Finish() {
  if (state_ != State::kIdle) Complete();
  return Take();
}

}  // namespace muster::worker
