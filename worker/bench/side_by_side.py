"""The GPU engine beside compiled PyTorch, on the same GPU one after the other.

    python3 worker/bench/side_by_side.py GPU_STEP MODEL [SEQUENCES...]

GPU_STEP is the built program. PyTorch runs with each number of sequences and each attention
backend, the engine with each number of sequences; the best of both are compared. Prints tokens per
second of both, their ratio, the share of the engine's step that products and attention take, and
the time of each of its parts.
"""

import json
import pathlib
import subprocess
import sys

SEQUENCE, STEPS = 1024, 50
DEFAULT_SEQUENCES = {"gpt2": ["64", "128"], "gpt2-xl": ["16"]}
PYTORCH = str(pathlib.Path(__file__).parent / "pytorch_step.py")


def best(commands):
    """What the fastest of them printed; one that fails, for lack of memory say, is left out."""
    runs = []
    for command in commands:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            runs.append(json.loads(result.stdout))
        else:
            print(" ".join(command), "failed:", result.stderr[-300:], file=sys.stderr)
    if not runs:
        sys.exit("nothing to compare")
    return max(runs, key=lambda run: run["tokens_per_second"])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, model = sys.argv[1:3]
    sequences = sys.argv[3:] or DEFAULT_SEQUENCES.get(model, ["16"])
    sizes = [str(SEQUENCE), str(STEPS)]
    ours = best([[program, model, n, *sizes, "/tmp/gpu_step_plans"] for n in sequences])
    theirs = best(
        [
            [sys.executable, PYTORCH, model, n, *sizes, attention]
            for n in sequences
            for attention in ("flash", "cudnn")
        ]
    )
    print(f"{model}, {SEQUENCE} tokens a sequence")
    print(f"  engine   {ours['tokens_per_second']:10,.0f} tokens/s  {ours['sequences']} sequences")
    print(
        f"  PyTorch  {theirs['tokens_per_second']:10,.0f} tokens/s  {theirs['sequences']} sequences, "
        f"{theirs['attention']} attention"
    )
    print(f"  ratio    {ours['tokens_per_second'] / theirs['tokens_per_second']:10.3f}")
    print(f"  products and attention take {100 * ours['share_of_floor']:.1f} % of the engine's step:")
    for part, milliseconds in sorted(ours["parts"].items(), key=lambda item: -item[1]):
        share = 100 * milliseconds / ours["step_milliseconds"]
        print(f"    {part:22} {milliseconds:8.2f} ms {share:5.1f} %")


if __name__ == "__main__":
    main()
