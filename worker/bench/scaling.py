"""What several GPUs lose beside one of them alone: each GPU by itself, all at the same time, then
all of them together, with the same sequences on each.

    python3 worker/bench/scaling.py GPU_STEP --model=NAME [--ranks=N] [--SETTING=VALUE...]

The settings are gpu_step's; --alone=TOKENS takes the slowest one's tokens per second from an
earlier run instead of measuring it. Prints tokens per second and GPU, the ratio to the slowest GPU
alone, what of a step rank 0 waited for the others, and the parts of its step that take longer than
on the same GPU alone.
"""

import json
import os
import subprocess
import sys

WAITING = ["waiting for gradients", "waiting for weights", "sums over ranks"]
COMMON = ["--steps=40", "--untimed=10", "--plan-cache=/tmp/gpu_step_plans"]


def start(program, settings, environment=None):
    return subprocess.Popen([program, *COMMON, *settings], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **(environment or {})})


def finish(process, name):
    out, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{name}: {errors.strip()[-600:]}")
    outcome = json.loads(out)
    print(f"  {name:24} {outcome['tokens_per_second']:10,.0f} tokens/s "
          f"{outcome['step_milliseconds']:8.2f} ms {outcome['used_gib']:6.1f} GiB", flush=True)
    return outcome


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, ranks, slowest, settings = sys.argv[1], 2, None, []
    for argument in sys.argv[2:]:
        name, _, value = argument.partition("=")
        if name == "--ranks":
            ranks = int(value)
        elif name == "--alone":
            slowest = float(value)
        else:
            settings.append(argument)
    print(" ".join(settings), flush=True)
    alone = []
    if slowest is None:
        # What only several ranks have.
        of_one = [s for s in settings if not s.startswith(
            ("--sharding", "--most-blocks", "--gradient-reduction", "--checkpoints"))]
        processes = [start(program, of_one, {"CUDA_VISIBLE_DEVICES": str(gpu)})
                     for gpu in range(ranks)]
        alone = [finish(process, f"GPU {gpu} alone") for gpu, process in enumerate(processes)]
        slowest = min(outcome["tokens_per_second"] for outcome in alone)
    together = finish(start(program, [*settings, f"--ranks={ranks}"]), f"{ranks} GPUs together")
    step, parts = together["step_milliseconds"], together["parts"]
    print(f"  {together['sharding']}: {100 * together['tokens_per_second'] / slowest:.1f} % of the "
          f"slowest alone ({slowest:,.0f}); rank 0 waits "
          f"{100 * sum(parts.get(part, 0) for part in WAITING) / step:.2f} % of the step: "
          + ", ".join(f"{part} {parts.get(part, 0):.2f} ms" for part in WAITING))
    if "checkpoint_stall_seconds" in together:
        print(f"  each checkpoint added {together['checkpoint_stall_seconds']} s")
    if alone:
        before = alone[0]["parts"]
        apart = {part: parts[part] - before.get(part, 0) for part in parts}
        for part, more in sorted(apart.items(), key=lambda item: -abs(item[1]))[:12]:
            print(f"    {part:22} {before.get(part, 0):8.2f} ms alone {parts[part]:8.2f} together "
                  f"{more:+7.2f}")
    else:
        for part, milliseconds in sorted(parts.items(), key=lambda item: -item[1])[:12]:
            print(f"    {part:22} {milliseconds:8.2f} ms")


if __name__ == "__main__":
    main()
