"""Kills a rank of a job of two pods with a GPU each, starts it again, and says how long it took the
other one to notice, and both to train on.

    python3 worker/bench/lost_rank.py MUSTER_WORKER --data=TOKENS [--SETTING=VALUE...]

The settings are those of `muster-worker train`. Needs two GPUs.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

KILL_AFTER_STEP, GO_ON = 12, 5
SETTINGS = ["--engine=gpu", "--model=gpt2", "--sharding=zero1", "--batch=32", "--micro-batch=16",
            "--steps=1000", "--report-every=1", "--checkpoint-every=5"]


class Pod:
    def __init__(self, node, command, lines):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(node)}
        self.process = subprocess.Popen(
            [*command, f"--node-rank={node}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=environment, start_new_session=True)
        self.thread = threading.Thread(target=self.read, args=(node, lines), daemon=True)
        self.thread.start()

    def read(self, node, lines):
        for line in self.process.stdout:
            lines.put((time.monotonic(), node, line.rstrip()))

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)


def wait_for(lines, pattern, timeout=300):
    """When the first line came that matches, and the match."""
    end = time.monotonic() + timeout
    while True:
        when, node, line = lines.get(timeout=max(0.1, end - time.monotonic()))
        print(f"  {when - START:7.2f} s  pod {node}  {line[:150]}", flush=True)
        if match := re.search(pattern, line):
            return when, match


START = time.monotonic()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    # So that pods never outlive this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.argv[1], "train", *SETTINGS, f"--checkpoints={folder}/checkpoints",
                   f"--plan-cache={folder}/plans", "--nodes=2", "--processes-per-node=1",
                   "--master-address=127.0.0.1", "--master-port=29517", *sys.argv[2:]]
        lines = queue.Queue()
        pods = [Pod(node, command, lines) for node in range(2)]
        try:
            wait_for(lines, rf"\bstep {KILL_AFTER_STEP}/")
            killed = time.monotonic()
            pods[1].kill()
            noticed, said = wait_for(lines, "generation 1 is over| is lost: ")
            if said[0] == " is lost: ":
                wait_for(lines, "generation 1 is over")
            started = time.monotonic()
            pods[1] = Pod(1, command, lines)
            resumed, _ = wait_for(lines, r"\bstep \d+/")
            wait_for(lines, rf"\bstep {KILL_AFTER_STEP + GO_ON}/")
            print(f"noticed after {noticed - killed:.2f} s, ready for another after "
                  f"{started - killed:.2f} s; the first step was done {resumed - started:.2f} s "
                  "after the rank was started again")
        finally:
            for pod in pods:
                pod.kill()
                pod.process.wait()


if __name__ == "__main__":
    main()
