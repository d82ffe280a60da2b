"""LoRA folders: PEFT's own rules of names, ranks and scales, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from metrale_lab.errors import AdapterError
from metrale_lab.weights.folder_config import spec_from_config
from metrale_lab.weights.peft_config import read_peft_config
from metrale_lab.weights.peft_folder import Place, read_adapter
from tests.lora_folders import ATTENTION, adapted_model, make_adapter
from tests.tiny_models import make_folder

CONFIGS = {
    "names": {},
    "attention": {"target_modules": ATTENTION},
    "suffix with layer": {"target_modules": ("layers.1.mlp.up_proj", "q_proj")},
    "regex": {"target_modules": r".*layers\.0\.(self_attn\.[qv]_proj|mlp\.down_proj)"},
    "all-linear": {"target_modules": "all-linear"},
    "one layer": {"layers_to_transform": [1]},
    "a layer by number": {"layers_to_transform": 0, "layers_pattern": "layers"},
    "excluded": {"exclude_modules": ["down_proj", "layers.0.self_attn.q_proj"]},
    "rslora": {"r": 9, "use_rslora": True},
    "patterns": {
        "rank_pattern": {"q_proj": 2, r"layers\.1\.mlp\..*": 6},
        "alpha_pattern": {"layers.0.self_attn.v_proj": 3, "up_proj": 5},
    },
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("models") / "base", "qwen2")


@pytest.fixture(scope="module")
def spec(base):
    return spec_from_config(base)


@pytest.fixture(scope="module")
def saved(base, tmp_path_factory):
    return make_adapter(base, tmp_path_factory.mktemp("adapters") / "plain", r=3)


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "mine")


def edit(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(folder, change):
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_adapted_weight_gets_what_peft_adds_to_it(name, base, spec, tmp_path):
    """`B A` times the scale, for exactly the modules that PEFT adapts."""
    path = make_adapter(base, tmp_path / "adapter", **CONFIGS[name])
    ours = read_adapter(path, spec)
    theirs = {}
    for module_name, module in adapted_model(base, path).named_modules():
        if hasattr(module, "get_delta_weight"):
            theirs[module_name.removeprefix("base_model.model.")] = module.get_delta_weight(
                "default"
            )
    names = {
        Place(int(path.split(".")[2]), path.split(".")[-1].removesuffix("_proj")): path
        for path in theirs
    }
    assert set(ours.factors) == set(names)
    for place, factors in ours.factors.items():
        torch.testing.assert_close(factors.b @ factors.a, theirs[names[place]].detach())
    assert ours.rank == max(len(one.a) for one in ours.factors.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_read_as_float32(dtype, folder, spec):
    rewrite(folder, lambda tensors: tensors.update({k: v.to(dtype) for k, v in tensors.items()}))
    factors = read_adapter(folder, spec).factors[Place(1, "down")]
    assert {one.dtype for one in factors} == {torch.float32}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"peft_type": None}, "peft_type is missing"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save is \['lm_head'\]"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"lora_bias": True}, "lora_bias"),
        ({"target_parameters": ["x"]}, "target_parameters"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"r": 0}, "r is 0"),
        ({"r": 2.5}, "r is 2.5"),
        ({"r": None}, "r is missing"),
        ({"lora_alpha": "big"}, "lora_alpha is 'big'"),
        ({"use_rslora": 1}, "use_rslora is 1"),
        ({"target_modules": None}, "target_modules is None"),
        ({"target_modules": []}, r"target_modules is \[\]"),
        ({"target_modules": "("}, r"target_modules is '\('"),
        ({"target_modules": ["q_proj", "wq"]}, "'wq' fits no projection of this model"),
        ({"target_modules": ["lm_head"]}, "'lm_head' fits no projection"),
        ({"target_modules": "model.nothing"}, "'model.nothing' fits no projection"),
        ({"layers_to_transform": ["0"]}, "layers_to_transform"),
        ({"layers_to_transform": [9]}, "adapts no projection"),
        ({"layers_to_transform": 0, "layers_pattern": "h"}, "layers_pattern is 'h'"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern: q_proj is 0"),
        ({"rank_pattern": {"(": 1}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern: q_proj"),
        ({"rank_pattern": {"q_proj": 2}}, r"q_proj.lora_A.weight has shape \(3, 64\); expected"),
        ({"r": 4}, r"lora_A.weight has shape \(3, .*; expected \(4, "),
        ({"target_modules": ["q_proj"]}, "belongs to no module"),
        ({"lora_alpha": 1e300}, "overflow float32"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_named(changes, told, folder, spec):
    edit(folder, **changes)
    with pytest.raises(AdapterError, match=told) as raised:
        read_adapter(folder, spec)
    assert "mine" in str(raised.value)


def _first(tensors):
    return min(tensors)


DAMAGES = {
    "is missing": lambda tensors: tensors.pop(_first(tensors)),
    "belongs to no module": lambda tensors: tensors.update(extra=torch.zeros(1)),
    "has values that are not finite": lambda t: t[_first(t)].view(-1)[0].fill_(float("nan")),
    r"has shape \(2, 2\)": lambda tensors: tensors.update({_first(tensors): torch.zeros(2, 2)}),
    "has type I32": lambda t: t.update({_first(t): t[_first(t)].to(torch.int32)}),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_a_damaged_tensor_is_named(told, folder, spec):
    rewrite(folder, DAMAGES[told])
    with pytest.raises(AdapterError, match=r"mine/adapter_model.safetensors: tensor .*" + told):
        read_adapter(folder, spec)


def test_what_is_not_there_is_named(folder, spec, tmp_path):
    with pytest.raises(AdapterError, match="no such folder"):
        read_adapter(tmp_path / "nowhere", spec)
    with pytest.raises(AdapterError, match="no such folder"):
        read_adapter(folder / "adapter_config.json", spec)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(AdapterError, match=r"mine: adapter_model.safetensors is missing"):
        read_adapter(folder, spec)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(AdapterError, match=r"adapter_config.json is missing; expected a LoRA"):
        read_adapter(folder, spec)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 40, b"\x08\0\0\0\0\0\0\0{}      "])
def test_files_that_are_cut_or_none_are_refused(content, folder, spec):
    (folder / "adapter_model.safetensors").write_bytes(content)
    with pytest.raises(AdapterError, match=r"mine/adapter_model.safetensors"):
        read_adapter(folder, spec)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"null"])
def test_a_configuration_that_is_none_is_refused(content, folder):
    (folder / "adapter_config.json").write_bytes(content)
    with pytest.raises(AdapterError, match=r"adapter_config.json"):
        read_peft_config(folder)


def test_an_adapter_of_a_wider_model_is_refused(saved, tmp_path):
    wider = make_folder(tmp_path / "wider", "qwen2", hidden_size=128)
    with pytest.raises(AdapterError, match=r"has shape \(3, 64\); expected \(3, 128\)"):
        read_adapter(saved, spec_from_config(wider))
    deeper = make_folder(tmp_path / "deeper", "qwen2", num_hidden_layers=3)
    with pytest.raises(AdapterError, match=r"layers.2.*is missing"):
        read_adapter(saved, spec_from_config(deeper))


@pytest.mark.parametrize("targets", ["all-linear", r"model\.language_model\..*_proj"])
def test_an_adapter_of_a_model_that_also_sees_pictures_fits_its_decoder(targets, folder, spec):
    """Its modules lie one level deeper; a part outside the decoder has no place here."""
    plain = read_adapter(folder, spec)

    def deepen(tensors):
        for key in list(tensors):
            tensors[key.replace("model.layers", "model.language_model.layers")] = tensors.pop(key)

    rewrite(folder, deepen)
    edit(folder, target_modules=targets)
    nested = read_adapter(folder, spec)
    assert nested.factors.keys() == plain.factors.keys()
    for place, factors in nested.factors.items():
        assert torch.equal(factors.b @ factors.a, plain.factors[place].b @ plain.factors[place].a)
    rewrite(folder, lambda t: t.update({"base_model.model.model.visual.x": torch.zeros(1)}))
    with pytest.raises(AdapterError, match=r"visual.*belongs to no module"):
        read_adapter(folder, spec)
