// The predicates against recorded verdicts of kube-scheduler's own filter plugins (v1.34.2) on
// random clusters. verdicts/main.go makes the recording.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "cluster/predicates.h"
#include "kube/objects/decode.h"

namespace muster::cluster {
namespace {

using Json = nlohmann::json;

constexpr const char* kRecording = "cluster/verdicts/recorded.jsonl";

template <typename T>
T Read(const Json& json) {
  absl::StatusOr<T> object = kube::Decode<T>(json.dump());
  EXPECT_TRUE(object.ok()) << object.status() << "\n" << json;
  return *std::move(object);
}

template <typename T>
void Feed(const Json& recorded, const char* kind, Snapshot& snapshot) {
  for (const Json& object : recorded[kind]) snapshot.Upsert(Read<T>(object));
}

std::set<std::string> RefusedBy(const Json& recorded, std::initializer_list<const char*> plugins) {
  std::set<std::string> nodes;
  for (const char* plugin : plugins) {
    for (const Json& node : recorded["refused"].at(plugin)) nodes.insert(node.get<std::string>());
  }
  return nodes;
}

struct Tally {
  int verdicts = 0;
  int refusals = 0;
};

// Compares one part of the predicates with the plugins that it stands for.
void Compare(const char* part, int line, const std::set<std::string>& refused,
             const std::string& node, const std::optional<Rejection>& got, Tally& tally) {
  ++tally.verdicts;
  tally.refusals += refused.contains(node);
  EXPECT_EQ(got.has_value(), refused.contains(node))
      << kRecording << ":" << line << ", " << node << ", " << part
      << (got ? ": " + got->detail : ": passes");
}

TEST(KubeSchedulerVerdicts, AreOurs) {
  std::ifstream file(kRecording);
  ASSERT_TRUE(file) << kRecording << " can't be read; tests run from the project's root";
  Tally tally;
  int line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    const Json recorded = Json::parse(line);
    Snapshot snapshot;
    Feed<kube::Node>(recorded, "nodes", snapshot);
    Feed<kube::Namespace>(recorded, "namespaces", snapshot);
    Feed<kube::PersistentVolumeClaim>(recorded, "claims", snapshot);
    Feed<kube::PersistentVolume>(recorded, "volumes", snapshot);
    Feed<kube::StorageClass>(recorded, "storageClasses", snapshot);
    Feed<kube::Pod>(recorded, "pods", snapshot);
    const kube::Pod pod = Read<kube::Pod>(recorded["pod"]);
    const auto by_class = RefusedBy(recorded, {"NodeUnschedulable", "TaintToleration",
                                               "NodeAffinity", "VolumeBinding", "VolumeZone"});
    const auto by_room = RefusedBy(recorded, {"NodePorts", "NodeResourcesFit"});
    const auto by_relations = RefusedBy(recorded, {"InterPodAffinity", "PodTopologySpread"});
    for (const auto& [name, info] : snapshot.nodes()) {
      ASSERT_TRUE(info.UsableNow()) << info.readiness.message;
      Compare("class", line_number, by_class, name, CheckClass(snapshot, pod, info), tally);
      Compare("room", line_number, by_room, name, CheckRoom(snapshot, pod, info), tally);
      Compare("relations", line_number, by_relations, name, CheckRelations(snapshot, pod, info),
              tally);
    }
  }
  // A recording that refuses nothing, or everything, would prove nothing.
  EXPECT_GE(tally.verdicts, 1000);
  EXPECT_GT(tally.refusals, tally.verdicts / 10);
  EXPECT_LT(tally.refusals, tally.verdicts * 9 / 10);
}

}  // namespace
}  // namespace muster::cluster
