"""Writes worker/model/golden.json: 100 training steps of both tiny models by PyTorch on the CPU.

Weights and tokens follow from the integer formulas of HashedUniform (worker/model/parameter_layout.h)
and GoldenTokens (worker/model/golden_test.cc), so only losses, gradient norms and final parameters'
norms are recorded. Needs numpy and torch; run it from the project's root:

    python3 worker/tests/golden.py
"""

import json
import math

import numpy as np
import torch
import torch.nn.functional as F

STEPS = 100
LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT = 2, 64, 4, 500, 64
KEY_VALUE_HEADS, LLAMA_INNER = 2, 176
PADDED_VOCABULARY = 512
MICRO_BATCHES, SEQUENCES = 2, 2
WEIGHT_SEED, TOKEN_SEED = 1, 2
LEARNING_RATE, MIN_LEARNING_RATE, WARMUP = 1e-3, 1e-4, 10
WEIGHT_DECAY, BETAS, EPSILON, CLIP = 0.1, (0.9, 0.95), 1e-8, 1.0


def hashed_uniform(seed, indexes):
    with np.errstate(over="ignore"):
        x = np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
        x = x + (indexes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(40)).astype(np.int64) - (1 << 23)).astype(np.float32) / (1 << 23)


def golden_tokens(step, micro_batch):
    """SEQUENCES x (CONTEXT + 1) tokens: each follows from the one before by one linear rule."""
    rows = []
    for sequence in range(SEQUENCES):
        index = (step * MICRO_BATCHES + micro_batch) * SEQUENCES + sequence
        start = (float(hashed_uniform(TOKEN_SEED, np.array([index]))[0]) + 1) / 2
        tokens = [int(start * VOCABULARY)]
        for _ in range(CONTEXT):
            tokens.append((tokens[-1] * 3 + 7) % VOCABULARY)
        rows.append(tokens)
    return torch.tensor(rows)


class Layout:
    """The parameters in the order of ParameterLayout, with their initial values."""

    def __init__(self):
        self.parameters = {}
        self.offset = 0

    def matrix(self, name, rows, columns, deviation=0.02, used_rows=None):
        used_rows = used_rows or rows
        indexes = np.arange(self.offset, self.offset + used_rows * columns)
        bound = np.float32(deviation) * np.sqrt(np.float32(3.0))
        values = (bound * hashed_uniform(WEIGHT_SEED, indexes)).astype(np.float32)
        self.add(name, torch.from_numpy(values.reshape(used_rows, columns)))
        self.offset += rows * columns

    def vector(self, name, size, value):
        self.add(name, torch.full((size,), value))
        self.offset += size

    def add(self, name, tensor):
        self.parameters[name] = tensor.requires_grad_()


RESIDUAL = float(np.float32(0.02) / np.sqrt(np.float32(2.0 * LAYERS)))


def gpt2_layout():
    layout = Layout()
    layout.matrix("transformer.wte.weight", PADDED_VOCABULARY, WIDTH, used_rows=VOCABULARY)
    layout.matrix("transformer.wpe.weight", CONTEXT, WIDTH)

    def norm(name):
        layout.vector(name + ".weight", WIDTH, 1.0)
        layout.vector(name + ".bias", WIDTH, 0.0)

    def linear(name, outputs, inputs, deviation=0.02):
        layout.matrix(name + ".weight", outputs, inputs, deviation)
        layout.vector(name + ".bias", outputs, 0.0)

    for i in range(LAYERS):
        block = f"transformer.h.{i}."
        norm(block + "ln_1")
        linear(block + "attn.c_attn", 3 * WIDTH, WIDTH)
        linear(block + "attn.c_proj", WIDTH, WIDTH, RESIDUAL)
        norm(block + "ln_2")
        linear(block + "mlp.c_fc", 4 * WIDTH, WIDTH)
        linear(block + "mlp.c_proj", WIDTH, 4 * WIDTH, RESIDUAL)
    norm("transformer.ln_f")
    return layout.parameters


