// What a program finds in its environment: the same facts in every launcher's form, so that a
// program written for one of them starts under this one.
//
//  - torchrun, accelerate and PyTorch: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...
//  - DeepSpeed: CROSS_RANK, CROSS_SIZE, LOCAL_SIZE beside those
//  - Open MPI: OMPI_COMM_WORLD_RANK, ...
//  - Slurm: SLURM_PROCID, SLURM_LOCALID, SLURM_NTASKS, ...; no SLURM_JOB_ID, by which programs tell
//    that they may ask Slurm for more
//  - launchers of one node's processes: PET_* (torchrun's own arguments), NNODES, NODE_RANK, ...
#pragma once

#include "worker/launch/environment.h"

namespace muster::worker {

// For a process that is one of the plan's ranks. Replaces what the pod has by these names.
Environment ProcessForms(const LaunchPlan& plan, int local_rank);

// For the one process of this pod that starts the ranks itself (torchrun, accelerate launch,
// deepspeed). What the pod's own environment says of its arguments (PET_*) stays.
Environment NodeForms(const LaunchPlan& plan, const Environment& pod);

// What helps to explain a failure and costs nothing, unless the pod has its own: a Python that is
// killed by a signal prints where it was (PYTHONFAULTHANDLER), what is printed comes at once
// (PYTHONUNBUFFERED), and threads don't outnumber the processors (OMP_NUM_THREADS, as torchrun
// does). `processors` are those of this pod.
Environment Aids(const LaunchPlan& plan, const Environment& pod, int processors);

}  // namespace muster::worker
