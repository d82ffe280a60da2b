"""The real checkpoint through the engine and through transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metrale_lab.weights import LoadedModel, load_model
from metrale_lab.weights.fetch import fetch
from tests.engine.kit import as_tensor, fed_greedy, greedy, opened

COUNT = 12
QUESTIONS = ("What is the capital of France?", "Name three colours of the rainbow and one tree.")

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def smollm2() -> LoadedModel:
    """SmolLM2-135M-Instruct, dequantised to float32."""
    return load_model(fetch("smollm2"), torch.float32)


@pytest.fixture(scope="module")
def reference(smollm2: LoadedModel) -> Any:
    """transformers with the same dequantised weights."""
    import transformers

    spec, tensors = smollm2.spec, smollm2.tensors
    config = transformers.LlamaConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_q_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.max_positions,
        rms_norm_eps=spec.rms_norm_eps,
        tie_word_embeddings=True,
        rope_parameters={"rope_theta": spec.rope_theta, "rope_type": "default"},
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    names = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "mlp_norm",
        "self_attn.q_proj": "q",
        "self_attn.k_proj": "k",
        "self_attn.v_proj": "v",
        "self_attn.o_proj": "o",
        "mlp.gate_proj": "gate",
        "mlp.up_proj": "up",
        "mlp.down_proj": "down",
    }
    state = {"model.embed_tokens.weight": tensors["embed"], "model.norm.weight": tensors["norm"]}
    for layer in range(spec.num_layers):
        for theirs, ours in names.items():
            state[f"model.layers.{layer}.{theirs}.weight"] = tensors[f"layers.{layer}.{ours}"]
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def test_scores_and_tokens_equal_the_reference(smollm2: LoadedModel, reference: Any) -> None:
    prompts = [
        smollm2.tokenizer.encode_chat([{"role": "user", "content": text}]) for text in QUESTIONS
    ]
    expected = []
    with opened(smollm2, num_blocks=32, block_size=16) as model:
        for tokens in prompts:
            seq = model.alloc_sequence()
            scores = as_tensor(model.prefill(tokens, seq))
            model.free_sequence(seq)
            with torch.no_grad():
                theirs = reference(torch.tensor([tokens])).logits[0, -1]
                out = reference.generate(
                    torch.tensor([tokens]), max_new_tokens=COUNT, do_sample=False, eos_token_id=None
                )
            torch.testing.assert_close(scores, theirs, atol=1e-3, rtol=0)
            expected.append(out[0, len(tokens) :].tolist())
        assert [greedy(model, tokens, COUNT) for tokens in prompts] == expected
        assert fed_greedy(model, prompts, COUNT) == expected
    assert "Paris" in smollm2.tokenizer.decode(expected[0])
