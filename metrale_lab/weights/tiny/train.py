"""Train `tiny`: `python -m metrale_lab.weights.tiny.train` writes the checkpoint anew.

A hybrid in the architecture of Qwen3.5 (gated delta rule layers, and attention in every third),
2.9 million parameters, learns from the seeded stories of `stories`. Needs transformers; one core.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from metrale_lab.weights.tiny import CHECKPOINT
from metrale_lab.weights.tiny.card import card
from metrale_lab.weights.tiny.stories import stories
from metrale_lab.weights.tiny.words import COMMON

END = "<|endoftext|>"
SEED, STEPS, ROWS, LENGTH = 7, 2300, 3, 512
ALONE_FROM, BY_TURNS_FROM = 1000, 1800  # steps
STORY_ROWS, STORY_LENGTH = 8, 192
NO_TARGET = -100
EVERY = 100  # steps between two looks at what was learned
PEAK_RATE, WARM_UP, COOL_DOWN = 3e-3, 100, 0.3
VOCABULARY = 2048
PROMPTS = ("Once upon a time", "The little cat")  # of the card's samples


def train_tokenizer() -> Tokenizer:
    """Byte-level BPE over the stories: any UTF-8 goes through it unharmed."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts, source = [" ".join(COMMON)], stories(SEED)
    texts += [next(source) for _ in range(20_000)]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def configuration() -> Qwen3_5TextConfig:
    """The architecture; every head has 64 elements."""
    return Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=6,
        layer_types=["linear_attention", "linear_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_conv_kernel_dim=4,
        max_position_embeddings=40_960,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.5,
        },
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=None,
    )


Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, [rows, tokens]


def batches(tokenizer: Tokenizer, seed: int) -> Iterator[Batch]:
    """Rows of several stories, each after the end token of the one before; later of one story.

    Alone, a name is easily found again, and the attention learns to look for it. In the end both
    kinds come by turns.
    """
    source = ([*tokenizer.encode(text).ids, 0] for text in stories(seed))
    for step in itertools.count():
        alone = step >= ALONE_FROM and (step < BY_TURNS_FROM or step % 2 == 0)
        yield _alone(source) if alone else _in_rows(source)


def _in_rows(source: Iterator[list[int]]) -> Batch:
    rows = []
    for _ in range(ROWS):
        row: list[int] = []
        while len(row) <= LENGTH:
            row += next(source)
        rows.append(row[: LENGTH + 1])
    ids = torch.tensor(rows)
    return ids[:, :-1], ids[:, 1:]


def _alone(source: Iterator[list[int]]) -> Batch:
    told = [next(source)[: STORY_LENGTH + 1] for _ in range(STORY_ROWS)]
    inputs = torch.zeros(STORY_ROWS, STORY_LENGTH, dtype=torch.int64)
    targets = torch.full_like(inputs, NO_TARGET)
    for row, ids in enumerate(told):
        inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        targets[row, : len(ids) - 1] = torch.tensor(ids[1:])
    return inputs, targets


def fresh_model() -> Any:
    """Seeded weights; the decay of the delta rule starts slow, so that states remember."""
    torch.manual_seed(SEED)
    model = Qwen3_5ForCausalLM(configuration())
    for name, parameter in model.named_parameters():
        if name.endswith("dt_bias"):
            step = torch.empty_like(parameter).uniform_(math.log(1e-3), math.log(1e-1)).exp()
            parameter.data = step + torch.log(-torch.expm1(-step))
    return model


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    """Nats per token."""
    inputs, targets = batch
    logits = model(inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET
    )


def rate_at(step: int, steps: int) -> float:
    """Up in `WARM_UP` steps, then level, and in the last part down in a straight line."""
    left = (steps - step) / (steps * COOL_DOWN)
    return PEAK_RATE * min((step + 1) / WARM_UP, 1.0, max(left, 0.02))


def optimizer_of(model: Any) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)


def held_out_loss(model: Any, tokenizer: Tokenizer) -> float:
    """The mean over four batches that training does not see, in nats per token."""
    source = batches(tokenizer, SEED + 1)
    with torch.no_grad():
        return sum(loss_of(model, next(source)).item() for _ in range(4)) / 4


@torch.no_grad()
def continuation(model: Any, tokenizer: Tokenizer, prompt: str) -> str:
    """The greedy text after a prompt, up to its end or 120 tokens."""
    ids = list(tokenizer.encode(prompt).ids)
    begun = len(ids)
    while len(ids) < begun + 120:
        best = int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
        if best == 0:
            break
        ids.append(best)
    return str(tokenizer.decode(ids[begun:]))


def write(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """The folder as the loader reads it, weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    config = configuration().to_dict()
    config |= {"architectures": ["Qwen3_5ForCausalLM"], "dtype": "bfloat16"}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"eos_token_id": 0})
    _write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": None},
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def train(steps: int = STEPS, folder: Path = CHECKPOINT, state: Path | None = None) -> None:
    """The whole run; every hundred steps the folder holds what there is so far.

    With a `state` file a run that was cut goes on where it last wrote.
    """
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")  # products of bfloat16 where the machine has them
    tokenizer, model = train_tokenizer(), fresh_model()
    optimizer, source = optimizer_of(model), batches(tokenizer, SEED)
    done, seconds = _resume(state, model, optimizer)
    for _ in range(done):
        next(source)
    begun = time.monotonic() - seconds
    for step in range(done, steps):
        loss = _one_step(model, optimizer, next(source), rate_at(step, steps))
        if (step + 1) % EVERY and step + 1 < steps:
            continue
        facts = {
            "seed": SEED,
            "rows": ROWS,
            "length": LENGTH,
            "steps": step + 1,
            "tokens": (step + 1) * ROWS * LENGTH,
            "training_loss": round(loss, 3),
            "held_out_loss": round(held_out_loss(model, tokenizer), 3),
            "parameters": sum(one.numel() for one in model.parameters()),
            "minutes": round((time.monotonic() - begun) / 60),
        }
        print(json.dumps(facts), flush=True)
        write(model, tokenizer, folder)
        if state is not None:
            parts = (model.state_dict(), optimizer.state_dict(), step + 1, time.monotonic() - begun)
            torch.save(parts, state)
    told = {prompt: continuation(model, tokenizer, prompt) for prompt in PROMPTS}
    (folder / "README.md").write_text(card(facts, told), encoding="utf-8")


def _resume(state: Path | None, model: Any, optimizer: Any) -> tuple[int, float]:
    """Steps done and seconds spent by an earlier run, whose weights are taken over."""
    if state is None or not state.exists():
        return 0, 0.0
    weights, moments, done, seconds = torch.load(state)
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    return done, seconds


def _one_step(model: Any, optimizer: Any, batch: Batch, rate: float) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = loss_of(model, batch)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    train()
