"""Tiny random models with known answers: Hugging Face folders, their GGUF twins, and the oracle.

    folder = make_folder(tmp_path / "llama", "llama")        # what transformers would save
    file = make_gguf(folder, tmp_path / "llama.gguf")        # what llama.cpp would write
    expected = reference_logits(folder, [5, 6, 7])           # float32 [tokens, vocab]

All weights are random, norms and biases too, so that a part that is left out shows in the logits.
Sizes: 2 layers, hidden 64, 4 query heads on 2 key/value heads, vocabulary 320 of which the
tokenizer knows fewer; heads of qwen3 are wider (32) than hidden / heads. Hybrids
have 4 layers, of which the second attends.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 320
ARCHITECTURES = ("llama", "qwen2", "qwen3")
HYBRIDS = ("qwen3_5_text", "granitemoehybrid")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ROPE_SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
}
_DELTA_SIZES: dict[str, Any] = {
    "head_dim": 32,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 4,
}
_MAMBA_SIZES: dict[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "shared_intermediate_size": 96,
    "num_local_experts": 0,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 24,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.7,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
    "position_embedding_type": "rope",
}
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CORPUS = (
    "The cache keeps the blocks of the prefix, and the next request reads the blocks again.",
    "the block pool, the prefix tree, the ring and the feed",
    "def step(self, tokens): return self.model(tokens)\n",
)


def tiny_config(
    architecture: str = "llama",
    *,
    tied: bool = False,
    rope: str | None = None,
    max_positions: int = 2048,
    **overrides: Any,
) -> Any:
    """A transformers configuration; `rope` is a key of ROPE_SCALINGS."""
    import transformers

    kinds = {
        "llama": transformers.LlamaConfig,
        "qwen2": transformers.Qwen2Config,
        "qwen3": transformers.Qwen3Config,
        "qwen3_5_text": transformers.Qwen3_5TextConfig,
        "granitemoehybrid": transformers.GraniteMoeHybridConfig,
    }
    values: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": tied,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}
        | ROPE_SCALINGS.get(rope or "", {}),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    if architecture == "qwen3":
        values["head_dim"] = 32
    if architecture == "qwen3_5_text":
        values |= _DELTA_SIZES
    if architecture == "granitemoehybrid":
        values |= _MAMBA_SIZES
    return kinds[architecture](**(values | overrides))


def make_folder(
    path: Path,
    architecture: str = "llama",
    *,
    tied: bool = False,
    rope: str | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    max_shard_size: str = "1GB",
    **overrides: Any,
) -> Path:
    """A model folder: config, safetensors, tokenizer.json, chat template, generation config.

    `max_shard_size="100KB"` makes several shards with an index; `overrides` go to the config.
    """
    import transformers

    config = tiny_config(architecture, tied=tied, rope=rope, **overrides)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _randomize(name, parameter, zero_centred=architecture == "qwen3_5_text")
    model.generation_config.eos_token_id = 2
    model.to(dtype).save_pretrained(path, max_shard_size=max_shard_size)
    write_tokenizer(path)
    return path


def _randomize(name: str, parameter: torch.Tensor, zero_centred: bool) -> None:
    spread = torch.randn_like(parameter)
    if "A_log" in name:
        parameter.copy_(spread)  # some heads forget within a few tokens, some after many
    elif "dt_bias" in name or name.endswith(".D"):
        parameter.copy_(spread)
    elif "norm" in name:
        is_zero_centred = zero_centred and "linear_attn" not in name
        parameter.copy_(0.3 * spread + (0.0 if is_zero_centred else 1.0))
    else:
        parameter.copy_((0.5 if "conv1d" in name else 0.15) * spread)


def nest_in_pictures(folder: Path, path: Path, **overrides: Any) -> Path:
    """The twin of a qwen3_5_text folder inside a model that sees pictures too.

    `overrides` go to the configuration of the text's part.
    """
    tensors = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    tensors["model.visual.pos_embed.weight"] = torch.zeros(2, 2)
    text = json.loads((folder / "config.json").read_text())
    tied = text.pop("tie_word_embeddings")
    path.mkdir()
    outer = {"model_type": "qwen3_5", "tie_word_embeddings": tied, "text_config": text | overrides}
    (path / "config.json").write_text(json.dumps(outer))
    save_file(tensors, path / "model.safetensors")
    write_tokenizer(path)
    return path


def write_tokenizer(path: Path) -> None:
    """`tokenizer.json` and `tokenizer_config.json` of the tiny byte-level vocabulary."""
    tiny_tokenizer().save(str(path / "tokenizer.json"))
    settings = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "chat_template": CHAT_TEMPLATE,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


@functools.cache
def tiny_tokenizer() -> tokenizers.Tokenizer:
    """Three special tokens, 256 bytes, and a few merges learned from three lines."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_GPT2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - 20,
        special_tokens=[AddedToken(text, special=True) for text in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def make_gguf(
    folder: Path, path: Path, *, quant: str = "F32", overrides: dict[str, Any] | None = None
) -> Path:
    """The GGUF twin of a folder, written as llama.cpp's converter does.

    `quant` names the type of all matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1.
    `overrides` replaces metadata fields (None leaves one out): texts, ints, floats, flags.
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, config["model_type"])
    for key, value in (_metadata(config, folder.name) | (overrides or {})).items():
        _add(writer, key, value)
    kind = gguf.GGMLQuantizationType[quant]
    for name, tensor in _gguf_tensors(folder, config).items():
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@functools.lru_cache(maxsize=4)
def reference_model(folder: Path) -> Any:
    """The folder in transformers, float32, eager attention, evaluation mode."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def reference_logits(folder: Path, token_ids: Sequence[int]) -> torch.Tensor:
    """Logits of every position, float32 [tokens, vocab]."""
    with torch.no_grad():
        ids = torch.tensor([list(token_ids)])
        logits: torch.Tensor = reference_model(folder)(ids, use_cache=False).logits[0]
    return logits


def reference_greedy(folder: Path, token_ids: Sequence[int], count: int) -> list[int]:
    """The next `count` tokens by argmax, without a cache and without an end."""
    tokens = list(token_ids)
    for _ in range(count):
        tokens.append(int(reference_logits(folder, tokens)[-1].argmax()))
    return tokens[len(token_ids) :]


def _metadata(config: dict[str, Any], name: str) -> dict[str, Any]:
    arch = config["model_type"]
    rope = config["rope_parameters"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    values: dict[str, Any] = {
        "general.name": name,
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.rope.dimension_count": head_dim,
        f"{arch}.rope.freq_base": float(rope["rope_theta"]),
        f"{arch}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{arch}.vocab_size": config["vocab_size"],
    }
    if rope["rope_type"] in ("linear", "yarn"):
        values[f"{arch}.rope.scaling.type"] = rope["rope_type"]
        values[f"{arch}.rope.scaling.factor"] = float(rope["factor"])
    if rope["rope_type"] == "yarn":
        original = rope["original_max_position_embeddings"]
        values[f"{arch}.rope.scaling.original_context_length"] = original
    return values | tokenizer_metadata(config["vocab_size"])


def tokenizer_metadata(vocab_size: int = VOCAB_SIZE) -> dict[str, Any]:
    """The tiny tokenizer as GGUF fields; rows without a token are padded as converters do."""
    described = json.loads(tiny_tokenizer().to_str())
    by_id = {token_id: token for token, token_id in described["model"]["vocab"].items()}
    tokens = [by_id.get(at, f"[PAD{at}]") for at in range(vocab_size)]
    kinds = [3 if token in SPECIAL else 1 if at in by_id else 5 for at, token in enumerate(tokens)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in described["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


_GGUF_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def _gguf_tensors(folder: Path, config: dict[str, Any]) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}
    for name, parameter in reference_model(folder).named_parameters():
        part, _, suffix = name.rpartition(".")
        layer = ""
        if part.startswith("model.layers."):
            _, _, number, part = part.split(".", 3)
            layer = f"blk.{number}."
        values = parameter.detach().numpy()
        if config["model_type"] == "llama" and part.endswith(("q_proj", "k_proj")):
            heads = "num_attention_heads" if part.endswith("q_proj") else "num_key_value_heads"
            values = _pair_rotary_rows(values, config[heads])
        tensors[f"{layer}{_GGUF_PARTS[part]}.{suffix}"] = values
    if config["rope_parameters"]["rope_type"] == "llama3":
        tensors["rope_freqs.weight"] = _llama3_divisors(config)
    return tensors


def _pair_rotary_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _llama3_divisors(config: dict[str, Any]) -> np.ndarray:
    rope = config["rope_parameters"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * pair / head_dim)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)
