"""A prompt of exactly whole blocks that is cached whole, while others decode: scores as cold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from metrale_lab.engine.model import TransformerModel
from metrale_lab.weights import LoadedModel, load_model
from tests.engine.kit import as_tensor, opened, prompt, start

BS = 8
STEPS = 2 * BS + 1  # over two block borders


@pytest.fixture(scope="module", params=["folder", "hybrid_folder"])
def one(request: pytest.FixtureRequest) -> LoadedModel:
    """A dense model, then a hybrid."""
    folder: Path = request.getfixturevalue(request.param)
    return load_model(folder, torch.float32)


def scores_of(model: TransformerModel, tokens: list[int], company: list[int]) -> list[torch.Tensor]:
    """Scores of the prompt and of each step after it, with other rows in each step.

    The others decode before it comes, between its lookup and its prefill, and beside it.
    """
    rows = [start(model, [*tokens, *prompt(length, seed=length)])[0] for length in company]

    def step(*more: int) -> list[torch.Tensor]:
        ids = [3 + row for row in range(len(rows))]
        return list(as_tensor(model.decode_batch([*ids, *more], [*rows, *mine])))

    mine: list = []
    if rows:
        step()
    seq = model.alloc_sequence()
    model.lookup_prefix(tokens, seq)
    reused = seq.reused_prefix_tokens
    if rows:
        step()
    scores = [as_tensor(model.prefill(tokens[reused:], seq))]
    mine.append(seq)
    scores += [step(token + 5)[-1] for token in range(STEPS)]
    for row in (*rows, seq):
        model.free_sequence(row)
    return scores


@pytest.mark.parametrize("capture", [False, True])
def test_a_prompt_of_whole_blocks_that_others_share_has_the_scores_of_a_cold_one(
    one: LoadedModel, capture: bool
) -> None:
    with (
        opened(one, capture=False, prefix_cache=False, poison=True) as cold,
        opened(one, capture=capture, poison=True, num_blocks=60) as model,
    ):
        for blocks in (1, 2, 3, 5):
            tokens = prompt(blocks * BS, seed=blocks)
            right = scores_of(cold, tokens, [])
            for company in ([1], [BS, 3, 2 * BS]):
                scores = scores_of(model, tokens, company)
                torch.testing.assert_close(scores, right, atol=5e-5, rtol=0)
            check_shared(model, tokens)


def check_shared(model: TransformerModel, tokens: list[int]) -> None:
    """Warm, all blocks but the last are the same, and one is computed again in its own."""
    first, second = start(model, tokens)[0], start(model, tokens)[0]
    shared = (len(tokens) - 1) // BS
    assert second.reused_prefix_tokens == shared * BS == len(tokens) - BS
    assert first.block_table[:shared] == second.block_table[:shared]
    assert len({*first.block_table[shared:], *second.block_table[shared:]}) == 2
    for seq in (first, second):
        model.free_sequence(seq)
