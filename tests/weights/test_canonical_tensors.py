"""Folder and GGUF twin load to the same tensors, and a plain forward gives transformers' logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from metrale_lab.weights import LoadedModel, load_model, rope_frequencies
from tests import tiny_models

TOKENS = [4, 77, 5, 300, 19, 8, 9, 260, 31, 2, 11]


def plain_forward(loaded: LoadedModel, token_ids: list[int], start: int = 0) -> torch.Tensor:
    """Logits [tokens, vocab] by the textbook; `start` is the first token's position."""
    spec, tensors = loaded.spec, loaded.tensors
    inv_freq, factor = rope_frequencies(spec)
    positions = torch.arange(start, start + len(token_ids), dtype=torch.float32)
    angles = torch.outer(positions, inv_freq).repeat(1, 2)  # [tokens, head_dim]
    cos, sin = angles.cos() * factor, angles.sin() * factor

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + spec.rms_norm_eps)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    hidden = tensors["embed"][token_ids]
    for layer in range(spec.num_layers):
        part = {
            name.removeprefix(f"layers.{layer}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"layers.{layer}.")
        }
        x = norm(hidden, part["attn_norm"])
        heads = {}
        for name in "qkv":
            projected = F.linear(x, part[name], part.get(f"{name}_bias"))
            heads[name] = projected.view(len(token_ids), -1, spec.head_dim).transpose(0, 1)
        for name in "qk":
            if spec.qk_norm:
                heads[name] = norm(heads[name], part[f"{name}_norm"])
            heads[name] = rotate(heads[name])
        groups = spec.num_q_heads // spec.num_kv_heads
        k, v = (heads[name].repeat_interleave(groups, dim=0) for name in "kv")
        scores = heads["q"] @ k.transpose(1, 2) / spec.head_dim**0.5
        scores += torch.full(scores.shape[-2:], float("-inf")).triu(1)
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(token_ids), -1)
        hidden = hidden + F.linear(mixed, part["o"])
        x = norm(hidden, part["mlp_norm"])
        hidden = hidden + F.linear(
            F.silu(F.linear(x, part["gate"])) * F.linear(x, part["up"]), part["down"]
        )
    return F.linear(norm(hidden, tensors["norm"]), tensors.get("head", tensors["embed"]))


@pytest.fixture(scope="module", params=tiny_models.ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.mark.parametrize("tied", [False, True])
def test_both_formats_give_the_logits_of_transformers(architecture, tied, tmp_path):
    folder = tiny_models.make_folder(tmp_path / "model", architecture, tied=tied)
    file = tiny_models.make_gguf(folder, tmp_path / "model.gguf")
    expected = tiny_models.reference_logits(folder, TOKENS)
    for source in (folder, file):
        loaded = load_model(source)
        assert loaded.spec.tied_head is tied
        assert {n: tuple(t.shape) for n, t in loaded.tensors.items()} == (
            loaded.spec.tensor_shapes()
        )
        torch.testing.assert_close(plain_forward(loaded, TOKENS), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("rope", tiny_models.ROPE_SCALINGS)
def test_both_formats_scale_the_rotary_frequencies(architecture, rope, tmp_path):
    folder = tiny_models.make_folder(tmp_path / "model", architecture, rope=rope)
    file = tiny_models.make_gguf(folder, tmp_path / "model.gguf")
    expected = tiny_models.reference_logits(folder, TOKENS)
    unscaled = tiny_models.make_folder(tmp_path / "unscaled", architecture)
    assert not torch.allclose(tiny_models.reference_logits(unscaled, TOKENS), expected, atol=1e-2)
    for source in (folder, file):
        loaded = load_model(source)
        torch.testing.assert_close(plain_forward(loaded, TOKENS), expected, atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(
            rope_frequencies(loaded.spec)[0], rope_frequencies(load_model(folder).spec)[0]
        )


def test_shards_are_read_as_one(architecture, tmp_path):
    whole = tiny_models.make_folder(tmp_path / "whole", architecture)
    parts = tiny_models.make_folder(tmp_path / "parts", architecture, max_shard_size="50KB")
    assert not (parts / "model.safetensors").exists()
    ours, theirs = load_model(parts), load_model(whole)
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, tensor in ours.tensors.items():
        assert torch.equal(tensor, theirs.tensors[name]), name


@pytest.mark.parametrize("quant", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_matrices_come_back_close(quant, tmp_path):
    folder = tiny_models.make_folder(tmp_path / "model", "llama")
    file = tiny_models.make_gguf(folder, tmp_path / "model.gguf", quant=quant)
    exact, packed = load_model(folder).tensors, load_model(file, torch.float32).tensors
    step = 0.15 * 8 / {"4": 15, "5": 31, "8": 255, "1": 500, "F": 100}[quant[1]]
    for name, tensor in packed.items():
        assert (tensor - exact[name]).abs().max() <= step, name


def test_the_dtype_is_the_files_own_unless_asked(tmp_path):
    folder = tiny_models.make_folder(tmp_path / "model", dtype=torch.bfloat16)
    assert load_model(folder).spec.dtype == torch.bfloat16
    half = tiny_models.make_gguf(folder, tmp_path / "half.gguf", quant="F16")
    packed = tiny_models.make_gguf(folder, tmp_path / "packed.gguf", quant="Q8_0")
    assert load_model(half).spec.dtype == torch.float16
    assert load_model(packed).spec.dtype == torch.float32
    for source in (folder, half, packed):
        loaded = load_model(source, torch.float32)
        assert {tensor.dtype for tensor in loaded.tensors.values()} == {torch.float32}
        assert all(tensor.is_contiguous() for tensor in loaded.tensors.values())
