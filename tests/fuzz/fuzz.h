// What every fuzz target is made of: one function, and claims about what it decoded.
//
//   #include "tests/fuzz/fuzz.h"
//   MUSTER_FUZZ_TARGET(std::string_view input) {
//     const auto value = Parse(input);
//     if (value.ok()) Require(Parse(Print(*value)) == *value, "what is printed parses the same");
//   }
//
// libFuzzer calls it with inputs that it makes up; builds without libFuzzer call it with the files
// of its corpus (replay_main.cc). No state may be left behind by one call for the next.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"

namespace muster::fuzz {

// Ends the process unless `holds`, which makes the input a finding.
inline void Require(bool holds, std::string_view claim) {
  if (holds) return;
  std::fprintf(stderr, "doesn't hold: %.*s\n", static_cast<int>(claim.size()), claim.data());
  std::abort();
}

// What is said about an input ends up in messages, events and logs, which are UTF-8, and shows only
// so much of it.
inline void RequireSayable(std::string_view text) {
  constexpr size_t kLongest = 2048;
  Require(simdjson::validate_utf8(text.data(), text.size()), "what is said is UTF-8");
  Require(text.size() <= kLongest, "what is said is short, however long the input is");
}

inline std::string_view MessageOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// "FILE:LINE: what is wrong", and the line is one of the input's.
inline void RequirePlace(std::string_view error, std::string_view file, std::string_view input) {
  Require(error.starts_with(file) && error.substr(file.size()).starts_with(":"),
          "an error begins with its file");
  char* end = nullptr;
  const long line = std::strtol(error.data() + file.size() + 1, &end, 10);
  Require(*end == ':', "an error has a line");
  long lines = 1;
  for (const char c : input) lines += c == '\n' ? 1 : 0;
  Require(line >= 1 && line <= lines, "an error's line is inside the file");
}

}  // namespace muster::fuzz

// Begins the definition of the target's one function; `input` declares its parameter, a
// std::string_view.
#define MUSTER_FUZZ_TARGET(input)                                            \
  static void FuzzOne(input);                                                \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) { \
    FuzzOne(std::string_view(reinterpret_cast<const char*>(bytes), size));   \
    return 0;                                                                \
  }                                                                          \
  static void FuzzOne(input)
