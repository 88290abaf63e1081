"""Trains a model by PyTorch on the weights, tokens and schedule that gpu_step used, and compares
each step's loss with gpu_step's: by PyTorch in bf16 (autocast), and in single precision to tell
which of the two rounds worse.

    gpu_step --model=gpt2 --sequences=32 --data=TOKENS --steps=100 --untimed=0 \
        --learning-rate=6e-4 --warmup-steps=100 > steps.json
    python3 worker/bench/loss_parity.py steps.json TOKENS

Exits with 1 if a difference from bf16 is above 0.02, or their mean above 0.005.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from losses import compare

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
import golden  # noqa: E402

HEADER = 32  # bytes of a token file


def learning_rate(ours, step):
    highest, lowest, warmup = (
        ours["learning_rate"], ours["min_learning_rate"], ours["warmup_steps"])
    if step < warmup:
        return highest * (step + 1) / warmup
    progress = min(1, (step - warmup) / (ours["total_steps"] - warmup))
    return lowest + 0.5 * (1 + math.cos(math.pi * progress)) * (highest - lowest)


def use(config):
    """Gives golden's models these sizes; returns their layout and forward."""
    golden.LAYERS, golden.WIDTH, golden.HEADS = config["layers"], config["width"], config["heads"]
    golden.KEY_VALUE_HEADS = config["key_value_heads"]
    golden.LLAMA_INNER = config["feed_forward"]
    golden.VOCABULARY, golden.PADDED_VOCABULARY = config["vocabulary"], config["padded_vocabulary"]
    golden.CONTEXT = config["context"]
    golden.RESIDUAL = float(np.float32(0.02) / np.sqrt(np.float32(2.0 * golden.LAYERS)))
    if config["family"] == "gpt2":
        return golden.gpt2_layout, golden.gpt2
    return golden.llama_layout, golden.llama3


def train(ours, text, bf16):
    layout, model = use(ours["config"])
    parameters = {name: p.detach().cuda().requires_grad_() for name, p in layout().items()}
    torch.set_default_device("cuda")
    decayed = [p for p in parameters.values() if p.dim() == 2]
    others = [p for p in parameters.values() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), eps=1e-8, fused=True)
    sequences, sequence, micro_batches = ours["sequences"], ours["sequence"], ours["micro_batches"]
    losses = []
    for step in range(len(ours["losses"])):
        loss_sum = 0.0
        for micro_batch in range(micro_batches):
            first = (step * micro_batches + micro_batch) * sequences
            starts = [(first + i) % ((len(text) - 1) // sequence) for i in range(sequences)]
            rows = np.stack([text[s * sequence : (s + 1) * sequence + 1] for s in starts])
            rows = torch.from_numpy(rows.astype(np.int64)).cuda()
            with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                logits = model(parameters, rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].reshape(-1))
            (loss / micro_batches).backward()
            loss_sum += loss.item() / micro_batches
            del logits, loss
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(ours, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss_sum)
    torch.set_default_device("cpu")
    return losses


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        ours = json.load(file)
    text = np.fromfile(sys.argv[2], dtype=np.uint16, offset=HEADER)
    bf16, fp32 = train(ours, text, True), train(ours, text, False)
    print(f"{ours['model']}: losses {[round(loss, 3) for loss in ours['losses'][::10]]}, "
          f"{ours['losses'][-1]:.4f}")
    good = compare("engine, PyTorch bf16", ours["losses"], bf16)
    compare("engine, PyTorch fp32", ours["losses"], fp32)
    compare("PyTorch bf16, PyTorch fp32", bf16, fp32)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
