// What each released version wrote into a cluster is read by this one: VERSION.json has objects as
// the API server stored them, VERSION.txt what they say. A line that changes is a cluster whose
// gangs are mistaken for others after the upgrade.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/suspect_nodes.h"
#include "coscheduling/admission/record.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/decode.h"
#include "kube/objects/job_restart.h"
#include "kube/objects/node_holds.h"
#include "kube/objects/time_text.h"
#include "quota/pod_sets.h"
#include "quota/workload_status.h"

namespace muster {
namespace {

using Lines = std::vector<std::string>;
using kube::MilliTimeText;

constexpr const char* kFolder = "tests/state";

std::string NameOf(const kube::ObjectMeta& meta) {
  return meta.name_space.empty() ? meta.name : meta.name_space + "/" + meta.name;
}

void Say(const kube::PodGroup& group, Lines* lines) {
  const std::string* text = group.meta.Annotation(coscheduling::kRecordAnnotation);
  if (text == nullptr) return;
  const absl::StatusOr<coscheduling::AdmissionRecord> record = coscheduling::DecodeRecord(*text);
  ASSERT_TRUE(record.ok()) << *text << "\n" << record.status();
  std::string line = fmt::format(
      "PodGroup {}: of {}, by {}, epoch {}, attempt {}, admitted {}, until {}", NameOf(group.meta),
      record->uid == group.meta.uid ? "itself" : "another", record->identity, record->epoch,
      record->attempt, MilliTimeText(record->admitted_at), MilliTimeText(record->deadline));
  const auto time = [&line](const char* what, const std::optional<absl::Time>& at) {
    if (at) line += fmt::format(", {} {}", what, MilliTimeText(*at));
  };
  time("tries again", record->retry_after);
  if (record->given_up) {
    line += fmt::format(", gave up: {} ({}; {})", v1::ReasonCode_Name(record->given_up->code),
                        record->given_up->message, record->given_up->fix);
  }
  time("bound", record->bound_at);
  if (record->whole_with) line += fmt::format(", whole with {}", *record->whole_with);
  time("repairing since", record->repairing_since);
  if (record->preempted) line += fmt::format(", preempted: {}", *record->preempted);
  for (const auto& [flavor, until] : record->flavors_tried) {
    line += fmt::format(", not {} before {}", flavor, MilliTimeText(until));
  }
  lines->push_back(line);
}

void Say(const kube::Node& node, Lines* lines) {
  for (const auto& [uid, until] : kube::ReadHolds(node.meta.annotations)) {
    lines->push_back(
        fmt::format("Node {}: held for {} until {}", node.meta.name, uid, MilliTimeText(until)));
  }
  const std::string* suspect = node.meta.Annotation(cluster::kSuspectAnnotation);
  if (suspect == nullptr) return;
  cluster::SuspectNodes nodes(absl::Hours(1));
  nodes.Restore(node.meta.name, *suspect);
  const cluster::SuspectNodes::Entry* entry = nodes.Find(node.meta.name);
  ASSERT_NE(entry, nullptr) << *suspect;
  lines->push_back(fmt::format("Node {}: left out until {}, turned away {}: {}", node.meta.name,
                               MilliTimeText(entry->rejection.until),
                               fmt::join(entry->turned_away, ", "), entry->rejection.fault));
}

void Say(const kube::Job& job, Lines* lines) {
  if (const std::string* text = job.meta.Annotation(kube::kRestartAnnotation)) {
    const kube::RestartMark mark = kube::DecodeMark(*text);
    lines->push_back(fmt::format("Job {}: to be resumed, suspended {} in generation {}: {}",
                                 NameOf(job.meta), MilliTimeText(mark.at), mark.generation,
                                 mark.why));
  }
  if (const std::string* text = job.meta.Annotation(kube::kTriedAnnotation)) {
    const std::optional<kube::TriedFlavors> tried = kube::DecodeTried(*text);
    ASSERT_TRUE(tried.has_value()) << *text;
    for (const auto& [flavor, until] : tried->flavors) {
      lines->push_back(fmt::format("Job {}: attempt {}, not {} before {}", NameOf(job.meta),
                                   tried->attempt, flavor, MilliTimeText(until)));
    }
  }
}

void Say(const kube::Pod& pod, Lines* lines) {
  std::string line = fmt::format("Pod {}: pod set {}, flavors {{{}}}", NameOf(pod.meta),
                                 quota::PodSetOf(pod), fmt::join(quota::CarriedFlavors(pod), ", "));
  for (const std::string_view key :
       {coscheduling::kEpochAnnotation, coscheduling::kZoneAnnotation}) {
    if (const std::string* value = pod.meta.Annotation(key)) {
      line += fmt::format(", {} {}", key, *value);
    }
  }
  const auto gates = [&](const std::string& gate) { return gate == coscheduling::kGate; };
  if (std::ranges::any_of(pod.scheduling_gates, gates)) line += ", gated";
  lines->push_back(line);
}

const char* TextOf(quota::WorkloadState state) {
  switch (state) {
    case quota::WorkloadState::kWaiting:
      return "waits";
    case quota::WorkloadState::kReserved:
      return "is reserved";
    case quota::WorkloadState::kAdmitted:
      return "is admitted";
    case quota::WorkloadState::kEvicting:
      return "is being evicted";
    case quota::WorkloadState::kReleased:
      return "has ended";
  }
  return "?";
}

void Say(const kube::Workload& workload, Lines* lines) {
  EXPECT_EQ(workload.error, "");
  std::string line =
      fmt::format("Workload {}: {} in queue {}, priority {}, of {}, finalizer {}",
                  NameOf(workload.meta), TextOf(quota::StateOf(workload)), workload.queue,
                  workload.priority, quota::KeeperOf(workload), quota::HasFinalizer(workload));
  const quota::Admission reserved = quota::ReservedIn(workload);
  for (const quota::PodSetAssignment& set : reserved.pod_sets) {
    line += fmt::format("; {} of {}: {} in {}", set.count, set.name,
                        fmt::join(quota::FlavorNames(set), ", "), reserved.cluster_queue);
  }
  for (const auto& [set, count] : workload.reclaimable) {
    line += fmt::format("; {} of {} given back", count, set);
  }
  lines->push_back(line);
}

template <typename Object>
void SayAll(const nlohmann::json& object, Lines* lines) {
  const absl::StatusOr<Object> decoded = kube::Decode<Object>(object.dump());
  ASSERT_TRUE(decoded.ok()) << object.dump() << "\n" << decoded.status();
  Say(*decoded, lines);
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(WrittenState, OfEachVersionIsReadAsItWasMeant) {
  size_t versions = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".json") continue;
    ++versions;
    SCOPED_TRACE(entry.path().string());
    Lines lines;
    for (const nlohmann::json& object : nlohmann::json::parse(ReadFile(entry.path()))) {
      const std::string kind = object.at("kind");
      if (kind == "PodGroup") {
        SayAll<kube::PodGroup>(object, &lines);
      } else if (kind == "Node") {
        SayAll<kube::Node>(object, &lines);
      } else if (kind == "Job") {
        SayAll<kube::Job>(object, &lines);
      } else if (kind == "Pod") {
        SayAll<kube::Pod>(object, &lines);
      } else if (kind == "Workload") {
        SayAll<kube::Workload>(object, &lines);
      } else {
        ADD_FAILURE() << "an object of kind " << kind;
      }
    }
    std::string said;
    for (const std::string& line : lines) said += line + "\n";
    std::filesystem::path expected = entry.path();
    expected.replace_extension(".txt");
    if (const char* record = std::getenv("MUSTER_STATE_RECORD"); record != nullptr) {
      std::ofstream(expected) << said;
    }
    EXPECT_EQ(said, ReadFile(expected));
  }
  EXPECT_GE(versions, 1u);
}

}  // namespace
}  // namespace muster
