#include "worker/launch/forms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster::worker {
namespace {

// Of both kinds of processes.
Environment Common(const LaunchPlan& plan) {
  return {{"MASTER_ADDR", plan.store.host},
          {"MASTER_PORT", absl::StrCat(plan.store.port)},
          {"NNODES", absl::StrCat(plan.nodes)},
          {"NODE_RANK", absl::StrCat(plan.node_rank)},
          {"NPROC_PER_NODE", absl::StrCat(plan.processes_per_node)},
          {"SLURM_NNODES", absl::StrCat(plan.nodes)},
          {"SLURM_NODEID", absl::StrCat(plan.node_rank)}};
}

// Those of `more` that `pod` has no value for.
void AddMissing(const Environment& pod, const Environment& more, Environment& environment) {
  for (const auto& [name, value] : more) {
    const auto own = pod.find(name);
    if (own == pod.end() || own->second.empty()) environment.emplace(name, value);
  }
}

}  // namespace

Environment ProcessForms(const LaunchPlan& plan, int local_rank) {
  Environment environment = RankEnvironment(plan, local_rank);
  environment.merge(Common(plan));
  const std::string rank = absl::StrCat(plan.first_rank + local_rank);
  const std::string local = absl::StrCat(local_rank);
  const std::string world = absl::StrCat(plan.world_size);
  const std::string local_world = absl::StrCat(plan.processes_per_node);
  environment.merge(Environment{{"ROLE_RANK", rank},
                                {"ROLE_WORLD_SIZE", world},
                                {"GROUP_WORLD_SIZE", absl::StrCat(plan.nodes)},
                                {"CROSS_RANK", absl::StrCat(plan.node_rank)},
                                {"CROSS_SIZE", absl::StrCat(plan.nodes)},
                                {"LOCAL_SIZE", local_world},
                                {"OMPI_COMM_WORLD_RANK", rank},
                                {"OMPI_COMM_WORLD_SIZE", world},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", local},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", local_world},
                                {"OMPI_COMM_WORLD_NODE_RANK", local},
                                {"SLURM_PROCID", rank},
                                {"SLURM_LOCALID", local},
                                {"SLURM_NTASKS", world},
                                {"SLURM_NPROCS", world},
                                {"SLURM_NTASKS_PER_NODE", local_world}});
  return environment;
}

Environment NodeForms(const LaunchPlan& plan, const Environment& pod) {
  Environment environment = Common(plan);
  AddMissing(pod,
             {{"PET_NNODES", absl::StrCat(plan.nodes)},
              {"PET_NPROC_PER_NODE", absl::StrCat(plan.processes_per_node)}},
             environment);
  // An elastic job's rendezvous gives its pods their ranks itself.
  if (!pod.contains("PET_RDZV_ENDPOINT")) {
    AddMissing(pod,
               {{"PET_NODE_RANK", absl::StrCat(plan.node_rank)},
                {"PET_MASTER_ADDR", plan.store.host},
                {"PET_MASTER_PORT", absl::StrCat(plan.store.port)}},
               environment);
  }
  return environment;
}

Environment Aids(const LaunchPlan& plan, const Environment& pod, int processors) {
  Environment aids;
  const int threads = std::max(1, processors / std::max(1, plan.processes_per_node));
  AddMissing(pod,
             {{"PYTHONFAULTHANDLER", "1"},
              {"PYTHONUNBUFFERED", "1"},
              {"OMP_NUM_THREADS", absl::StrCat(threads)}},
             aids);
  return aids;
}

}  // namespace muster::worker
