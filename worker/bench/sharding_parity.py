"""Trains a model on the same sequences with each sharding and on one GPU alone, and compares each
step's loss with data parallel's.

    python3 worker/bench/sharding_parity.py GPU_STEP TOKENS [--ranks=N] [--SETTING=VALUE...]

The settings are gpu_step's; --sequences are those of a rank. Exits with 1 if a difference is above
0.02, or their mean above 0.005.
"""

import json
import subprocess
import sys

from losses import compare

COMMON = ["--steps=100", "--untimed=0", "--learning-rate=6e-4", "--warmup-steps=700",
          "--plan-cache=/tmp/gpu_step_plans"]


def losses_of(command, name):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{name}: {result.stderr.strip()[-600:]}")
    return json.loads(result.stdout)["losses"]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    ranks, settings = 2, []
    for argument in sys.argv[3:]:
        name, _, value = argument.partition("=")
        if name == "--ranks":
            ranks = int(value)
        else:
            settings.append(argument)
    command = [sys.argv[1], f"--data={sys.argv[2]}", *COMMON, *settings]
    expected = losses_of([*command, f"--ranks={ranks}", "--sharding=ddp"], "ddp")
    print(f"{' '.join(settings)}: {len(expected)} steps, losses {expected[0]:.3f} to "
          f"{expected[-1]:.3f}")
    others = {
        "zero1": [f"--ranks={ranks}", "--sharding=zero1"],
        "zero3": [f"--ranks={ranks}", "--sharding=zero3"],
        "one GPU": ["--ranks=1", f"--micro-batches={ranks}"],
    }
    good = True
    for name, extra in others.items():
        good &= compare(f"{name}, ddp", losses_of([*command, *extra], name), expected)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
