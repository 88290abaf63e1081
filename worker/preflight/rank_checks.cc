#include <map>

#include "worker/diagnose/text.h"
#include "worker/preflight/checks.h"

namespace muster::worker {
namespace {

std::string Named(const RankFacts& rank) { return Concat("rank ", rank.rank, " on ", rank.host); }

Row Verdicts(std::string check, CauseId cause, const std::string& wrong, const std::string& right) {
  if (wrong.empty()) return {.check = std::move(check), .numbers = right};
  return {.check = std::move(check),
          .verdict = Verdict::kFailed,
          .numbers = wrong,
          .fix = std::string(CauseOf(cause).fix),
          .cause = cause};
}

Row CheckDevices(const std::vector<RankFacts>& ranks) {
  std::map<std::string, const RankFacts*> owners;
  std::string shared;
  size_t named = 0;
  for (const RankFacts& rank : ranks) {
    if (rank.gpu_uuid.empty()) continue;
    const auto [owner, first] = owners.emplace(rank.gpu_uuid, &rank);
    if (first || named == kMaxNamed) continue;
    ++named;
    Append(&shared, shared.empty() ? "" : "; ", Named(*owner->second), " and ", Named(rank),
           " both have ", rank.gpu_uuid);
  }
  return Verdicts("a GPU for each rank", CauseId::kRanksShareDevice, shared,
                  Concat(owners.size(), " GPUs, none of them twice"));
}

// One row on a fact that must be the same on all ranks.
Row CheckEqual(const std::vector<RankFacts>& ranks, std::string check, CauseId cause,
               std::string RankFacts::* fact) {
  std::map<std::string, std::pair<const RankFacts*, size_t>> values;  // first rank and their number
  for (const RankFacts& rank : ranks) {
    const auto [value, first] = values.emplace(rank.*fact, std::pair(&rank, 0));
    ++value->second.second;
  }
  std::string text;
  size_t named = 0;
  for (const auto& [value, holders] : values) {
    if (named++ == kMaxNamed) break;
    Append(&text, text.empty() ? "" : "; ", value.empty() ? "none" : value, " on ", holders.second,
           " ranks, first ", Named(*holders.first));
  }
  return Verdicts(std::move(check), cause, values.size() > 1 ? text : "", text);
}

}  // namespace

std::vector<Row> CheckRanks(const std::vector<RankFacts>& ranks) {
  return {
      CheckDevices(ranks),
      CheckEqual(ranks, "equal worker versions", CauseId::kVersionsDiffer,
                 &RankFacts::worker_version),
      CheckEqual(ranks, "equal NCCL versions", CauseId::kVersionsDiffer, &RankFacts::nccl_version),
      CheckEqual(ranks, "one checkpoint folder", CauseId::kCheckpointUnwritable,
                 &RankFacts::checkpoint_folder_id)};
}

}  // namespace muster::worker
