"""Random LoRA adapters for the tiny models, saved by PEFT, and what PEFT makes of them.

    adapter = make_adapter(folder, tmp_path / "poet", r=4)
    expected = adapted_logits(folder, adapter, [5, 6, 7])   # float32 [tokens, vocab]

B is random like A, so that an adapter that is left out shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
DELTA = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")


def make_adapter(
    base: Path,
    path: Path,
    *,
    r: int = 4,
    lora_alpha: float = 8,
    target_modules: Any = (*ATTENTION, *MLP),
    seed: int = 0,
    **options: Any,
) -> Path:
    """A LoRA folder for the model in `base`; `options` go to PEFT's configuration."""
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    targets = target_modules if isinstance(target_modules, str) else list(target_modules)
    config = peft.LoraConfig(r=r, lora_alpha=lora_alpha, target_modules=targets, **options)
    adapted = peft.get_peft_model(model, config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    adapted.save_pretrained(path)
    return path


def adapted_model(base: Path, adapter: Path | None) -> Any:
    """The model of transformers, with the adapter of PEFT around it."""
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    return model if adapter is None else peft.PeftModel.from_pretrained(model, adapter).eval()


@torch.no_grad()
def adapted_logits(base: Path, adapter: Path | None, ids: Sequence[int]) -> torch.Tensor:
    """Logits of every position, float32 `[tokens, vocab]`."""
    return adapted_model(base, adapter)(torch.tensor([list(ids)])).logits[0].float()


@torch.no_grad()
def greedy(model: Any, ids: Sequence[int], tokens: int) -> list[int]:
    """The likeliest tokens, each from the whole text before it."""
    text = list(ids)
    for _ in range(tokens):
        text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(ids) :]
