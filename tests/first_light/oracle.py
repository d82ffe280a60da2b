"""What transformers says about the ten prompts, on the same file, dequantised by its own code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

OUTPUT_TOKENS = 48
GAP_BOUND = 1e-4  # nearer than this, two orders of the same fp32 sums may pick different tokens
PROMPTS: list[str] = json.loads(
    (Path(__file__).parents[1] / "data" / "prompts.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """A prompt, its greedy continuation, and how near the runner-up was at each step."""

    prompt_ids: list[int]
    token_ids: list[int]
    gaps: list[float]


def load_reference(path: Path) -> tuple[Any, Any]:
    """transformers' tokenizer and float32 model of a GGUF file or a model folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {} if path.is_dir() else {"gguf_file": path.name}
    source = str(path if path.is_dir() else path.parent)
    tokenizer = AutoTokenizer.from_pretrained(source, **where)
    model = AutoModelForCausalLM.from_pretrained(source, **where, dtype=torch.float32)
    return tokenizer, model.eval()


def continuations(path: Path, prompts: Sequence[str] = PROMPTS) -> list[Continuation]:
    """The greedy continuation of each prompt."""
    tokenizer, model = load_reference(path)
    return [_continue(model, tokenizer(text).input_ids) for text in prompts]


@torch.inference_mode()
def _continue(model: Any, prompt_ids: list[int]) -> Continuation:
    fed = torch.tensor([prompt_ids])
    cache, token_ids, gaps = None, [], []
    for _ in range(OUTPUT_TOKENS):
        answer = model(fed, past_key_values=cache, use_cache=True)
        cache = answer.past_key_values
        best = answer.logits[0, -1].topk(2)
        gaps.append(float(best.values[0] - best.values[1]))
        token_ids.append(int(best.indices[0]))
        fed = best.indices[:1].view(1, 1)
    return Continuation(prompt_ids, token_ids, gaps)
