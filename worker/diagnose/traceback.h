// Python's tracebacks, read line by line from one process's output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/diagnose/patterns.h"

namespace muster::worker {

// An exception that was printed, with those that led to it.
struct Raised {
  int64_t line = 0;  // where "Type: message" stands
  // "Type: message", and the lines that belong to it; at most TracebackReader::kMaxText bytes.
  std::string text;
  // "train.py:98 in train_step": the innermost frame outside of Python's and installed packages, or
  // empty if there is none.
  std::string where;
  // The same texts of the exceptions that it was raised from or while handling, the first one
  // first.
  std::vector<std::string> before;
  // By what Python does as it ends, or as it writes a log line: nothing comes of it.
  bool in_teardown = false;
  // What the innermost frame was for that tells by its file's or function's name.
  Doing doing = Doing::kUnsaid;
  // While PyTorch's DataLoader fetched a batch, by a worker of it or in the process itself.
  bool in_data_loading = false;
  bool has_frames = false;
  // By what it writes to its terminal, or to whoever reads its output.
  bool in_printing = false;
  // By what checks the program's arguments, or its configuration.
  bool in_validation = false;
  // In a thread that isn't the main one, whose end ends no process.
  bool in_thread = false;
  // By a library that talks to servers: what refuses it, or is gone, is no rank.
  bool asked_server = false;
  // By code that the program was given as a text, a model's answer say, and by files' code.
  bool in_given_code = false;
  bool in_own_code = false;
  // All of it stands further right than the words that announce it, as another program's output.
  bool is_quoted = false;
  // Of the process that torch.multiprocessing's spawn names.
  std::optional<int> process;
  // The id of the process that Ray says it comes from.
  std::optional<int64_t> pid;

  // Without the lines that follow the first.
  std::string_view Headline() const;

  // What the program did, as the message tells, or else the frames.
  Doing WhatItDid() const;
};

// The exception, from its type on, that a record tells of in its words: "ERROR train: OSError: x"
// or
// {"msg":"OSError: x"}; empty if it tells of none.
std::string_view ExceptionIn(std::string_view record);

// A text with what Python's repr makes of exceptions as they are printed: "OSError: [Errno 5] x" of
// "OSError(5, 'x')", "KeyError: x" of "KeyError('x')". Empty if it holds none.
std::string WithReprsPrinted(std::string_view text);

// Knows Python's form and rich's boxes, chains of exceptions, the tracebacks that DataLoader's
// workers and spawned processes hand on inside of an exception's message, and exceptions that are
// printed without frames. What Python ignores ("Exception ignored in ...") is none.
class TracebackReader {
 public:
  static constexpr size_t kMaxText = 4096;
  static constexpr size_t kMaxChain = 16;

  // Takes the next line, without what launchers put before it; `apart` says that it is a record of
  // its own: it has a time or a level, or tells of progress. Returns whether it belongs to a
  // traceback or to an exception's message, so that its words mean nothing by themselves.
  bool Read(int64_t number, std::string_view body, bool apart);

  // An exception whose last line has come, or nothing.
  std::optional<Raised> Take();

  // Whether an exception has been read whose end hasn't come.
  bool HasRaised() const { return state_ == State::kMessage || state_ == State::kLinked; }

  // Whether it matters to Read if the next line stands apart.
  bool MindsWhatStandsApart() const { return state_ != State::kIdle || after_frame_; }

  // The one that is still being read; the reader is as new after that.
  std::optional<Raised> Finish();

 private:
  enum class State { kIdle, kFrames, kMessage, kLinked };

  void Begin(std::string_view body);
  void Raise(int64_t number, std::string_view body);
  void Link();
  void Complete();
  void NoteFrame(std::string_view body);
  bool ReadFrames(int64_t number, std::string_view body, bool apart);
  bool ReadMessage(int64_t number, std::string_view body, bool apart);
  bool ReadIdle(int64_t number, std::string_view body);

  State state_ = State::kIdle;
  Raised raised_;
  size_t indent_ = 0;                // of the traceback as a whole
  std::optional<size_t> announced_;  // the indent of the last line, if that ends with a colon
  std::string prefix_;               // what its lines begin with, its digits zeros; mostly nothing
  int message_lines_ = 0;
  int strays_ = 0;  // lines of others since the last of ours
  bool blank_ = false;
  bool after_frame_ = false;  // of a traceback whose header wasn't seen
  bool in_thread_ = false;    // the traceback that comes next is of a thread
  bool ignored_ = false;      // the traceback that is read, or comes next, ended nothing
  std::vector<Raised> complete_;
};

}  // namespace muster::worker
