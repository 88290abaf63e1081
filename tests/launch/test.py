#!/usr/bin/env python3
"""`muster-worker launch` around eight ranks of PyTorch that something happens to.

    tests/launch/test.py [--rounds N] [--lanes N] [--gpus N] [NAME...]

Each case is a pod of its own: the program, its ranks, a termination message. What must come out is
the rank and the cause, within 10 s of what happened, or within 60 s if nobody gets anywhere any more.
The last line is "N passed, N failed".
"""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORKER = os.path.join(ROOT, "build", "muster-worker")
# Debian's own Python, for which Debian's PyTorch is.
PYTHON = os.environ.get("MUSTER_TORCH_PYTHON", "/usr/bin/python3")
TRAIN = [PYTHON, os.path.join(HERE, "train.py")]
# Debian's torchrun 1.13 stumbles over Python 3.11 unless it is told of redirections, here of a rank
# that isn't there.
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--redirects=9:1", "--tee=9:1",
            os.path.join(HERE, "train.py")]
RANKS = 8  # fewer with --gpus
SOON = 10.0  # seconds, from what happened to the end of the pod
STANDSTILL = 60.0
MOST = 180.0  # of a whole case
MEMORY_LIMIT = 2 << 30
# Of the processor time of its job, at most.
SHARE = 0.005

FAULTY = "the one that train.py chooses"


@dataclasses.dataclass
class Case:
    name: str
    cause: str
    rank: int | str | None = FAULTY
    command: list = dataclasses.field(default_factory=lambda: [*TRAIN, "none", "0"])
    flags: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    # What is done to the pod from outside, once it trains.
    signal_rank: int | None = None
    signal_pod: int | None = None
    memory_limit: int | None = None
    within: float = SOON
    exit_codes: range = range(1, 256)
    detail: str = ""
    rank_may_lack: bool = False


def at_fault(fault, seconds="3", command=None):
    return [*(command or TRAIN), fault, seconds]


