"""The engine's scores and tokens are those of transformers on the same weights."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from metrale_lab.weights import load_model
from tests import tiny_models
from tests.engine.kit import as_tensor, greedy, opened, prompt

LENGTHS = (1, 2, 7, 8, 9, 40)
CASES = {
    "llama": {"architecture": "llama"},
    "llama tied": {"architecture": "llama", "tied": True},
    "qwen2 with bias": {"architecture": "qwen2"},
    "qwen3 with QK norm": {"architecture": "qwen3"},
    "linear": {"architecture": "llama", "rope": "linear"},
    "llama3": {"architecture": "llama", "rope": "llama3"},
    "yarn": {"architecture": "llama", "rope": "yarn"},
    "one K/V head": {"architecture": "llama", "num_key_value_heads": 1},
    "no groups": {"architecture": "qwen2", "num_key_value_heads": 4},
}


@pytest.mark.parametrize("case", CASES)
def test_scores_and_greedy_tokens_equal_the_reference(case: str, tmp_path: Path) -> None:
    folder = tiny_models.make_folder(tmp_path / "model", **CASES[case])
    with opened(load_model(folder, torch.float32)) as model:
        for length in LENGTHS:
            tokens = prompt(length, seed=length)
            seq = model.alloc_sequence()
            scores = as_tensor(model.prefill(tokens, seq))
            expected = tiny_models.reference_logits(folder, tokens)[-1]
            torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
            model.free_sequence(seq)
        tokens = prompt(11)
        assert greedy(model, tokens, 12) == tiny_models.reference_greedy(folder, tokens, 12)


def far_scores(folder: Path, tokens: list[int]) -> list[torch.Tensor]:
    """The scores after all tokens, and after one more, by the engine."""
    sizes = {"num_blocks": 70, "block_size": 128, "max_seq_len": len(tokens) + 1}
    with opened(load_model(folder, torch.float32), capture=False, **sizes) as model:
        seq = model.alloc_sequence()
        for begin in range(0, len(tokens), 512):
            last = model.prefill(tokens[begin : begin + 512], seq)
        return [as_tensor(last), as_tensor(model.decode_batch([5], [seq]))[0]]


def far_reference(folder: Path, tokens: list[int]) -> list[torch.Tensor]:
    """The same by transformers, in chunks over its cache."""
    reference, cache = tiny_models.reference_model(folder), None
    found = []
    with torch.no_grad():
        for chunk in [*torch.tensor(tokens)[None].split(512, 1), torch.tensor([[5]])]:
            out = reference(chunk, use_cache=True, past_key_values=cache)
            cache, found = out.past_key_values, [*found[-1:], out.logits[0, -1]]
    return found


def test_position_8192_equals_the_reference_under_every_scaling(tmp_path: Path) -> None:
    tokens = prompt(8191)
    narrow = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    ends = []
    for rope in (None, "linear", "llama3", "yarn"):
        folder = tiny_models.make_folder(
            tmp_path / str(rope), rope=rope, max_positions=9000, num_hidden_layers=1, **narrow
        )
        scores, expected = far_scores(folder, tokens), far_reference(folder, tokens)
        torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
        ends.append(scores[-1])
    for one, other in itertools.combinations(ends, 2):
        assert float((one - other).abs().max()) > 1e-2


@pytest.mark.parametrize("rope", ["linear", "llama3", "yarn"])
def test_scaled_positions_far_out_equal_the_reference(rope: str, tmp_path: Path) -> None:
    folder = tiny_models.make_folder(tmp_path / "model", "llama", rope=rope)
    tokens = prompt(1050)
    with opened(load_model(folder, torch.float32), num_blocks=140, max_seq_len=1100) as model:
        seq = model.alloc_sequence()
        scores = as_tensor(model.prefill(tokens, seq))
    expected = tiny_models.reference_logits(folder, tokens)[-1]
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_float32(dtype: torch.dtype, folder: Path) -> None:
    loaded = load_model(folder, torch.float32)
    tokens = prompt(30)
    with opened(loaded, dtype=dtype, kv_dtype=dtype) as model:
        seq = model.alloc_sequence()
        logits = model.prefill(tokens, seq)
        assert logits.tensor.dtype == dtype
        scores = as_tensor(logits)
        step = as_tensor(model.decode_batch([5], [seq]))[0]
    expected = tiny_models.reference_logits(folder, [*tokens, 5])
    spread = float(expected.std())
    assert float((scores - expected[-2]).abs().max()) < 0.1 * spread
    assert float((step - expected[-1]).abs().max()) < 0.1 * spread
