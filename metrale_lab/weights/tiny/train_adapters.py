"""Train the LoRA adapters of `tiny`: `python -m metrale_lab.weights.tiny.train_adapters`.

Each learns the stories of one theme and is written as PEFT writes a LoRA folder. It needs
transformers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen3_5ForCausalLM

from metrale_lab.weights.tiny import ADAPTERS, CHECKPOINT
from metrale_lab.weights.tiny.themes import THEMES, themed_stories

SEED, STEPS, ROWS, LENGTH, RATE = 11, 120, 3, 256, 4e-3
RANK, ALPHA = 4, 8
TARGETS = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "in_proj_qkv",
    "in_proj_z", "out_proj",
)  # fmt: skip


class LoraLinear(nn.Module):
    """A frozen projection with a trained low-rank product beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.empty(RANK, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + (x @ self.a.T) @ self.b.T * (ALPHA / RANK)
        return out


def adapted(model: nn.Module) -> dict[str, LoraLinear]:
    """Put a `LoraLinear` in place of each target; by the path of what it replaced."""
    places: dict[str, LoraLinear] = {}
    for path, module in list(model.named_modules()):
        if path.rpartition(".")[2] in TARGETS and isinstance(module, nn.Linear):
            parent, _, name = path.rpartition(".")
            places[path] = LoraLinear(module)
            setattr(model.get_submodule(parent), name, places[path])
    return places


def batches(tokenizer: Tokenizer, theme: str) -> Iterator[Tensor]:
    """Rows of whole stories of the theme: [ROWS, LENGTH + 1]."""
    source = themed_stories(theme, SEED)
    while True:
        rows = []
        for _ in range(ROWS):
            row: list[int] = []
            while len(row) <= LENGTH:
                row += [*tokenizer.encode(next(source)).ids, 0]
            rows.append(row[: LENGTH + 1])
        yield torch.tensor(rows)


def train(theme: str, base: Path = CHECKPOINT, folder: Path = ADAPTERS, steps: int = STEPS) -> None:
    """Train one adapter and write its folder."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model: Any = Qwen3_5ForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    model.requires_grad_(False)
    places = adapted(model)
    trained = [one for place in places.values() for one in (place.a, place.b)]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
    source, losses = batches(tokenizer, theme), []
    for step in range(steps):
        batch = next(source)
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    print(f"{theme}: loss {losses[0]:.3f}, at the end {sum(losses[-10:]) / 10:.3f}", flush=True)
    write(places, folder / theme)


def write(places: dict[str, LoraLinear], folder: Path) -> None:
    """`adapter_config.json` and the factors, in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for path, place in places.items():
        for name, factor in (("lora_A", place.a), ("lora_B", place.b)):
            tensors[f"base_model.model.{path}.{name}.weight"] = factor.detach().to(torch.bfloat16)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_model.safetensors").chmod(0o644)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": list(TARGETS),
        "bias": "none",
        "inference_mode": True,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")


def main() -> None:
    for theme in THEMES:
        train(theme)


if __name__ == "__main__":
    main()
