// What holds at every moment of every scenario, seen from the API server.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coscheduling/engine.h"
#include "kube/api.h"
#include "kube/objects/quota.h"
#include "kube/objects/resource_list.h"
#include "kube/objects/workload.h"
#include "muster/v1/admission.pb.h"

namespace muster::kube::embedded {
class ApiServer;
class WatchSession;
}  // namespace muster::kube::embedded

namespace muster::kube {
struct Pod;
}

namespace muster::simulation {

// Follows the API server's events one by one, so that what holds only for a moment is seen too:
// - no node is overcommitted;
// - no flavor is used beyond the nominal quota of all ClusterQueues that have it;
// - the first member of a gang is bound only once as many as it needs have lost their gate, unless
//   one went a moment ago and Muster is told late;
// - nobody is given a place on a node that is kept for a gang that comes before it, unless it is
//   certain to be gone in time;
// - a gang is bound whole, or excused and for a short time only in part;
// - every gang has a reason, and queries show it as it is;
// - a PodGroup's status counts what is there.
// Where there are very many gangs, those about which nothing was heard are checked in turn.
// One thread.
class Invariants {
 public:
  // With `undisturbed_commits`, a commit is whole at every moment unless the world outside touched
  // a pod; without (writes get lost), it may be partial for a bounded time.
  // Muster may be told of anything so much later, and its writes come so much later.
  Invariants(kube::embedded::ApiServer* server, bool undisturbed_commits, absl::Duration lag);
  ~Invariants();
  Invariants(const Invariants&) = delete;
  Invariants& operator=(const Invariants&) = delete;

  // A request of the world outside: a deleted or failed member excuses its gang from being whole.
  void Note(const kube::Request& request);
  // What queries are answered with from now on.
  void Show(const coscheduling::StepOutput& output);
  // Muster was killed: queries are answered with nothing.
  void ForgetShown() {
    shown_.clear();
    for (const auto& [name, pods] : pods_of_) touched_gangs_.insert(name);
  }

  absl::Status Check(const coscheduling::Engine& engine, absl::Time now);

 private:
  struct Member {
    std::string gang;
    std::string node;
    bool gated = false;
    bool live = false;  // neither ended nor being deleted
    bool running = false, succeeded = false, failed = false;
    std::shared_ptr<const kube::Pod> pod;
    kube::ResourceList requests;
    std::map<std::string, std::string> flavors;  // resource -> flavor, as Muster wrote on it
  };
  struct Group {
    int64_t min_member = 1;
    bool edited = false;  // bindings may have been on their way
    kube::PodGroup::Status status;
  };
  struct Counts {
    int64_t pods = 0, bound = 0, ungated = 0, running = 0, succeeded = 0, failed = 0;
  };

  absl::Status ReadPods();
  void ReadNodes();
  void ReadGroups();
  absl::Status NotePod(bool deleted, const kube::Pod& pod);
  void Forget(const std::string& uid);
  Counts Count(const std::string& gang) const;
  void ReadQueues();
  absl::Status CheckNodes();
  absl::Status CheckQuota() const;
  absl::Status CheckWhole(const v1::Gang& gang, const Counts& counts, absl::Time now);
  absl::Status CheckShown(const coscheduling::GangKey& key, const v1::Gang& gang) const;
  std::set<coscheduling::GangKey> Due(const std::set<std::string>& touched);
  void NoteGang(const std::string& name, const v1::Gang& gang);
  absl::Status CheckEntries();
  absl::Status CheckStatus(const coscheduling::GangKey& key, const Counts& counts, absl::Time now);

  const bool undisturbed_commits_;
  const absl::Duration lag_;
  absl::Time now_ = absl::InfinitePast();
  std::map<std::string, absl::Time> lost_member_at_;  // by gang: one was live and isn't any more
  bool disturbed_ = false;                            // a pod was deleted or changed from outside
  std::unique_ptr<kube::embedded::WatchSession> pod_events_, node_events_, group_events_,
      queue_events_;
  std::map<std::string, Member> members_;                  // by UID
  std::map<std::string, std::set<std::string>> pods_of_;   // gang -> UIDs
  std::map<std::string, std::set<std::string>> pods_on_;   // node -> UIDs that take room
  std::map<std::string, kube::ResourceList> allocatable_;  // by node
  std::set<std::string> touched_nodes_;                    // since the last check
  std::set<std::string> touched_gangs_;                    // since then, "namespace/name"
  size_t turn_ = 0;  // of Engine::Gangs, where the untouched ones go on
  std::map<std::string, kube::ClusterQueue> queues_;    // by name
  std::map<std::string, Group> groups_;                 // by "namespace/name"
  std::map<coscheduling::GangKey, std::string> shown_;  // serialized
  std::vector<coscheduling::GangKey> gangs_;            // in order
  // By gang: those that have a reservation, as of this check and the one before; and where the
  // members of each had places when it was looked at last.
  std::map<std::string, v1::Gang> kept_, kept_before_;
  struct Seen {
    std::set<std::string> places;
    v1::Gang gang;
  };
  std::map<std::string, Seen> seen_;
  // Those that were given a place at this check, as they were before.
  std::vector<std::pair<v1::Gang, std::string>> entries_;  // with the node
  std::map<std::string, absl::Time> partial_since_, status_wrong_since_;
};

}  // namespace muster::simulation
