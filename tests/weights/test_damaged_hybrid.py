"""A hybrid's folder that is incomplete, changed or not supported is refused by name."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file, save_file

from metrale_lab import Lab
from metrale_lab.errors import InvalidConfig, ModelFormatError
from metrale_lab.weights import load_model
from tests import tiny_models


@pytest.fixture(params=tiny_models.HYBRIDS)
def folder(request, tmp_path):
    return tiny_models.make_folder(tmp_path / "model", request.param)


@pytest.fixture
def qwen(tmp_path):
    return tiny_models.make_folder(tmp_path / "model", "qwen3_5_text")


@pytest.fixture
def granite(tmp_path):
    return tiny_models.make_folder(tmp_path / "model", "granitemoehybrid")


def edit(folder, **changes):
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: one for key, one in values.items() if one is not None}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


COMMON = [
    ("layer_types", ["linear_attention"] * 3, "expected 4 of .*full_attention"),
    ("layer_types", ["sliding_attention"] * 4, "expected 4 of .*linear_attention"),
    ("layer_types", 4, "layer_types is 4; expected 4 of"),
    ("num_attention_heads", 5, "5 query heads for 2 key/value heads|5; expected a divisor of 64"),
    ("quantization_config", {"bits": 4}, "expected none: plain float weights"),
    ("attention_bias", True, "expected false"),
    ("hidden_act", "gelu", "'gelu'; expected silu"),
]
OF_QWEN = [
    ("attn_output_gate", False, "expected true: the attention has a gate"),
    ("linear_num_value_heads", 3, "linear_num_value_heads is 3; expected a multiple of 2"),
    ("linear_key_head_dim", 0, "0; expected an integer from 1"),
    (
        "linear_conv_kernel_dim",
        5,
        r"conv1d\.weight has shape .*4\); expected .*5\)",
    ),
    ("rope_parameters", {"partial_rotary_factor": 0.1}, "an even part of 32 dimensions"),
    ("rope_parameters", {"partial_rotary_factor": 2.0}, "an even part of 32 dimensions"),
    ("head_dim", 15, "15 wide; expected an even width"),
]
OF_GRANITE = [
    ("num_local_experts", 4, "num_local_experts is 4; expected 0"),
    ("mamba_proj_bias", True, "expected false"),
    ("mamba_n_heads", 7, "mamba_n_heads is 7; expected a divisor of 128"),
    ("mamba_n_groups", 3, "mamba_n_groups is 3; expected a divisor of 8"),
    ("mamba_d_head", 8, "mamba_d_head is 8; expected 'auto' or 16"),
    ("position_embedding_type", "alibi", "'alibi'; expected rope or nope"),
    ("time_step_limit", [0.1, 1.0], r"\[0\.1, 1\.0\]; expected none, or 0 to infinity"),
    ("logits_scaling", 0, "0; expected a finite number above 0"),
]


@pytest.mark.parametrize(("field", "value", "message"), COMMON)
def test_a_wrong_field_is_named(folder, field, value, message):
    edit(folder, **{field: value})
    with pytest.raises(ModelFormatError, match=message):
        load_model(folder)


@pytest.mark.parametrize(("field", "value", "message"), OF_QWEN)
def test_a_wrong_field_of_the_delta_rule_is_named(qwen, field, value, message):
    edit(qwen, **{field: value})
    with pytest.raises(ModelFormatError, match=message):
        load_model(qwen)


@pytest.mark.parametrize(("field", "value", "message"), OF_GRANITE)
def test_a_wrong_field_of_a_state_space_is_named(granite, field, value, message):
    edit(granite, **{field: value})
    with pytest.raises(ModelFormatError, match=message):
        load_model(granite)


def test_a_missing_tensor_is_named(folder):
    edit_tensors(folder, lambda tensors: tensors.pop(next(n for n in tensors if "A_log" in n)))
    with pytest.raises(ModelFormatError, match=r"tensor model\.layers\.\d\..*A_log is missing"):
        load_model(folder)


def test_a_tensor_without_a_place_is_named(folder):
    def add(tensors):
        tensors["model.layers.0.other.weight"] = tensors["model.norm.weight"].clone()

    edit_tensors(folder, add)
    with pytest.raises(ModelFormatError, match=r"layers\.0\.other\.weight .* has no place"):
        load_model(folder)


@pytest.mark.parametrize("listed", ["layer_types", "layers_block_type"])
@pytest.mark.parametrize(
    "kinds", [("mamba", "attention"), ("linear_attention", "full_attention")], ids=" and ".join
)
def test_kinds_of_layers_are_read_however_they_are_spelled(granite, listed, kinds):
    before = load_model(granite).spec
    assert before.linear_layers == (0, 2, 3)
    linear, full = kinds
    spelled = {"layer_types": None} | {listed: [linear, full, linear, linear]}
    edit(granite, **spelled, position_embedding_type="rope")
    assert load_model(granite).spec == before


def test_states_that_do_not_fit_into_memory_are_refused(qwen, monkeypatch):
    monkeypatch.setattr("metrale_lab.device.cpu.free_host_memory", lambda: 2**22)
    with pytest.raises(InvalidConfig, match="ssm_slots=200: the pools would take"):
        Lab(qwen, num_blocks=4, ssm_slots=200)
    with pytest.raises(InvalidConfig, match="snapshot_slots=400: the pools would take"):
        Lab(qwen, num_blocks=4, ssm_slots=4, snapshot_slots=400)
    Lab(qwen, num_blocks=4, ssm_slots=4, snapshot_slots=4).close()
