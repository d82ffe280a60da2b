"""Low-rank changes are of each row's own factors, whatever else pools and batch hold."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from metrale_lab import ops

BOUND = 2e-5  # float32: sums of up to 100 terms of about one


class Case(NamedTuple):
    """Rows, and pools whose entry 0 is no adapter."""

    out: torch.Tensor
    x: torch.Tensor
    a: torch.Tensor
    b: list[torch.Tensor]


def case(
    rows: int, entries: int, width: int, rank: int, parts: tuple[int, ...], seed: int = 0
) -> Case:
    random = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=random)

    a = normal(entries, width, len(parts) * rank) / width**0.5
    b = [normal(entries, rank, part) for part in parts]
    for pool in (a, *b):
        pool[0] = 0
    return Case(normal(rows, sum(parts)), normal(rows, width), a, b)


def naive(one: Case, entries: list[int]) -> torch.Tensor:
    """Row by row and part by part, in float64."""
    rows = []
    for out, x, entry in zip(one.out.double(), one.x.double(), entries, strict=True):
        lows = (x @ one.a[entry].double()).chunk(len(one.b))
        parts = [low @ b[entry].double() for low, b in zip(lows, one.b, strict=True)]
        rows.append(out + torch.cat(parts))
    return torch.stack(rows)


def added(one: Case, entries: list[int] | int) -> torch.Tensor:
    return ops.add_low_rank(one.out, one.x, one.a, one.b, torch.tensor(entries))


def empty(one: Case, entry: int) -> None:
    """Poison an entry as its slot is when nobody uses it."""
    for pool in (one.a, *one.b):
        pool[entry] = torch.nan


@pytest.fixture(params=["torch", "triton"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As on a CPU: weighted sums of the pools' rows; as on a GPU: gathered factors."""
    monkeypatch.setenv("METRALE_OPS", request.param)
    return str(request.param)


SHAPES = [
    (1, 2, 5, 1, (3,)),
    (2, 5, 33, 3, (7, 2)),
    (4, 9, 64, 16, (40, 8, 8)),
    (8, 5, 48, 4, (96, 96)),
    (12, 17, 100, 9, (16, 5, 3, 8)),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_get_their_own_factors_and_nothing_of_empty_slots(
    form: str, shape: tuple[int, int, int, int, tuple[int, ...]]
) -> None:
    """Padding rows and rows of the base model beside them; the last entry holds poison."""
    rows, count, *_ = shape
    for seed in range(6):
        one = case(*shape, seed=seed)
        random = torch.Generator().manual_seed(seed)
        entries = torch.randint(0, max(count - 1, 1), (rows,), generator=random).tolist()
        empty(one, count - 1)
        torch.testing.assert_close(
            added(one, entries).double(), naive(one, entries), rtol=0, atol=BOUND
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_one_entry_for_all_rows_is_that_of_each(
    form: str, shape: tuple[int, int, int, int, tuple[int, ...]]
) -> None:
    one = case(*shape)
    for entry in range(shape[1]):
        expected = naive(one, [entry] * shape[0])
        torch.testing.assert_close(added(one, entry).double(), expected, rtol=0, atol=BOUND)


def test_who_reads_an_empty_slot_sees_it(form: str) -> None:
    one = case(4, 5, 16, 4, (8, 8))
    empty(one, 3)
    assert added(one, [1, 3, 0, 2]).isnan().any(1).tolist() == [False, True, False, False]
    assert added(one, 3).isnan().all()
    one = case(4, 5, 16, 4, (8, 8))
    one.b[1][3] = torch.nan
    assert added(one, [1, 3, 0, 2]).isnan().sum(1).tolist() == [0, 8, 0, 0]


def test_a_rows_bits_do_not_depend_on_its_company_slot_or_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METRALE_OPS", "torch")
    one = case(16, 9, 72, 5, (33, 12))
    entries = [3, 0, 1, 8, 8, 2, 4, 0, 5, 6, 7, 1, 3, 0, 2, 6]
    whole = added(one, entries)
    for count in (1, 2, 3, 4, 7, 12):
        for begin in (0, 4):
            rows = slice(begin, begin + count)
            part = Case(one.out[rows], one.x[rows], one.a, one.b)
            assert torch.equal(added(part, entries[rows]), whole[rows]), (count, begin)
    moved = [0, 8, 7, 6, 5, 4, 3, 2, 1]  # entry e of the old pools is moved[e] of the new ones
    pools = [pool.new_full((12, *pool.shape[1:]), torch.nan) for pool in (one.a, *one.b)]
    for new, old in zip(pools, (one.a, *one.b), strict=True):
        new[moved] = old
    elsewhere = Case(one.out, one.x, pools[0], pools[1:])
    assert torch.equal(added(elsewhere, [moved[entry] for entry in entries]), whole)


def test_the_base_model_alone_is_left_as_it_is(form: str) -> None:
    one = case(4, 3, 16, 2, (8,))
    for entries in ([0, 0, 0, 0], 0):
        assert torch.equal(added(one, entries), one.out)


def test_half_precision_is_rounded_once(form: str) -> None:
    one = case(4, 3, 16, 2, (8, 4))
    half = one._replace(out=one.out.bfloat16(), x=one.x.bfloat16())
    wide = one._replace(out=half.out.float(), x=half.x.float())
    for entries in ([2, 0, 1, 2], 2):
        assert torch.equal(added(half, entries), added(wide, entries).bfloat16())
