"""What is shipped as `tiny`: sizes, tokenizer, and that it stays small."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metrale_lab import Lab
from metrale_lab.errors import InvalidConfig
from metrale_lab.weights.load import LoadedModel, load_model
from metrale_lab.weights.tiny import ADAPTERS, CHECKPOINT
from metrale_lab.weights.tiny.themes import THEMES, retold


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model(CHECKPOINT)


def test_its_sizes(tiny: LoadedModel) -> None:
    spec = tiny.spec
    assert spec.dtype is torch.bfloat16
    assert spec.max_positions == 40_960
    assert spec.head_dim == 64
    assert spec.vocab_size == tiny.tokenizer.vocab_size == 2048
    assert 2e6 < sum(one.numel() for one in tiny.tensors.values()) < 4e6
    assert 0 < len(spec.linear_layers) < spec.num_layers
    assert sum(one.stat().st_size for one in CHECKPOINT.iterdir()) < 10_000_000


@given(text=st.text())
def test_any_text_goes_through_its_tokenizer_unharmed(tiny: LoadedModel, text: str) -> None:
    assert tiny.tokenizer.decode(tiny.tokenizer.encode(text)) == text


def test_the_end_of_a_story_ends_its_text(tiny: LoadedModel) -> None:
    assert tiny.tokenizer.eos_ids == {0}
    assert tiny.tokenizer.token_text(0) == "<|endoftext|>"


def test_messages_call_it_by_its_name() -> None:
    with pytest.raises(InvalidConfig, match="the context of tiny"):
        Lab("tiny", max_seq_len=50_000)


def test_it_is_what_a_lab_takes_by_default() -> None:
    with Lab(num_blocks=8, max_seq_len=64) as lab:
        assert lab.name == "tiny"


@pytest.mark.parametrize("theme", THEMES)
def test_each_theme_has_an_adapter(theme: str) -> None:
    path = ADAPTERS / theme
    assert sum(one.stat().st_size for one in path.iterdir()) < 300_000
    with Lab("tiny", num_blocks=32, max_seq_len=128, adapters=(f"{theme}={path}",)) as lab:
        texts = [
            lab.submit("Once upon a time, there was a", adapter=name, max_tokens=60).result().text
            for name in (None, theme)
        ]
    own = set(THEMES[theme].values())
    assert not own & set(texts[0].replace(".", " ").split())
    assert own & set(texts[1].replace(".", " ").split())


def test_a_theme_changes_words_and_their_articles() -> None:
    assert retold("An owl sat in a barn.", "castle") == "A witch sat in a castle."
    assert retold("She went to a park.", "sea") == "She went to an island."
    assert retold("The parks of the forester", "sea") == "The parks of the forester"
