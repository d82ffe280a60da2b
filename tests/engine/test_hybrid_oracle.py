"""A hybrid's scores and tokens are those of transformers, however the prompt is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from metrale_lab.weights import load_model
from tests import tiny_models
from tests.engine.kit import as_tensor, fed_greedy, greedy, opened, prompt

BOUND = {"atol": 1e-4, "rtol": 0}  # fp32; scores are spread over +-4
LINEAR, FULL = "linear_attention", "full_attention"
EVERYWHERE: dict[str, Any] = {"rope_theta": 10000.0, "rope_type": "default"}
DELTA: dict[str, dict[str, Any]] = {
    "two value heads per key head": {},
    "as many key heads": {"linear_num_key_heads": 4, "linear_value_head_dim": 16},
    "tied, kernel of 2": {"tied": True, "linear_conv_kernel_dim": 2},
    "kernel of 3, wider keys": {"linear_conv_kernel_dim": 3, "linear_key_head_dim": 32},
    "one key head": {"linear_num_key_heads": 1, "linear_num_value_heads": 3},
    "linear layers only": {"layer_types": [LINEAR] * 2, "num_hidden_layers": 2},
    "attention only": {"layer_types": [FULL] * 2, "num_hidden_layers": 2},
    "all dimensions turned": {"rope_parameters": EVERYWHERE | {"partial_rotary_factor": 1.0}},
}
MAMBA: dict[str, dict[str, Any]] = {
    "two groups": {},
    "tied, one group": {"tied": True, "mamba_n_groups": 1},
    "kernel of 3 without bias": {"mamba_d_conv": 3, "mamba_conv_bias": False},
    "no rotary embedding": {"position_embedding_type": None},
    "a group per head": {"mamba_n_groups": 4, "mamba_n_heads": 4},
}
CASES = [("qwen3_5_text", one) for one in DELTA] + [("granitemoehybrid", one) for one in MAMBA]
TOKENS = prompt(60)


@pytest.fixture(params=CASES, ids=", ".join)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    architecture, case = request.param
    options = (DELTA | MAMBA)[case]
    return tiny_models.make_folder(tmp_path / "model", architecture, **options)


def test_prompts_chunks_steps_and_batches_equal_the_reference(folder: Path) -> None:
    reference = tiny_models.reference_logits(folder, TOKENS)
    with opened(load_model(folder, torch.float32), prefix_cache=False, poison=True) as model:
        for length in (1, 2, 3, 9, 60):
            seq = model.alloc_sequence()
            scores = as_tensor(model.prefill(TOKENS[:length], seq))
            torch.testing.assert_close(scores, reference[length - 1], **BOUND)
            model.free_sequence(seq)
        for chunk in (1, 5, 16, 48):
            seq = model.alloc_sequence()
            for begin in range(0, 60, chunk):
                part = TOKENS[begin : begin + chunk]
                scores = as_tensor(model.prefill(part, seq))
                torch.testing.assert_close(scores, reference[begin + len(part) - 1], **BOUND)
            model.free_sequence(seq)
        seqs = [model.alloc_sequence() for _ in range(3)]
        for at, seq in zip((2, 7, 20), seqs, strict=True):
            model.prefill(TOKENS[:at], seq)
        for _ in range(12):
            at = [seq.seq_len for seq in seqs]
            scores = as_tensor(model.decode_batch([TOKENS[one] for one in at], seqs))
            torch.testing.assert_close(scores, reference[at], **BOUND)
        assert greedy(model, TOKENS[:11], 12) == tiny_models.reference_greedy(
            folder, TOKENS[:11], 12
        )


@pytest.mark.parametrize("architecture", tiny_models.HYBRIDS)
@pytest.mark.parametrize("capture", [False, True], ids=["eager", "captured"])
def test_steps_that_feed_each_other_make_the_reference_tokens(
    capture: bool, architecture: str, tmp_path: Path
) -> None:
    folder = tiny_models.make_folder(tmp_path / "model", architecture)
    prompts = [TOKENS[:1], TOKENS[3:20], TOKENS[:9]]
    with opened(load_model(folder), capture=capture, poison=True, prefix_cache=False) as model:
        texts = fed_greedy(model, prompts, 14)
    assert texts == [tiny_models.reference_greedy(folder, one, 14) for one in prompts]


def test_a_model_that_also_sees_pictures_is_read_for_its_text(tmp_path: Path) -> None:
    plain = tiny_models.make_folder(tmp_path / "plain", "qwen3_5_text", tied=True)
    nested = tiny_models.nest_in_pictures(plain, tmp_path / "nested", eos_token_id=[2, 7])
    assert load_model(nested).tokenizer.eos_ids >= {2, 7}
    with (
        opened(load_model(plain, torch.float32)) as one,
        opened(load_model(nested, torch.float32)) as two,
    ):
        assert greedy(one, TOKENS[:9], 6) == greedy(two, TOKENS[:9], 6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_float32(dtype: torch.dtype, hybrid_folder: Path) -> None:
    with opened(load_model(hybrid_folder, torch.float32), dtype=dtype, kv_dtype=dtype) as model:
        seq = model.alloc_sequence()
        scores = as_tensor(model.prefill(TOKENS[:30], seq))
        step = as_tensor(model.decode_batch([TOKENS[30]], [seq]))[0]
        assert model.steps.states.h.dtype == torch.float32
    expected = tiny_models.reference_logits(hybrid_folder, TOKENS[:31])
    spread = float(expected.std())
    assert float((scores - expected[-2]).abs().max()) < 0.15 * spread
    assert float((step - expected[-1]).abs().max()) < 0.15 * spread