RETRY, CHANGE = range(128, 256), range(1, 128)
CASES = [
    Case("killed", "killed", signal_rank=signal.SIGKILL, exit_codes=RETRY),
    Case("stopped", "collective-timeout", signal_rank=signal.SIGSTOP, within=STANDSTILL,
         exit_codes=RETRY, detail="was stopped by a signal"),
    Case("hang", "collective-timeout", command=at_fault("hang", "10"), within=STANDSTILL,
         exit_codes=RETRY, detail=r"is at train.py:\d+ \(fetch_labels\)"),
    Case("memory", "host-out-of-memory", command=at_fault("memory"), memory_limit=MEMORY_LIMIT,
         exit_codes=CHANGE, detail=r"memory limit is 2.00 GiB"),
    Case("exception", "python-exception", command=at_fault("exception"), exit_codes=CHANGE,
         detail="ValueError: expected 64 features, got 63"),
    Case("data", "data-loading-failed", command=at_fault("data"), exit_codes=CHANGE,
         detail="has no label"),
    Case("sigterm", "terminated", rank=None, signal_pod=signal.SIGTERM, exit_codes=range(143, 144)),
    Case("name", "name-not-found", rank=0, environment={"MASTER_ADDR": "no-such-pod.invalid"},
         flags=["--resolve-timeout=3s"], exit_codes=RETRY, detail="no-such-pod.invalid"),
    Case("disk", "disk-full", command=at_fault("disk"), exit_codes=CHANGE,
         detail="No space left on device"),
    Case("world-size", "world-size-mismatch", rank=0,
         command=["env", "WORLD_SIZE=9", *TRAIN, "none", "0"], exit_codes=CHANGE,
         detail="WORLD_SIZE=9"),
    Case("torchrun-killed", "killed", command=at_fault("none", "0", TORCHRUN),
         signal_rank=signal.SIGKILL),
    Case("torchrun-hang", "collective-timeout", command=at_fault("hang", "10", TORCHRUN),
         within=STANDSTILL, exit_codes=RETRY,
         detail=r"is at train.py:\d+ \(fetch_labels\)"),
    Case("torchrun-exception", "python-exception", exit_codes=CHANGE,
         # Debian's torchrun may find that all ranks have ended, and doesn't say which of them wrote
         # a line.
         command=at_fault("exception", "3", TORCHRUN), rank_may_lack=True,
         detail="ValueError: expected 64 features, got 63"),
]
# On a machine with GPUs: what is above, and this.
GPU_CASES = [
    Case("gpu-memory", "out-of-memory", command=at_fault("gpu-memory"), exit_codes=CHANGE),
    Case("torchrun-gpu-memory", "out-of-memory", exit_codes=CHANGE,
         command=at_fault("gpu-memory", "3", TORCHRUN)),
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read(path, mode="r"):
    with contextlib.suppress(OSError):
        with open(path, mode) as file:
            return file.read()
    return "" if mode == "r" else b""


def rank_process(launcher, rank):
    """The process of that rank below the launcher."""
    wanted = f"RANK={rank}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        variables = read(f"/proc/{pid}/environ", "rb").split(b"\0")
        if wanted in variables and any(v.startswith(b"LOCAL_RANK=") for v in variables):
            above = int(pid)
            while above > 1 and above != launcher:
                above = int((read(f"/proc/{above}/stat").rpartition(")")[2].split() or [0, 0])[1])
            if above == launcher:
                return int(pid)
    raise RuntimeError(f"there is no rank {rank}")


@contextlib.contextmanager
def memory_group(limit):
    """The file that a process enters a memory cgroup with, of either version; null without a limit."""
    if limit is None:
        yield None
        return
    parent = "/sys/fs/cgroup/memory"
    name = "memory.limit_in_bytes"
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        parent, name = "/sys/fs/cgroup", "memory.max"
    group = tempfile.mkdtemp(prefix="muster-launch-", dir=parent)
    try:
        with open(os.path.join(group, name), "w") as file:
            file.write(str(limit))
        yield os.path.join(group, "cgroup.procs")
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                os.rmdir(group)
                break
            time.sleep(0.1)


class Pod:
    """A running launcher, whose output is read as it comes."""

    def __init__(self, case, folder, group, ranks, gpus):
        self.termination = os.path.join(folder, "termination-log")
        open(self.termination, "w").close()
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                        "PET_NNODES": "1", "PET_NODE_RANK": "0",
                        "PET_NPROC_PER_NODE": str(ranks)}
        if not gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        environment |= case.environment
        command = [WORKER, "launch", f"--termination-log={self.termination}", *case.flags, "--",
                   *case.command]
        if group:
            command = ["sh", "-c", f'echo $$ >{group} && exec "$@"', "sh", *command]
        self.began = time.time()
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.printed = ""
        self.changed = threading.Condition()
        self.own_seconds = 0.0
        self.job_seconds = 0.0
        self.ended = None
        self.exit_code = None
        self.threads = [threading.Thread(target=work) for work in (self.read_all, self.wait)]
        for thread in self.threads:
            thread.start()

    def read_all(self):
        for line in self.process.stdout:
            with self.changed:
                self.printed += line
                self.changed.notify_all()

    def wait(self):
        pid = self.process.pid
        while True:
            # Its threads and nobody else's, in nanoseconds.
            with contextlib.suppress(ValueError, IndexError):
                self.own_seconds = int(read(f"/proc/{pid}/schedstat").split()[0]) / 1e9
            waited, status, usage = os.wait4(pid, os.WNOHANG)
            if waited:
                break
            time.sleep(0.1)
        self.ended = time.time()
        self.job_seconds = usage.ru_utime + usage.ru_stime
        self.exit_code = os.waitstatus_to_exitcode(status)
        self.process.returncode = self.exit_code
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, pattern):
        with self.changed:
            self.changed.wait_for(
                lambda: re.search(pattern, self.printed) or self.ended is not None, MOST)
            return re.search(pattern, self.printed)

    def finish(self):
        with self.changed:
            self.changed.wait_for(lambda: self.ended is not None, MOST)
        if self.ended is None:
            self.process.kill()
        for thread in self.threads:
            thread.join()


