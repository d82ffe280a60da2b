import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metrale_lab.ops import NO_ID, masked_argmax, sample, uniform
from metrale_lab.ops.philox import philox
from metrale_lab.ops.sample import _sortable
from tests.ops import naive

NONE = [NO_ID, NO_ID]


def draw(rows, **arguments):
    """Sample with per-row lists; a single value serves all rows."""
    logits = torch.as_tensor(rows, dtype=torch.float32)
    n = len(logits)

    def column(name, default, dtype):
        value = arguments.get(name, default)
        return torch.tensor(value if isinstance(value, list) else [value] * n, dtype=dtype)

    return sample(
        logits,
        torch.tensor(arguments.get("masks", [NONE] * n)),
        column("temperature", 1.0, torch.float32),
        column("top_k", 0, torch.int64),
        column("top_p", 1.0, torch.float32),
        column("seed", 0, torch.int64),
        column("position", 0, torch.int64),
    ).tolist()


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_known_answers(counter, key, words):
    """From the authors' own test file (Random123, kat_vectors, philox4x32 10)."""
    assert philox(torch.tensor([counter]), torch.tensor([key])).tolist() == [words]
    assert naive.philox(counter, key) == words


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40))
@settings(max_examples=50, deadline=None)
def test_uniform_is_a_function_of_seed_and_position(seed, position):
    number = uniform(torch.tensor([1, seed]), torch.tensor([2, position]))[1].item()
    assert number == naive.uniform(seed, position)
    assert 0 <= number < 1


def test_numbers_are_spread_evenly():
    numbers = uniform(torch.full((4000,), 3), torch.arange(4000))
    counts = torch.histc(numbers.float(), 10, 0, 1)
    assert (counts - 400).abs().max() < 100  # 5 standard deviations


logit = st.sampled_from([-float("inf"), -3.0, -1.0, 0.0, 0.5, 0.5, 1.0, 2.5, float("nan")])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(logit, min_size=7, max_size=7),
            st.sampled_from([0.0, 0.3, 1.0, 2.0]),
            st.sampled_from([0, 1, 3, 7, 100]),
            st.sampled_from([0.0, 0.4, 0.9, 1.0]),
            st.integers(0, 5),
            st.integers(0, 5),
            st.sampled_from([0, 3, 6, NO_ID]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_as_the_naive_twin(rows):
    out = draw(
        [row[0] for row in rows],
        temperature=[row[1] for row in rows],
        top_k=[row[2] for row in rows],
        top_p=[row[3] for row in rows],
        seed=[row[4] for row in rows],
        position=[row[5] for row in rows],
        masks=[[row[6], NO_ID] for row in rows],
    )
    for (scores, temperature, top_k, top_p, seed, position, mask), token in zip(
        rows, out, strict=True
    ):
        expected = naive.sample(scores, [mask, NO_ID], temperature, top_k, top_p, seed, position)
        assert token == expected


def test_frequencies_follow_the_probabilities():
    row, n = [0.0, 1.0, 2.0, -1.0], 4000
    out = draw([row] * n, temperature=0.7, seed=5, position=list(range(n)))
    order, probabilities = naive.kept(row, NONE, 0.7, 0, 1.0)
    for token, probability in zip(order, probabilities, strict=True):
        assert abs(out.count(token) / n - probability) < 0.04


def test_temperature_zero_is_argmax():
    logits = torch.randn(6, 50)
    expected = masked_argmax(logits, torch.tensor([NONE] * 6)).tolist()
    assert draw(logits, temperature=0.0, top_p=0.3, position=list(range(6))) == expected


def test_top_p_zero_and_top_k_one_leave_only_the_best():
    logits = torch.randn(40, 30)
    best = logits.argmax(1).tolist()
    assert draw(logits, top_p=0.0, position=list(range(40))) == best
    assert draw(logits, top_k=1, temperature=5.0, position=list(range(40))) == best


def test_a_top_k_above_the_vocabulary_is_no_limit():
    logits = torch.randn(20, 10)
    assert draw(logits, top_k=11, position=list(range(20))) == draw(
        logits, position=list(range(20))
    )


def test_equal_scores_keep_the_lower_ids():
    out = draw([[1.0] * 8] * 200, top_k=3, position=list(range(200)))
    assert set(out) == {0, 1, 2}


def test_a_tiny_temperature_is_finite():
    assert draw([[1.0, 2.0, 2.5]], temperature=1e-30) == [2]


def test_a_row_without_a_candidate_gives_no_id_and_leaves_its_neighbours_alone():
    nan = float("nan")
    out = draw([[nan, nan], [nan, 1.0], [1.0, 2.0]], top_p=0.5, masks=[NONE, NONE, [0, 1]])
    assert out == [NO_ID, 1, NO_ID]


@pytest.mark.parametrize("vocab", [40, 3000])
def test_a_row_draws_the_same_alone_and_in_any_company(vocab):
    """The company decides whether the full sort runs, and must not change the answer."""
    torch.manual_seed(1)
    logits = torch.randn(12, vocab).mul(2).round_()  # many equal scores
    settings = {
        "temperature": [0.0, 0.5, 1.0, 1.5] * 3,
        "top_k": [0, 0, 5, 2000, 20, 0, 600, 0, 0, 3, 0, 0],
        "top_p": [1.0, 0.9, 1.0, 0.99, 0.5, 1.0, 0.999, 0.2, 1.0, 1.0, 0.9999, 0.0],
        "seed": list(range(12)),
        "position": list(range(100, 112)),
    }
    together = draw(logits, **settings)
    for row in range(12):
        alone = draw(logits[row : row + 1], **{k: v[row : row + 1] for k, v in settings.items()})
        assert alone == [together[row]]


def test_sortable_integers_compare_as_the_floats():
    tiny = 1.4e-45
    scores = [-float("inf"), -3.4e38, -1.5, -1.0, -1e-38, -tiny, 0.0, tiny, 3 * tiny, 1e-38, 1.0]
    scores = torch.tensor([*scores, 1.0000001, 2.0, 3.4028234e38])
    assert (scores[1:] > scores[:-1]).all()
    integers = _sortable(scores)
    assert (integers[1:] > integers[:-1]).all()
    assert integers.abs().max() <= 2**32
    assert _sortable(torch.tensor([-0.0])) == _sortable(torch.tensor([0.0]))
    many = torch.randn(3000) * 10.0 ** torch.randint(-30, 30, (3000,))
    assert torch.equal(many.argsort(), _sortable(many).argsort())
