"""Weights of the worker beside transformers': round_trip.py MUSTER_WORKER.

Models that transformers makes are read by the worker and have the same loss there; what the worker
has trained and exported is loaded by from_pretrained and has the worker's loss here; what a
config.json says that the worker doesn't compute is refused by that name.
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

WORKER = sys.argv[1]
CONTEXT = 64
VOCABULARY = 301
TOLERANCE = 1e-3

# Wide enough in the initial values that each option shows in the loss.
GPT2 = dict(n_positions=CONTEXT, n_embd=48, n_layer=2, n_head=4, vocab_size=VOCABULARY,
            initializer_range=0.3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(max_position_embeddings=CONTEXT, hidden_size=48, intermediate_size=80,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=VOCABULARY, initializer_range=0.3, rms_norm_eps=1e-5)
STRETCHED = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                 original_max_position_embeddings=16)


def gpt2(**options):
    return transformers.GPT2Config(**{**GPT2, **options})


def llama(**options):
    return transformers.LlamaConfig(**{**LLAMA, **options})


MODELS = {
    "gpt2": gpt2(),
    "gpt2, inner width, epsilon": gpt2(n_inner=72, layer_norm_epsilon=1e-2),
    "gpt2, the same activation by its newer name": gpt2(activation_function="gelu_pytorch_tanh"),
    "llama 2": llama(num_key_value_heads=4, rope_theta=10_000.0),
    "llama 3": llama(rope_theta=500_000.0),
    "llama 3.1": llama(rope_theta=500_000.0, rope_scaling=STRETCHED),
    "llama 3.2": llama(rope_theta=500_000.0, tie_word_embeddings=True,
                       rope_scaling={**STRETCHED, "factor": 32.0}),
    "llama, tied, not stretched": llama(tie_word_embeddings=True),
    "llama, one head of keys": llama(num_key_value_heads=1),
    "llama, epsilon, theta": llama(rms_norm_eps=0.2, rope_theta=50.0),
}

# Options that must show in the loss, or to agree would prove nothing: what each model is without one.
WITHOUT = {
    "gpt2, inner width, epsilon": {"layer_norm_epsilon": 1e-5},
    "llama 3": {"rope_theta": 10_000.0},
    "llama 3.1": {"rope_scaling": None},
    "llama 3.2": {"rope_scaling": {**STRETCHED, "factor": 8.0}},
    "llama, epsilon, theta": {"rms_norm_eps": 1e-5},
}

# What the worker names in its refusal, and the configuration that is refused.
REFUSED = [
    ('activation_function="relu"', gpt2(activation_function="relu")),
    ('activation_function="gelu"', gpt2(activation_function="gelu")),
    ("scale_attn_weights=false", gpt2(scale_attn_weights=False)),
    ("scale_attn_by_inverse_layer_idx=true", gpt2(scale_attn_by_inverse_layer_idx=True)),
    ("add_cross_attention=true", gpt2(add_cross_attention=True)),
    ("tie_word_embeddings=false", gpt2(tie_word_embeddings=False)),
    ("attention_bias=true", llama(attention_bias=True)),
    ("mlp_bias=true", llama(mlp_bias=True)),
    ('hidden_act="gelu"', llama(hidden_act="gelu")),
    ("head_dim=16", llama(head_dim=16)),
    ('rope_type="linear"', llama(rope_scaling={"type": "linear", "factor": 2.0})),
    ('rope_type="dynamic"', llama(rope_scaling={"rope_type": "dynamic", "factor": 2.0})),
    ('rope_type="yarn"', llama(rope_scaling={"rope_type": "yarn", "factor": 2.0})),
    ("quantization_config", llama(quantization_config={"quant_method": "gptq", "bits": 4})),
    ('model_type="mistral"', transformers.MistralConfig()),
    ('model_type="mixtral"', transformers.MixtralConfig()),
    ('model_type="qwen2"', transformers.Qwen2Config()),
    ('model_type="gemma2"', transformers.Gemma2Config()),
    ('model_type="phi3"', transformers.Phi3Config()),
    ('model_type="gpt_neox"', transformers.GPTNeoXConfig()),
    ('model_type="opt"', transformers.OPTConfig()),
]


class Counter:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, holds, detail=""):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}: {detail}", flush=True)


def worker(*words):
    ran = subprocess.run([WORKER, *words], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def evaluate(*flags):
    """The loss and the perplexity that `eval` prints."""
    code, text = worker("eval", "--engine=cpu", *flags)
    found = re.search(r"^loss (\S+)  perplexity (\S+)  (\d+) tokens of (\d+)$", text, re.MULTILINE)
    if code != 0 or not found or found[3] != found[4]:
        raise RuntimeError(f"eval {flags}: {code}\n{text}")
    return float(found[1]), float(found[2])


def loss_here(model, ids):
    """Over all windows of CONTEXT tokens and one more, each beginning CONTEXT after the last."""
    losses = []
    model.eval()
    with torch.no_grad():
        for at in range(0, len(ids) - CONTEXT, CONTEXT):
            window = torch.from_numpy(ids[at : at + CONTEXT + 1].astype(np.int64))
            logits = model(input_ids=window[None, :-1]).logits[0].float()
            losses.append(torch.nn.functional.cross_entropy(logits, window[1:]).item())
    return sum(losses) / len(losses)


def load(folder):
    """What from_pretrained loads, which must use all of the files and lack nothing."""
    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager")
    wrong = {key: told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")
             if told[key]}
    if wrong:
        raise RuntimeError(f"{folder}: {wrong}")
    return model


def differences(a, b):
    """Of two configurations, in what decides the model."""
    keys = set(GPT2) | set(LLAMA) | {"model_type", "layer_norm_epsilon", "tie_word_embeddings",
                                     "rope_theta", "rope_scaling"}
    keys -= {"initializer_range"}
    found = {key: (getattr(a, key, None), getattr(b, key, None)) for key in sorted(keys)
             if getattr(a, key, None) != getattr(b, key, None)}
    inner = [each.n_inner or 4 * each.n_embd for each in (a, b) if each.model_type == "gpt2"]
    if len(set(inner)) > 1:
        found["n_inner"] = inner
    return found


def agree(counter, what, loss, perplexity, expected):
    counter.check(f"{what}: loss", abs(loss - expected) < TOLERANCE, f"{loss}, here {expected}")
    counter.check(f"{what}: perplexity",
                  abs(perplexity - math.exp(expected)) < TOLERANCE * math.exp(expected),
                  f"{perplexity}, here {math.exp(expected)}")


def round_trip(counter, name, config, scratch, tokens, ids):
    folder = scratch / re.sub(r"\W+", "-", name)
    made = folder / "made"
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    # Norms and biases begin as ones and zeros, which hide what is done with them.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    data = f"--data={tokens}"
    expected = loss_here(model, ids)
    if name in WITHOUT:
        other = transformers.AutoModelForCausalLM.from_config(
            type(config)(**{**config.to_dict(), **WITHOUT[name]}), attn_implementation="eager")
        other.load_state_dict(model.state_dict())
        counter.check(f"{name}: the option shows",
                      abs(loss_here(other, ids) - expected) > 5 * TOLERANCE,
                      f"{loss_here(other, ids)} without, {expected} with")
    # In one file and in many.
    model.save_pretrained(made)
    agree(counter, f"{name}, read", *evaluate(f"--weights={made}", data), expected)
    model.save_pretrained(folder / "sharded", max_shard_size="50KB")
    agree(counter, f"{name}, read from shards",
          *evaluate(f"--weights={folder / 'sharded'}", data), expected)
    # Rounded in the file; both compute in fp32.
    model.bfloat16().save_pretrained(folder / "bf16")
    agree(counter, f"{name}, read as bf16", *evaluate(f"--weights={folder / 'bf16'}", data),
          loss_here(load(folder / "bf16"), ids))

    checkpoints = folder / "checkpoints"
    code, text = worker("train", "--engine=cpu", data, f"--weights={made}", "--steps=3",
                        "--batch=2", "--learning-rate=1e-3", f"--checkpoints={checkpoints}")
    counter.check(f"{name}, trained", code == 0, text)
    trained = evaluate(f"--checkpoints={checkpoints}", data)
    counter.check(f"{name}, trained: something has changed", abs(trained[0] - expected) > 1e-4,
                  f"{trained[0]} and {expected}")
    for export in (("fp32",), ("fp32", "--shard-bytes=50000"), ("bf16",)):
        exported = folder / ("exported-" + "-".join(export).replace("=", "").replace("--", ""))
        code, text = worker("convert", "--from=checkpoint", f"--output={exported}",
                            f"--type={export[0]}", *export[1:], str(checkpoints))
        what = f"{name}, exported {' '.join(export)}"
        counter.check(what, code == 0, text)
        loaded = load(exported)
        other = differences(config, loaded.config)
        counter.check(f"{what}: the same model", not other, other)
        stated = json.loads((exported / "config.json").read_text())["torch_dtype"]
        stored = {"fp32": "float32", "bf16": "bfloat16"}[export[0]]
        counter.check(f"{what}: says its type", stated == stored, stated)
        expected_here = loss_here(loaded.float(), ids)
        said = trained if export[0] == "fp32" else evaluate(f"--weights={exported}", data)
        agree(counter, what, *said, expected_here)


def refusals(counter, scratch, tokens):
    for number, (named, config) in enumerate(REFUSED):
        folder = scratch / f"refused-{number}"
        folder.mkdir()
        said = config.to_diff_dict()
        (folder / "config.json").write_text(json.dumps(said))
        for command in (["eval"], ["train", "--steps=1"]):
            code, text = worker(*command, "--engine=cpu", f"--weights={folder}",
                                f"--data={tokens}")
            counter.check(f"{command[0]} refuses {named}",
                          code == 78 and re.search(re.escape(named) + r"\S* isn't supported", text),
                          f"{code}, {text}")


def contradictions(counter, scratch, tokens):
    for flags in (["--model=gpt2"], ["--model=llama-3-tiny"], ["--width=64"], ["--context=32"],
                  ["--key-value-heads=4"]):
        code, text = worker("eval", "--engine=cpu", f"--weights={scratch / 'llama-3' / 'made'}",
                            f"--data={tokens}", *flags)
        counter.check(f"eval refuses {flags[0]} for other weights",
                      code == 78 and "leave the setting out" in text, f"{code}, {text}")


def main():
    counter = Counter()
    torch.set_num_threads(2)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        ids = np.random.default_rng(3).integers(0, VOCABULARY, 8 * CONTEXT + 1).astype(np.uint16)
        ids.tofile(scratch / "ids")
        tokens = scratch / "tokens"
        code, text = worker("convert", "--from=uint16", f"--token-vocabulary={VOCABULARY}",
                            f"--output={tokens}", str(scratch / "ids"))
        counter.check("tokens", code == 0, text)
        for name, config in MODELS.items():
            print(name, flush=True)
            try:
                round_trip(counter, name, config, scratch, tokens, ids)
            except Exception as error:  # one model's end is not the others'
                counter.check(name, False, error)
        refusals(counter, scratch, tokens)
        contradictions(counter, scratch, tokens)
    print(f"{counter.passed} passed, {counter.failed} failed")
    return 1 if counter.failed else 0


if __name__ == "__main__":
    sys.exit(main())