def happened(case, pod, faulty):
    """When what the case is about did."""
    if case.signal_rank or case.signal_pod:
        if not pod.wait_for(r"step [1-9]\d0 "):
            raise RuntimeError("it doesn't train")
        # Long enough for its pace to be learned.
        time.sleep(8 if case.within > SOON else 0)
        pid = pod.process.pid
        at = time.time()
        if case.signal_pod:
            os.kill(pid, case.signal_pod)
        else:
            os.kill(rank_process(pid, faulty), case.signal_rank)
        return at
    if case.command[-2] == "none":
        return pod.began
    fault = pod.wait_for(r"FAULT (\d+\.\d+) ")
    if not fault:
        raise RuntimeError("what should happen doesn't")
    return float(fault[1])


def problems(case, pod, at, faulty):
    """What isn't as it should be."""
    seconds = pod.ended - at
    message = read(pod.termination)
    if len(message.encode()) > 4096:
        yield f"a termination message of {len(message.encode())} bytes"
    try:
        said = json.loads(message)
    except ValueError:
        yield f"the termination message is {message!r}"
        return
    if seconds > case.within:
        yield f"after {seconds:.1f} s"
    if said.get("cause") != case.cause:
        yield f"cause {said.get('cause')}, not {case.cause}"
    rank = faulty if case.rank is FAULTY else case.rank
    if said.get("rank") != rank and ("rank" in said or not case.rank_may_lack):
        yield f"rank {said.get('rank')}, not {rank}"
    if pod.exit_code not in case.exit_codes:
        yield f"exit code {pod.exit_code}"
    if pod.exit_code != said.get("exitCode"):
        yield f"exit code {pod.exit_code}, and the message says {said.get('exitCode')}"
    if not re.search(case.detail, said.get("detail", "")):
        yield f"the detail isn't {case.detail!r}"


def run(case, used, gpus):
    ranks = gpus or RANKS
    faulty = min(3, ranks - 1)
    with tempfile.TemporaryDirectory() as folder, memory_group(case.memory_limit) as group:
        pod = Pod(case, folder, group, ranks, gpus)
        wrong = []
        at = pod.began
        try:
            at = happened(case, pod, faulty)
        except RuntimeError as error:
            wrong.append(str(error))
            pod.process.kill()
        pod.finish()
        wrong += problems(case, pod, at, faulty)
        used.append((pod.own_seconds, pod.job_seconds))
        said = f"{case.name}: {pod.ended - at:.1f} s, {read(pod.termination)}"
        if wrong:
            said = (f"FAILED: {case.name}: {'; '.join(wrong)}\n{read(pod.termination)}\n"
                    + pod.printed[-6000:])
        return not wrong, said


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--lanes", type=int, default=3, help="pods at a time")
    arguments.add_argument("--gpus", type=int, default=0, help="of this machine: a rank on each")
    arguments.add_argument("names", nargs="*")
    options = arguments.parse_args()
    cases = CASES + (GPU_CASES if options.gpus else [])
    cases = [case for case in cases if not options.names or case.name in options.names]
    used = []
    passed = failed = 0
    # A job that fills a GPU leaves others none of it.
    with concurrent.futures.ThreadPoolExecutor(1 if options.gpus else options.lanes) as lanes:
        # Those that wait come first: the others run beside them.
        order = sorted(cases, key=lambda case: -case.within)
        runs = [lanes.submit(run, case, used, options.gpus) for _ in range(options.rounds) for case in order]
        for done in concurrent.futures.as_completed(runs):
            well, said = done.result()
            passed, failed = passed + well, failed + (not well)
            print(said, flush=True)
    own = sum(own for own, _ in used)
    job = sum(job for _, job in used)
    print(f"the launchers' own CPU time: {own:.2f} s of {job:.2f} s, {100 * own / job:.2f} %")
    if own > SHARE * job:
        print(f"FAILED: that is more than {100 * SHARE} %")
        failed += 1
    else:
        passed += 1
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
