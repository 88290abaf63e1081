"""Trains GPT-2 by PyTorch in bf16 on the weights, tokens and schedule that gpu_step used, and
compares each step's loss with gpu_step's. With "fp32" PyTorch trains in single precision.

    gpu_step gpt2 8 1024 90 "" > steps.json && python3 worker/bench/loss_parity.py steps.json [fp32]

Exits with 1 if a difference is above 0.02, or their mean above 0.005.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
import golden  # noqa: E402

STEPS = 100
LEARNING_RATE, MIN_LEARNING_RATE, WARMUP, TOTAL = 6e-4, 3e-5, 100, 10_000


def learning_rate(step):
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / WARMUP
    progress = (step - WARMUP) / (TOTAL - WARMUP)
    return MIN_LEARNING_RATE + 0.5 * (1 + math.cos(math.pi * progress)) * (
        LEARNING_RATE - MIN_LEARNING_RATE
    )


def text_of(step, sequences, sequence):
    """gpu_step's tokens of that step, and the token that follows each."""
    start = golden.hashed_uniform(5, step * sequences + np.arange(sequences)).astype(np.float64)
    columns = [((start + 1) / 2 * 50257).astype(np.int64)]
    for _ in range(sequence):
        columns.append((columns[-1] * 3 + 7) % 50257)
    text = torch.from_numpy(np.stack(columns, axis=1)).cuda()
    return text[:, :-1], text[:, 1:]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        ours = json.load(file)
    golden.LAYERS, golden.WIDTH, golden.HEADS = 12, 768, 12
    golden.VOCABULARY, golden.PADDED_VOCABULARY, golden.CONTEXT = 50257, 50304, 1024
    golden.RESIDUAL = float(np.float32(0.02) / np.sqrt(np.float32(2.0 * golden.LAYERS)))
    layout = golden.gpt2_layout()
    parameters = {name: p.detach().cuda().requires_grad_() for name, p in layout.items()}
    rows = ours["sequences"] * ours["sequence"]
    groups = [
        {"params": [p for p in parameters.values() if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), eps=1e-8, fused=True)
    differences = []
    for step in range(STEPS):
        tokens, targets = text_of(step, ours["sequences"], ours["sequence"])
        with torch.autocast("cuda", torch.bfloat16, enabled="fp32" not in sys.argv):
            logits = golden.gpt2(parameters, tokens)
        loss = F.cross_entropy(logits.view(rows, -1).float(), targets.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        differences.append(abs(loss.item() - ours["losses"][step]))
    worst, mean = max(differences), sum(differences) / len(differences)
    print(json.dumps({"last_loss": loss.item(), "worst": worst, "mean": mean,
                      "every_tenth": [round(d, 4) for d in differences[::10]]}))
    return 0 if worst <= 0.02 and mean <= 0.005 else 1


if __name__ == "__main__":
    sys.exit(main())
