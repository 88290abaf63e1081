#!/usr/bin/env python3
"""One rank of a small training job with PyTorch's DistributedDataParallel, over NCCL where there are
GPUs, else over gloo.

    train.py FAULT SECONDS

After SECONDS of training rank 3, or the last one of fewer, does what FAULT says; with "none" it trains
until it is stopped.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH = 64


def tell(what):
    """To the test: what happens, and when."""
    print(f"FAULT {time.time():.3f} {what}", flush=True)


class Numbers(Dataset):
    """Of which one can't be read, from `breaks_at` on."""

    def __init__(self, breaks_at):
        self.breaks_at = breaks_at

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if time.time() > self.breaks_at:
            tell("data")
            raise KeyError(f"sample {index} has no label")
        return torch.ones(WIDTH) * (index % 7)


def fetch_labels():
    tell("hang")
    time.sleep(3600)


def break_down(fault):
    if fault == "hang":
        fetch_labels()
    elif fault == "exception":
        tell(fault)
        raise ValueError("expected 64 features, got 63")
    elif fault == "disk":
        tell(fault)
        with open("/dev/full", "wb") as checkpoint:
            checkpoint.write(bytes(1 << 20))
    elif fault == "memory":
        tell(fault)
        taken = []
        while True:
            taken.append(torch.ones(16 << 20))
    elif fault == "gpu-memory":
        tell(fault)
        taken = []
        while True:
            taken.append(torch.ones(1 << 30, device="cuda"))


def main():
    fault, seconds = sys.argv[1], float(sys.argv[2])
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if device == "cpu" else "nccl",
                            timeout=datetime.timedelta(minutes=30))
    rank = dist.get_rank()
    faulty = min(3, dist.get_world_size() - 1)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    ends = time.time() + seconds
    breaks_at = ends if fault == "data" and rank == faulty else float("inf")
    loader = DataLoader(Numbers(breaks_at), batch_size=8, num_workers=1 if fault == "data" else 0)
    for step, batch in enumerate(loader):
        loss = model(batch.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if rank == faulty and time.time() > ends:
            break_down(fault)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
