"""How fast compiled PyTorch trains GPT-2 on one GPU: what worker/bench/gpu_step is compared with.

    pytorch_step.py MODEL SEQUENCES SEQUENCE STEPS ATTENTION

ATTENTION is flash or cudnn. bf16 by autocast over fp32 parameters, fused AdamW, clipping,
torch.compile; steps are put on the stream without waiting for them. Prints one JSON object.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SIZES = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-large": (36, 1280, 20),
         "gpt2-xl": (48, 1600, 25)}
PADDED_VOCABULARY, VOCABULARY = 50304, 50257
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time_steps, width = x.shape
        q, k, v = self.qkv(self.ln_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, time_steps, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, time_steps, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.tokens = nn.Embedding(PADDED_VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, PADDED_VOCABULARY), targets.view(-1))


def main():
    name, sequences, sequence, steps, attention = sys.argv[1:6]
    sequences, sequence, steps = int(sequences), int(sequence), int(steps)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    layers, width, heads = SIZES[name]
    with torch.device("cuda"):
        model = Gpt2(layers, width, heads, sequence)
        text = torch.randint(VOCABULARY, (sequences, sequence + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    compiled = torch.compile(model)

    def run(count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            with torch.autocast("cuda", torch.bfloat16):
                loss = compiled(tokens, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count, loss.item()

    with sdpa_kernel(BACKENDS[attention]):
        run(10)
        seconds, loss = run(steps)
    print(json.dumps({"model": name, "sequences": sequences, "attention": attention,
                      "tokens_per_second": sequences * sequence / seconds,
                      "step_milliseconds": seconds * 1e3, "loss": loss,
                      "gib": torch.cuda.max_memory_allocated() / 2**30}))


if __name__ == "__main__":
    main()
