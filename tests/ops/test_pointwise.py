"""Pointwise functions are what their formulas say, with the same bits wherever a value stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from metrale_lab.ops import pointwise

FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "sigmoid": (pointwise.sigmoid, torch.sigmoid),
    "silu": (pointwise.silu, functional.silu),
    "softplus": (pointwise.softplus, functional.softplus),
    "logaddexp": (
        lambda x: pointwise.logaddexp(x, 2 * x + 1),
        lambda x: torch.logaddexp(x, 2 * x + 1),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bits_do_not_depend_on_the_rows_beside(name: str) -> None:
    mine, _ = FUNCTIONS[name]
    for width in (1, 3, 4, 7, 13, 16, 31, 100):
        x = 3 * torch.randn(16, width)
        whole = mine(x)
        for rows in (1, 2, 4, 5, 8, 12):
            assert torch.equal(mine(x[:rows]), whole[:rows]), (width, rows)
            assert torch.equal(mine(x[-rows:]), whole[-rows:]), (width, rows)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_values_are_torchs(name: str) -> None:
    mine, theirs = FUNCTIONS[name]
    far = torch.tensor([0.0, -0.0, 30.0, -30.0, 88.0, -88.0, 200.0, -200.0, 1e30, -1e30])
    for x in (far, torch.linspace(-25, 25, 1001)):
        torch.testing.assert_close(mine(x), theirs(x), rtol=2e-6, atol=1e-6)
        assert mine(x).dtype == torch.float32


@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_half_precision_is_rounded_once(name: str) -> None:
    mine, theirs = FUNCTIONS[name]
    x = torch.linspace(-9, 9, 257).bfloat16()
    assert torch.equal(mine(x), mine(x.float()).bfloat16())
    torch.testing.assert_close(mine(x), theirs(x), rtol=1e-2, atol=1e-2)


def test_one_of_two_may_be_nothing() -> None:
    nothing, some = torch.tensor([-torch.inf]), torch.tensor([0.3])
    assert torch.equal(pointwise.logaddexp(nothing, some), some)
    assert torch.equal(pointwise.logaddexp(some, nothing), some)
