// What a line tells of how training goes, and how it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::worker {

// Whether the line tells that training goes on: a step with its loss or its speed.
bool IsProgress(std::string_view body);

// Whether the loss that a step tells of is a number; nothing if it tells of none. Of several, in
// training, one number is enough.
std::optional<bool> LossIsFinite(std::string_view body);

// Whether the line tells of a scale of the loss that is 0, from which no scaler comes back.
bool ScaleIsZero(std::string_view body);

// Whether the line tells that all processes are started anew, and training with them.
bool IsRestart(std::string_view body);

// Whether the line tells that training, or its job, ended as it should.
bool IsCompletion(std::string_view body);

// Whether the line says that all is done, in words that are also said of less.
bool IsLastWord(std::string_view body);

// Whether it tells that a program goes on after what went wrong: "retrying", "skipping batch 3",
// "falling back to step 300". Counts only near an error, and before a step.
bool SaysThatItGoesOn(std::string_view body);

// The exit code that ends the line, as in "torchrun exit code 0" and "done, exit 0".
std::optional<int64_t> ExitCodeIn(std::string_view body);

}  // namespace muster::worker
