// Which cause a line, or an exception, shows: the rows of causes.txt, looked for all at once. Rows
// hold words in order instead of regular expressions, so that a line costs time linear in its
// length, however many rows there are.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "worker/diagnose/cause.h"
#include "worker/diagnose/cause_table.h"

namespace muster::worker {

// Where words stand decides what they mean: a warning that a connection was refused is no exception
// that says so.
enum class TextKind : uint8_t {
  kMessage,    // an error, or a line of which nothing better is known
  kException,  // "Type: message", with all its lines
  kQuiet,      // a warning, or less
  kNcclInfo,
  kEvent,  // of Kubernetes, or of one of its objects
};

// What a program did when it raised an exception, as far as its frames and its message tell: the
// same words mean one thing of a checkpoint and another of data.
enum class Doing : uint8_t { kUnsaid, kData, kCheckpoint, kSharing };

struct Pattern {
  CauseId cause = CauseId::kCount;
  RowKind kind = RowKind::kShows;
  // All of them, in this order. The first has at least kMinFirstWord letters.
  std::vector<std::string_view> words;
  std::vector<std::string_view> absent;  // must not be there
  size_t letters = 0;                    // of all words
};

inline constexpr size_t kMinFirstWord = 4;

// Those of causes.txt.
std::span<const Pattern> Patterns();

// The pattern that `text` matches, or null: one that says why before one that passes on what went
// wrong elsewhere, and that before one that says how it ended; then the one with the most letters.
// Words that begin or end with a letter or digit aren't looked for within longer ones: a
// MemoryError is no OutOfMemoryError.
const Pattern* FindPattern(std::string_view text, TextKind kind, Doing doing = Doing::kUnsaid);

// A later line that shows that something was only in between: the pod was scheduled after all, its
// image was pulled after all.
struct Recovery {
  CauseId cause = CauseId::kCount;
  std::string_view word;
  // Also if it stands before it: the status of an object comes before its events.
  bool anywhere = false;
};

std::span<const Recovery> Recoveries();

}  // namespace muster::worker
