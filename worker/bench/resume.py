"""Whether training that stops at a checkpoint goes on as if it hadn't stopped.

    python3 worker/bench/resume.py MUSTER_WORKER --data=TOKENS [--ranks=N] [--SETTING=VALUE...]

Trains with --deterministic on N GPUs, two unless said, then again from the checkpoint in the middle
in new processes: losses, norms and the last checkpoint must have the same bits; where they don't,
it tells the first step that differs. Then from the same checkpoint without --deterministic, on N
GPUs and on one: each loss within 0.02 of the first, their mean within 0.005. Exits with 1 if not.
The settings are those of `muster-worker train`.
"""

import hashlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from losses import compare

STEPS, MIDDLE = 60, 30
SETTINGS = ["--engine=gpu", "--model=gpt2", "--sharding=zero1", "--batch=32", "--micro-batch=16",
            f"--steps={STEPS}", "--report-every=1", f"--checkpoint-every={MIDDLE}",
            "--learning-rate=6e-4", "--warmup-steps=700", "--keep-checkpoints=2", "--nodes=1",
            "--master-address=127.0.0.1", "--master-port=29518"]


def train(command, folder, name, ranks, extra, start=None):
    """The steps' events, from `start`'s checkpoint in the middle on."""
    checkpoints = folder / name
    if start is not None:
        checkpoints.mkdir()
        of_middle = f"step-{MIDDLE:010d}"
        shutil.copytree(start / of_middle, checkpoints / of_middle)
    events = folder / f"{name}.jsonl"
    result = subprocess.run(
        [*command, f"--checkpoints={checkpoints}", f"--events={events}",
         f"--plan-cache={folder}/plans", f"--processes-per-node={ranks}", *extra],
        capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{name}: {(result.stdout + result.stderr).strip()[-1500:]}")
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    begins = 0 if start is None else MIDDLE
    if [line["step"] for line in steps] != list(range(begins + 1, STEPS + 1)):
        sys.exit(f"{name}: steps {[line['step'] for line in steps]}")
    # Without the first ones, which are slower.
    speed = statistics.median(line["tokens_per_second"] for line in steps[len(steps) // 3:])
    print(f"  {name:32} {steps[0]['loss']:.4f} to {steps[-1]['loss']:.4f}, {speed:,.0f} tokens/s",
          flush=True)
    return steps, speed


def same_bits(whole, again):
    """Whether losses and norms are equal; tells the first step at which one isn't."""
    for one, other in zip(whole, again, strict=True):
        for what in ("loss", "gradient_norm"):
            if one[what] != other[what]:
                print(f"  step {one['step']} is the first that differs: {what} {one[what]!r}, and "
                      f"{other[what]!r} resumed")
                return False
    return True


def digests(checkpoints):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted((checkpoints / f"step-{STEPS:010d}").iterdir())}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    ranks, settings = 2, []
    for argument in sys.argv[2:]:
        if argument.startswith("--ranks="):
            ranks = int(argument.partition("=")[2])
        else:
            settings.append(argument)
    command = [sys.argv[1], "train", *SETTINGS, *settings]
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        whole, deterministic = train(command, folder, "whole", ranks, ["--deterministic"])
        start = folder / "whole"
        again, _ = train(command, folder, "resumed", ranks, ["--deterministic"], start)
        same_losses = same_bits(whole[MIDDLE:], again)
        same_bytes = digests(start) == digests(folder / "resumed")
        print(f"  the same bits: losses and norms {same_losses}, checkpoint {same_bytes}")
        good = same_losses and same_bytes
        expected = [line["loss"] for line in whole[MIDDLE:]]
        for count in sorted({ranks, 1}, reverse=True):
            steps, speed = train(command, folder, f"resumed-on-{count}", count, [], start)
            good &= compare(f"on {count}, without a stop", [line["loss"] for line in steps],
                            expected)
            if count == ranks:
                print(f"    --deterministic costs {100 * (1 - deterministic / speed):.1f} %")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
