"""How fast compiled PyTorch trains: what worker/bench/gpu_step is compared with.

    pytorch_step.py --model=gpt2 --sequences=64 [--steps=50] [--attention=flash|cudnn] [--mode=MODE]
    torchrun --nproc-per-node=2 pytorch_step.py --model=llama-3-8b --sharding=fsdp ...

bf16 arithmetic over fp32 parameters, fused AdamW, clipping, torch.compile with that mode; with
several ranks DDP, or FSDP2 with bf16 gathers; gradients are reduced in fp32 in both. Steps are put
on the stream without waiting for them. Prints one JSON object.
"""

import argparse
import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

GPT2 = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-large": (36, 1280, 20),
        "gpt2-xl": (48, 1600, 25)}
# layers, width, heads, heads of keys, inner width, vocabulary
LLAMA = {"llama-3-8b": (32, 4096, 32, 8, 14336, 128256)}
PADDED_VOCABULARY, VOCABULARY = 50304, 50257
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def attend(q, k, v):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return y.transpose(1, 2).flatten(2)


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).unflatten(2, (3 * self.heads, -1)).transpose(1, 2).chunk(
            3, dim=1)
        x = x + self.projection(attend(q, k, v))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, key_heads, inner):
        super().__init__()
        self.heads, self.key_heads = heads, key_heads
        size = width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.qkv = nn.Linear(width, (heads + 2 * key_heads) * size, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cosine, sine):
        def rotate(heads):
            low, high = heads.chunk(2, dim=3)
            return heads * cosine + torch.cat((-high, low), dim=3) * sine

        every = self.heads + 2 * self.key_heads
        y = self.qkv(self.norm_1(x)).unflatten(2, (every, -1)).transpose(1, 2)
        q, k, v = y.split((self.heads, self.key_heads, self.key_heads), dim=1)
        x = x + self.projection(attend(rotate(q).to(v.dtype), rotate(k).to(v.dtype), v))
        gate, up = self.up(self.norm_2(x)).chunk(2, dim=2)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, name, context, recompute):
        super().__init__()
        self.recompute = recompute
        if name in GPT2:
            layers, width, heads = GPT2[name]
            self.vocabulary = PADDED_VOCABULARY
            self.positions = nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Gpt2Block(width, heads) for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), None
        else:
            layers, width, heads, key_heads, inner, self.vocabulary = LLAMA[name]
            self.positions = None
            self.angles = (context, width // heads)
            self.blocks = nn.ModuleList(
                LlamaBlock(width, heads, key_heads, inner) for _ in range(layers))
            self.norm = nn.RMSNorm(width, 1e-5)
            self.head = nn.Linear(width, self.vocabulary, bias=False)
        self.tokens = nn.Embedding(self.vocabulary, width)

    def reset(self):
        with torch.no_grad():
            for p in self.parameters():
                nn.init.normal_(p, std=0.02) if p.dim() == 2 else nn.init.ones_(p)
            for name, p in self.named_parameters():
                if name.endswith("bias"):
                    nn.init.zeros_(p)
        if self.positions is None:
            context, size = self.angles
            frequencies = 500000.0 ** (-torch.arange(0, size, 2, device="cuda").float() / size)
            angles = torch.outer(torch.arange(context, device="cuda").float(), frequencies)
            angles = torch.cat((angles, angles), dim=1)
            self.cosine, self.sine = angles.cos(), angles.sin()

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        extra = ()
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        else:
            extra = (self.cosine, self.sine)
        for block in self.blocks:
            x = checkpoint(block, x, *extra, use_reentrant=False) if self.recompute else block(
                x, *extra)
        x = self.norm(x)
        logits = F.linear(x, self.tokens.weight) if self.head is None else self.head(x)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def shard(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=[*GPT2, *LLAMA], default="gpt2")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--attention", choices=BACKENDS, default="flash")
    parser.add_argument("--mode", choices=MODES, default="default")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--sharding", choices=["ddp", "fsdp"], default="ddp")
    options = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    torch.manual_seed(rank)
    torch.set_float32_matmul_precision("high")
    with torch.device("meta"):
        model = Model(options.model, options.sequence, options.recompute)
    fsdp = ranks > 1 and options.sharding == "fsdp"
    if ranks > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    if fsdp:
        shard(model)
    model.to_empty(device="cuda")
    model.reset()
    text = torch.randint(VOCABULARY, (options.sequences, options.sequence + 1), device="cuda")
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    mode = None if options.mode == "default" else options.mode
    if fsdp:
        # Whole blocks, as FSDP2's own examples do it: its hooks lie between them.
        for block in model.blocks:
            block.compile(mode=mode)
        compiled = model
    else:
        if ranks > 1:
            model = nn.parallel.DistributedDataParallel(
                model, device_ids=[rank], gradient_as_bucket_view=True, static_graph=True)
        compiled = torch.compile(model, mode=mode)
    precision = contextlib.nullcontext if fsdp else lambda: torch.autocast("cuda", torch.bfloat16)

    def run(count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            with precision():
                loss = compiled(tokens, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count, loss.item()

    with sdpa_kernel(BACKENDS[options.attention]):
        run(10)
        seconds, loss = run(options.steps)
    if rank == 0:
        print(json.dumps({**vars(options), "ranks": ranks,
                          "tokens_per_second": options.sequences * options.sequence / seconds,
                          "step_milliseconds": seconds * 1e3, "loss": loss,
                          "gib": torch.cuda.max_memory_allocated() / 2**30}))
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
