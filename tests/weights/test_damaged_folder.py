"""A Hugging Face folder that is incomplete, changed or not supported is refused by name."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights import load_model
from tests import tiny_models


@pytest.fixture
def folder(tmp_path):
    return tiny_models.make_folder(tmp_path / "model", "qwen3", max_shard_size="100KB")


@pytest.fixture
def single(tmp_path):
    return tiny_models.make_folder(tmp_path / "single", "llama")


def edit(path, **changes):
    values = json.loads(path.read_text())
    for key, value in changes.items():
        values.pop(key, None)
        if value is not None:
            values[key] = value
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    "field",
    [
        "model_type",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "rms_norm_eps",
    ],
)
def test_a_missing_field_is_named(single, field):
    edit(single / "config.json", **{field: None})
    with pytest.raises(ModelFormatError, match=rf"single/config\.json: {field} is missing"):
        load_model(single)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model_type", "mamba", "'mamba'; expected one of llama, qwen2, qwen3"),
        ("hidden_size", "64", "'64'; expected an integer"),
        ("hidden_size", 64.0, "64.0; expected an integer"),
        ("hidden_size", True, "True; expected an integer"),
        ("num_hidden_layers", 0, "0; expected an integer from 1"),
        ("num_hidden_layers", 10**12, "expected an integer from 1"),
        ("num_hidden_layers", 1, r"tensor model\.layers\.1\..* has no place"),
        ("num_hidden_layers", 3, r"tensor model\.layers\.2\..* is missing"),
        ("num_attention_heads", 5, "5 query heads for 2 key/value heads"),
        ("head_dim", 15, "15 wide; expected an even width"),
        ("rms_norm_eps", float("nan"), "nan; expected a finite number"),
        ("rms_norm_eps", 10**400, "expected a finite number"),
        ("hidden_act", "gelu", "'gelu'; expected silu"),
        ("attention_bias", True, "expected false"),
        ("mlp_bias", True, "expected false"),
        ("use_sliding_window", True, "expected false"),
        ("tie_word_embeddings", "yes", "'yes'; expected true or false"),
        ("quantization_config", {"bits": 4}, "expected none: plain float weights"),
        ("layer_types", ["sliding_attention"], "expected full_attention in every layer"),
        ("layer_types", 5, "expected full_attention in every layer"),
        ("partial_rotary_factor", 0.5, "0.5; expected 1"),
        ("rope_parameters", "x", "'x'; expected an object"),
        ("rope_parameters", {"rope_theta": float("nan")}, "nan; expected a finite number"),
        ("rope_parameters", {"rope_type": "linear"}, "factor is missing"),
        ("rope_parameters", {"rope_type": "linear", "factor": 0.5}, "of at least 1"),
        ("rope_parameters", {"rope_type": "llama3", "factor": 2.0}, "low_freq_factor is missing"),
        ("rope_parameters", {"rope_type": "dynamic"}, "'dynamic'; expected default, linear"),
        ("eos_token_id", "x", "'x'; expected token ids"),
        ("eos_token_id", [2, 400], r"\[2, 400\]; expected token ids from 0 to 319"),
        ("vocab_size", 100, "expected 0 to 99, the embedding's"),
        ("vocab_size", 321, r"embed_tokens\.weight has shape \(320, 64\); expected \(321, 64\)"),
    ],
)
def test_a_wrong_field_is_named(single, field, value, message):
    edit(single / "config.json", **{field: value})
    (single / "generation_config.json").unlink()
    with pytest.raises(ModelFormatError, match=message):
        load_model(single)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": 1}']
)
def test_every_json_file_is_needed_and_read_whole(single, file, content):
    path = single / file
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=rf"single.*{re.escape(file)}"):
        load_model(single)


def test_json_files_cut_anywhere_are_refused(single):
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        data = (single / file).read_bytes()
        for size in range(0, len(data.rstrip()) - 1, max(1, len(data) // 60)):
            (single / file).write_bytes(data[:size])
            with pytest.raises(ModelFormatError, match=re.escape(file)):
                load_model(single)
        (single / file).write_bytes(data)
    load_model(single)


def test_weights_cut_anywhere_are_refused(single):
    path = single / "model.safetensors"
    data = path.read_bytes()
    for size in [*range(200), *range(200, len(data), len(data) // 50), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ModelFormatError, match=r"single/model\.safetensors cannot be read"):
            load_model(single)


def test_weights_have_to_be_there(folder, single):
    (single / "model.safetensors").unlink()
    with pytest.raises(ModelFormatError, match=r"neither model\.safetensors nor"):
        load_model(single)
    (folder / "model-00002-of-00006.safetensors").unlink()
    with pytest.raises(ModelFormatError, match=r"model-00002-of-00006\.safetensors cannot be read"):
        load_model(folder)


@pytest.mark.parametrize("file", ["../secret.safetensors", "/etc/passwd", 5, None])
def test_an_index_names_files_of_the_folder_only(folder, file):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = file
    path.write_text(json.dumps(index))
    with pytest.raises(ModelFormatError, match=r"weight_map\.model\.norm\.weight is"):
        load_model(folder)


def test_an_index_that_names_the_wrong_shard_is_refused(folder):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = sorted(set(index["weight_map"].values()))
    home = index["weight_map"]["model.norm.weight"]
    index["weight_map"]["model.norm.weight"] = next(file for file in files if file != home)
    path.write_text(json.dumps(index))
    with pytest.raises(ModelFormatError, match=r"tensor model\.norm\.weight cannot be read"):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.norm.weight", None, "is missing"),
        ("model.norm.weight", torch.ones(65), r"has shape \(65,\); expected \(64,\)"),
        ("model.norm.weight", torch.ones(64, dtype=torch.int8), "has type I8; expected F32"),
        ("model.embed_tokens.weight", None, "is missing"),
        ("lm_head.weight", None, "is missing"),
        ("model.layers.0.self_attn.o_proj.bias", torch.ones(64), "has no place"),
    ],
)
def test_a_wrong_tensor_is_named(single, name, change, message):
    path = single / "model.safetensors"
    tensors = load_file(path)
    tensors.pop(name, None)
    if change is not None:
        tensors[name] = change
    save_file(tensors, path)
    with pytest.raises(ModelFormatError, match=rf"single.*{re.escape(name)}.*{message}"):
        load_model(single)


def test_a_tied_model_may_still_carry_its_head(tmp_path):
    folder = tiny_models.make_folder(tmp_path / "tied", "qwen2", tied=True)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(tensors, path)
    assert "head" not in load_model(folder).tensors
