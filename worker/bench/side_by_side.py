"""The GPU engine beside compiled PyTorch, on the same GPUs one after the other.

    python3 worker/bench/side_by_side.py GPU_STEP MODEL [--ranks=N] [--quick]

GPU_STEP is the built program. Both run with each of their settings below, fewer with --quick; the
best of both are compared. Prints tokens per second and GPU of every run, the ratio of the best, the
share of the engine's step that products and attention take (the rest is what a faster engine could
still save), and the time of each of its parts.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

STEPS = 50
PYTORCH = str(pathlib.Path(__file__).parent / "pytorch_step.py")
# For each model: arguments of both, then those of the engine, and of PyTorch, to try.
CASES = {
    "gpt2": {
        "both": ["--sequence=1024"],
        "engine": [["--sequences=128"], ["--sequences=64"]],
        "pytorch": {
            "sequences": [128, 64],
            "attention": ["flash", "cudnn"],
            "mode": ["default", "max-autotune-no-cudagraphs", "reduce-overhead"],
        },
        "sharding": ("zero1", "ddp"),
    },
    "gpt2-xl": {
        "both": ["--sequence=1024"],
        "engine": [["--sequences=16"], ["--sequences=32"]],
        "pytorch": {
            "sequences": [16, 8],
            "attention": ["flash", "cudnn"],
            "mode": ["default", "max-autotune-no-cudagraphs"],
        },
        "sharding": ("zero1", "ddp"),
    },
    "llama-3-8b": {
        "both": ["--sequence=8192"],
        "engine": [["--sequences=1"], ["--sequences=2", "--recompute-norms",
                                       "--recompute-activations"]],
        "pytorch": {"sequences": [1, 2], "attention": ["cudnn", "flash"], "mode": ["default"]},
        "sharding": ("zero3", "fsdp"),
    },
}


def run(command, name):
    """What it printed; None if it fails, for lack of memory say."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print(f"  {name:72} failed: {result.stderr.strip()[-300:]!r}")
        return None
    outcome = json.loads(result.stdout)
    outcome["name"] = name
    print(f"  {name:72} {outcome['tokens_per_second']:10,.0f} tokens/s "
          f"{outcome.get('used_gib', outcome.get('gib')):6.1f} GiB", flush=True)
    return outcome


def best(runs):
    runs = [outcome for outcome in runs if outcome is not None]
    if not runs:
        sys.exit("nothing to compare")
    return max(runs, key=lambda outcome: outcome["tokens_per_second"])


def pytorch_settings(options, quick):
    """Every combination; with quick every mode beside the first of the others."""
    if quick:
        options = {key: values if key == "mode" else values[:1] for key, values in options.items()}
    for chosen in itertools.product(*options.values()):
        yield [f"--{key}={value}" for key, value in zip(options, chosen, strict=True)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model", choices=CASES)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    case, ranks = CASES[options.model], options.ranks
    common = [f"--model={options.model}", *case["both"], f"--steps={options.steps}"]
    plans = pathlib.Path(tempfile.gettempdir()) / "gpu_step_plans"
    ours_sharding, their_sharding = case["sharding"]
    engine = [options.program, *common, f"--plan-cache={plans}", f"--ranks={ranks}",
              f"--sharding={ours_sharding}"]
    python = [sys.executable]
    if ranks > 1:
        python = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    python += [PYTORCH, *common, f"--sharding={their_sharding}"]

    print(f"{options.model}, {ranks} GPU{'s' if ranks > 1 else ''}, {' '.join(case['both'])}")
    tries = case["engine"][:1] if options.quick else case["engine"]
    ours = best([run([*engine, *extra], " ".join(["engine", *extra])) for extra in tries])
    theirs = best([run([*python, *extra], " ".join(["PyTorch", *extra]))
                   for extra in pytorch_settings(case["pytorch"], options.quick)])
    print(f"  ratio of the best {ours['tokens_per_second'] / theirs['tokens_per_second']:.3f}")
    step = ours["step_milliseconds"]
    print(f"  engine: step {step:.2f} ms, MFU {100 * ours['mfu']:.1f} %, memory planned "
          f"{ours['planned_gib']:.2f} GiB, in use {ours['used_gib']:.2f} GiB")
    print(f"  products and attention take {100 * ours['share_of_floor']:.1f} % of the step; "
          f"alone {ours['tokens_per_second'] / ours['share_of_floor']:,.0f} tokens/s")
    for part, milliseconds in sorted(ours["parts"].items(), key=lambda item: -item[1]):
        print(f"    {part:22} {milliseconds:8.2f} ms {100 * milliseconds / step:5.1f} %")


if __name__ == "__main__":
    main()
