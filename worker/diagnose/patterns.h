// What a log line must contain to show a cause: a table of plain words, one row a pattern. Rows
// hold words in order instead of regular expressions, so that a line costs time linear in its
// length.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "worker/diagnose/cause.h"

namespace muster::worker {

enum class LineKind : uint8_t {
  kMessage,
  // NCCL INFO lines are the ordinary course of things; only rows of this kind look at them, too.
  kNcclInfo,
  // How something ended, which says nothing beside a line of the same rank that says why.
  kResult,
};

struct Pattern {
  CauseId cause;
  // All of them, in this order.
  std::array<std::string_view, 2> words;
  LineKind kind = LineKind::kMessage;
};

// In the order in which they are tried: the first that matches counts.
std::span<const Pattern> Patterns();

// The pattern that `line` matches, or null.
const Pattern* FindPattern(std::string_view line);

// A later line that shows that something was only in between: the pod was scheduled after all, its
// image was pulled after all.
struct Recovery {
  std::string_view word;
  // The causes that it takes back; the first and the last of a range of CauseId.
  CauseId first;
  CauseId last;
  // Also if it stands before them: the status of an object comes before its events.
  bool anywhere = false;
};

std::span<const Recovery> Recoveries();

}  // namespace muster::worker
