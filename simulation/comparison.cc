#include "simulation/comparison.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "fmt/format.h"
#include "printers/tables.h"

namespace muster::simulation {
namespace {

constexpr Millis kNever = std::numeric_limits<Millis>::max();

std::string SecondsOrNever(const std::optional<Millis>& time) {
  return time ? Seconds(*time) : "never";
}

// The smallest that `percent` of a hundred don't exceed.
std::optional<Millis> Percentile(const std::vector<Millis>& sorted, size_t percent) {
  if (sorted.empty()) return std::nullopt;
  const Millis value = sorted[(sorted.size() * percent + 99) / 100 - 1];
  return value == kNever ? std::nullopt : std::optional(value);
}

std::string Ratio(GpuTime part, GpuTime whole) {
  if (whole == 0) return "-";
  const int64_t thousandths = (part * 1'000 + whole / 2) / whole;
  return fmt::format("{}.{} %", thousandths / 10, thousandths % 10);
}

}  // namespace

Figures FiguresOf(const Outcome& outcome) {
  Figures figures;
  figures.bought = outcome.bought;
  std::vector<Millis> waits;
  for (const GangOutcome& gang : outcome.gangs) {
    const GangAccount& account = gang.account;
    ++figures.gangs;
    figures.completed += account.Completed();
    waits.push_back(account.started ? *account.started - account.created : kNever);
  }
  std::ranges::sort(waits);
  figures.median_start = Percentile(waits, 50);
  figures.late_start = Percentile(waits, 95);
  return figures;
}

std::string Comparison(std::span<const Outcome> outcomes) {
  std::vector<Figures> figures;
  std::vector<std::string> head = {"POLICY"};
  for (const Outcome& outcome : outcomes) {
    figures.push_back(FiguresOf(outcome));
    head.push_back(fmt::format("{:>16}", PolicyName(outcome.policy)));
  }
  const bool two = outcomes.size() == 2;
  if (two) head.push_back(fmt::format("{:>8}", "ratio"));
  std::vector<std::vector<std::string>> rows = {head};
  const auto add = [&](const std::string& what, const auto& text) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(what);
    for (const Figures& each : figures) row.push_back(fmt::format("{:>16}", text(each)));
  };
  const auto add_time = [&](const std::string& what,
                            const std::function<GpuTime(const Figures&)>& of) {
    add(what, [&](const Figures& each) { return Seconds(of(each)); });
    if (two) rows.back().push_back(fmt::format("{:>8}", Ratio(of(figures[0]), of(figures[1]))));
  };
  const auto add_reason = [&](const std::string& indent, Idle reason) {
    if (std::ranges::all_of(figures, [&](const Figures& f) { return f.bought.Of(reason) == 0; })) {
      return;
    }
    add_time(fmt::format("{}{}", indent, IdleName(reason)),
             [reason](const Figures& f) { return f.bought.Of(reason); });
  };
  add_time("GPU-seconds wasted", [](const Figures& f) { return f.bought.Wasted(); });
  add_time("  idle for gangs", [](const Figures& f) { return f.IdleForGangs(); });
  add_time("    before their start", [](const Figures& f) { return f.bought.BeforeStart(); });
  for (const Idle reason : kBeforeStart) add_reason("      ", reason);
  add_time("    after they gave up", [](const Figures& f) { return f.bought.Of(Idle::kGaveUp); });
  for (const Idle reason : kOtherwise) add_reason("  ", reason);
  add_time("GPU-seconds used", [](const Figures& f) { return f.bought.used; });
  add("gangs completed",
      [](const Figures& f) { return fmt::format("{} of {}", f.completed, f.gangs); });
  add("seconds to start, median", [](const Figures& f) { return SecondsOrNever(f.median_start); });
  add("seconds to start, 95th in 100",
      [](const Figures& f) { return SecondsOrNever(f.late_start); });
  return printers::FormatTable(rows);
}

}  // namespace muster::simulation