def llama_layout():
    layout = Layout()
    layout.matrix("model.embed_tokens.weight", PADDED_VOCABULARY, WIDTH, used_rows=VOCABULARY)
    key_value = KEY_VALUE_HEADS * WIDTH // HEADS
    for i in range(LAYERS):
        block = f"model.layers.{i}."
        layout.vector(block + "input_layernorm.weight", WIDTH, 1.0)
        layout.matrix(block + "self_attn.q_proj.weight", WIDTH, WIDTH)
        layout.matrix(block + "self_attn.k_proj.weight", key_value, WIDTH)
        layout.matrix(block + "self_attn.v_proj.weight", key_value, WIDTH)
        layout.matrix(block + "self_attn.o_proj.weight", WIDTH, WIDTH, RESIDUAL)
        layout.vector(block + "post_attention_layernorm.weight", WIDTH, 1.0)
        layout.matrix(block + "mlp.gate_proj.weight", LLAMA_INNER, WIDTH)
        layout.matrix(block + "mlp.up_proj.weight", LLAMA_INNER, WIDTH)
        layout.matrix(block + "mlp.down_proj.weight", WIDTH, LLAMA_INNER, RESIDUAL)
    layout.vector("model.norm.weight", WIDTH, 1.0)
    layout.matrix("lm_head.weight", PADDED_VOCABULARY, WIDTH, used_rows=VOCABULARY)
    return layout.parameters


def heads_of(x, heads):
    batch, time, _ = x.shape
    return x.view(batch, time, heads, -1).transpose(1, 2)


def attention(q, k, v):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def gpt2(p, tokens):
    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def linear(x, name):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][: tokens.shape[1]]
    for i in range(LAYERS):
        block = f"transformer.h.{i}."
        q, k, v = linear(norm(x, block + "ln_1"), block + "attn.c_attn").split(WIDTH, dim=2)
        y = attention(heads_of(q, HEADS), heads_of(k, HEADS), heads_of(v, HEADS))
        x = x + linear(y, block + "attn.c_proj")
        y = F.gelu(linear(norm(x, block + "ln_2"), block + "mlp.c_fc"), approximate="tanh")
        x = x + linear(y, block + "mlp.c_proj")
    return F.linear(norm(x, "transformer.ln_f"), p["transformer.wte.weight"])


def rotate(x):
    size = x.shape[-1]
    frequencies = 1.0 / (500000.0 ** (torch.arange(0, size, 2).float() / size))
    angles = torch.outer(torch.arange(x.shape[2]).float(), frequencies)
    angles = torch.cat((angles, angles), dim=1)
    low, high = x.chunk(2, dim=3)
    return x * angles.cos() + torch.cat((-high, low), dim=3) * angles.sin()


def llama3(p, tokens):
    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * p[name + ".weight"]

    def linear(x, name):
        return F.linear(x, p[name + ".weight"])

    x = p["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        block = f"model.layers.{i}."
        y = norm(x, block + "input_layernorm")
        q = rotate(heads_of(linear(y, block + "self_attn.q_proj"), HEADS))
        k = rotate(heads_of(linear(y, block + "self_attn.k_proj"), KEY_VALUE_HEADS))
        v = heads_of(linear(y, block + "self_attn.v_proj"), KEY_VALUE_HEADS)
        group = HEADS // KEY_VALUE_HEADS
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        x = x + linear(attention(q, k, v), block + "self_attn.o_proj")
        y = norm(x, block + "post_attention_layernorm")
        gate, up = linear(y, block + "mlp.gate_proj"), linear(y, block + "mlp.up_proj")
        x = x + linear(F.silu(gate) * up, block + "mlp.down_proj")
    return F.linear(norm(x, "model.norm"), p["lm_head.weight"])


def learning_rate(step):
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LEARNING_RATE + 0.5 * (1 + math.cos(math.pi * progress)) * (
        LEARNING_RATE - MIN_LEARNING_RATE
    )


def train(parameters, model):
    groups = [
        {"params": [p for p in parameters.values() if p.dim() == 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=BETAS, eps=EPSILON)
    result = {"losses": [], "gradient_norms": [], "first_gradients": {}}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_sum = 0.0
        for micro_batch in range(MICRO_BATCHES):
            rows = golden_tokens(step, micro_batch)
            logits = model(parameters, rows[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), rows[:, 1:].reshape(-1))
            (loss / MICRO_BATCHES).backward()
            loss_sum += loss.item() / MICRO_BATCHES
        if step == 0:
            for name, p in parameters.items():
                result["first_gradients"][name] = p.grad.double().norm().item()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP).item()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        result["losses"].append(round(loss_sum, 6))
        result["gradient_norms"].append(round(norm, 6))
    result["last_parameters"] = {
        name: p.detach().double().norm().item() for name, p in parameters.items()
    }
    return result


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    golden = {
        "made_with": f"torch {torch.__version__}",
        "gpt2-tiny": train(gpt2_layout(), gpt2),
        "llama-3-tiny": train(llama_layout(), llama3),
    }
    with open("worker/model/golden.json", "w", encoding="utf-8") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
