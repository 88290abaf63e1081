"""The GPU engine beside compiled PyTorch, on the same GPUs one after the other.

    python3 worker/bench/side_by_side.py GPU_STEP MODEL [--ranks=N] [--quick]
        [--precisions=bf16,fp8] [--modes=default,...] [--deterministic]

GPU_STEP is the built program. Both run with each of their settings below, fewer with --quick, and
PyTorch with those of torch.compile's modes that are named, if any; the best of both are compared.
PyTorch computes in bf16, also beside the engine in FP8. With --deterministic the engine's best
setting runs once more so, and what that costs is told. Prints tokens per second and GPU of every
run, the ratio of the best, the share of the engine's step that products and attention take (the
rest is what a faster engine could still save), and the time of each of its parts.
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
            "mode": ["default"],
        },
        "sharding": ("zero1", "ddp"),
    },
    "llama-3-8b": {
        "both": ["--sequence=8192"],
        "engine": [["--sequences=1"], ["--sequences=1", "--sharding=zero1"],
                   ["--sequences=2", "--recompute-norms", "--recompute-activations"]],
        "pytorch": {
            "attention": ["cudnn", "flash"],
            "sequences": ["1", "2", "2 --recompute"],
            "mode": ["default"],
        },
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
    """Every combination; with quick all modes and two numbers of sequences beside the first
    attention."""
    if quick:
        options = {**options, "attention": options["attention"][:1],
                   "sequences": options["sequences"][:2]}
    for chosen in itertools.product(*options.values()):
        yield " ".join(
            f"--{key}={value}" for key, value in zip(options, chosen, strict=True)).split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model", choices=CASES)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--modes")
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()
    case, ranks = CASES[options.model], options.ranks
    if options.modes:
        case["pytorch"]["mode"] = options.modes.split(",")
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
    tries = case["engine"][:2] if options.quick else case["engine"]
    ours = {precision: best([run([*engine, *extra, f"--precision={precision}"],
                                 " ".join(["engine", precision, *extra])) for extra in tries])
            for precision in options.precisions.split(",")}
    theirs = best([run([*python, *extra], " ".join(["PyTorch", *extra]))
                   for extra in pytorch_settings(case["pytorch"], options.quick)])
    for precision, outcome in ours.items():
        tell(precision, outcome, theirs)
        if options.deterministic:
            cost(engine, precision, outcome)


def tell(precision, ours, theirs):
    step = ours["step_milliseconds"]
    print(f"  {precision}: ratio of the best "
          f"{ours['tokens_per_second'] / theirs['tokens_per_second']:.3f}")
    print(f"  step {step:.2f} ms, MFU {100 * ours['mfu']:.1f} %, memory planned "
          f"{ours['planned_gib']:.2f} GiB, in use {ours['used_gib']:.2f} GiB")
    print(f"  products and attention take {100 * ours['share_of_floor']:.1f} % of the step; "
          f"alone {ours['tokens_per_second'] / ours['share_of_floor']:,.0f} tokens/s")
    for part, milliseconds in sorted(ours["parts"].items(), key=lambda item: -item[1]):
        print(f"    {part:22} {milliseconds:8.2f} ms {100 * milliseconds / step:5.1f} %")


def cost(engine, precision, ours):
    setting = ours["name"].split()[2:]
    again = run([*engine, *setting, f"--precision={precision}", "--deterministic"],
                " ".join([ours["name"], "--deterministic"]))
    if again is not None:
        slower = 1 - again["tokens_per_second"] / ours["tokens_per_second"]
        print(f"  --deterministic costs {100 * slower:.1f} %")


if __name__ == "__main__":
    main()
