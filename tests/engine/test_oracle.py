"""The engine's scores and tokens are those of transformers on the same weights."""

from __future__ import annotations

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
