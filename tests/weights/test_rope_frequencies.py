"""Rotary tables equal those of transformers, up to position 8,192."""

from __future__ import annotations

import json

import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights import ModelSpec, RopeScaling, rope_frequencies
from metrale_lab.weights.folder_config import spec_from_config
from tests.tiny_models import tiny_config

POSITIONS = torch.tensor([0, 1, 15, 1000, 2047, 4096, 8192], dtype=torch.float32)
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS = [
    {"rope_type": "linear", "factor": 2.0},
    LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 8192},
    LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 512},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
    {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 2048},
    {"rope_type": "yarn", "factor": 8.0, "attention_factor": 0.75},
    {"rope_type": "yarn", "factor": 8.0, "beta_fast": 20.0, "beta_slow": 2.0, "truncate": False},
    {"rope_type": "yarn", "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 0.7},
]


def write_config(tmp_path, config):
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    return tmp_path


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda one: one["rope_type"])
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_scaled_tables_equal_transformers(scaling, theta, tmp_path):
    config = tiny_config(
        "qwen3",
        max_positions=8192,
        head_dim=128,
        rope_parameters=scaling | {"rope_theta": theta},
    )
    expected, expected_factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu")
    spec = spec_from_config(write_config(tmp_path, config))
    ours, factor = rope_frequencies(spec)
    assert ours.dtype == torch.float32
    assert ours.shape == (64,)
    assert factor == pytest.approx(expected_factor, rel=1e-12)
    angles, expected_angles = torch.outer(POSITIONS, ours), torch.outer(POSITIONS, expected)
    torch.testing.assert_close(angles.cos(), expected_angles.cos(), atol=1e-6, rtol=0)
    torch.testing.assert_close(angles.sin(), expected_angles.sin(), atol=1e-6, rtol=0)


def test_plain_frequencies(tmp_path):
    spec = spec_from_config(write_config(tmp_path, tiny_config("llama")))
    ours, factor = rope_frequencies(spec)
    assert factor == 1.0
    torch.testing.assert_close(ours, 1 / 10000 ** (torch.arange(8) / 8), atol=0, rtol=1e-6)


def test_the_older_spelling_means_the_same(tmp_path):
    config = json.loads(tiny_config("llama").to_json_string(use_diff=False))
    config.pop("rope_parameters")
    config |= {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = spec_from_config(tmp_path)
    assert (spec.rope_theta, spec.rope_scaling) == (5e5, RopeScaling("linear", 4.0))


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "mrope", "proportional", ""])
def test_kinds_that_are_not_known_are_refused_by_name(kind, tmp_path):
    config = json.loads(tiny_config("llama").to_json_string(use_diff=False))
    config["rope_parameters"] |= {"rope_type": kind, "factor": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFormatError, match=rf"rope_type is '{kind}'; expected default"):
        spec_from_config(tmp_path)
    spec = ModelSpec(
        "llama", "m", 8, 8, 1, 1, 1, 8, 8, 1e-5, 1e4, RopeScaling(kind), 8, False, False, True
    )
    with pytest.raises(ModelFormatError, match="not known"):
        rope_frequencies(spec)
