"""Where it is asked for, a row's scores are the same bits whatever other rows its steps have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metrale_lab import Lab
from metrale_lab.engine.model import TransformerModel
from metrale_lab.weights import LoadedModel, load_model
from tests.engine.kit import opened, prompt, start
from tests.tiny_models import HYBRIDS, make_folder

# Longer than a tile of attention, and such that one of them makes the others' last tile a long one.
LENGTHS = (9, 150, 30, 5, 141, 17, 64, 3)
SIZES: dict[str, Any] = {"num_blocks": 120, "max_batch": 8, "max_seq_len": 256}


def scores(model: TransformerModel, rows: list[int], steps: int = 3) -> list[np.ndarray]:
    """The scores of the first of the rows in each step; token ids do not depend on scores."""
    seqs = [start(model, prompt(LENGTHS[row], row))[0] for row in rows]
    out = []
    for step in range(steps):
        tokens = [(7 * row + step) % 200 + 3 for row in rows]
        out.append(model.decode_batch(tokens, seqs).numpy()[0].copy())
    for seq in seqs:
        model.free_sequence(seq)
    return out


@pytest.fixture(scope="module", params=["llama", *HYBRIDS])
def network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LoadedModel:
    folder = tmp_path_factory.mktemp("company") / request.param
    return load_model(make_folder(folder, request.param), torch.float32)


@pytest.mark.parametrize("row", [0, 1, 4, 7])
def test_a_row_alone_and_in_a_batch_of_eight_gives_the_same_bits(
    network: LoadedModel, row: int
) -> None:
    others = [other for other in range(len(LENGTHS)) if other != row]
    with opened(network, company_free=True, prefix_cache=False, **SIZES) as model:
        alone = scores(model, [row])
        for count in (1, 2, 3, 4, 7):
            beside = scores(model, [row, *others[:count]])
            for one, other in zip(alone, beside, strict=True):
                assert one.tobytes() == other.tobytes(), count


def test_without_it_some_row_has_other_bits(loaded: LoadedModel) -> None:
    """The control: this model and this library do tell company apart."""
    with opened(loaded, prefix_cache=False, **SIZES) as model:
        alone, beside = scores(model, [0]), scores(model, [*range(len(LENGTHS))])
    assert any(one.tobytes() != other.tobytes() for one, other in zip(alone, beside, strict=True))


def test_a_deterministic_lab_asks_for_it_and_takes_one_thread(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "llama", "llama")
    sizes: dict[str, Any] = {"num_blocks": 16, "block_size": 8, "max_seq_len": 64}
    for deterministic in (True, False):
        with Lab(folder, deterministic=deterministic, threads=None, **sizes) as lab:
            assert lab.model.steps.network.company_free == deterministic  # type: ignore[attr-defined]
            lab.submit(token_ids=[1, 2, 3], max_tokens=3, ignore_eos=True).result(timeout=60)
            assert set(lab.frames.graphs()["rows"]) >= {4 if deterministic else 1}
            assert lab.config.threads == (1 if deterministic else torch.get_num_threads())
    with Lab(folder, threads=3, **sizes) as lab:
        assert lab.config.threads == 3


@pytest.mark.parametrize("architecture", ["llama", *HYBRIDS])
def test_a_deterministic_lab_scores_a_long_prompt_alone_and_in_company_alike(
    tmp_path: Path, architecture: str
) -> None:
    folder = make_folder(tmp_path / architecture, architecture)
    options: dict[str, Any] = {"num_blocks": 120, "max_prefill_tokens": 48, "prefix_cache": False}
    prompts = [prompt(length, row) for row, length in enumerate(LENGTHS)]
    asked: dict[str, Any] = {"max_tokens": 6, "ignore_eos": True, "logprobs": 2}
    with Lab(folder, deterministic=True, max_seq_len=256, **options) as lab:
        alone = [lab.submit(token_ids=one, **asked).result(timeout=60) for one in prompts]
        with lab.paused():
            together = [lab.submit(token_ids=one, **asked) for one in prompts]
        crowded = [one.result(timeout=60) for one in together]
    assert [one.token_ids for one in crowded] == [one.token_ids for one in alone]
    assert [one.logprobs for one in crowded] == [one.logprobs for one in alone]
