"""Cell numbers of a step are right where block number x block size passes 2^31."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from metrale_lab import ops
from metrale_lab.weights import LoadedModel
from tests.engine.kit import opened

BLOCK = 2**30 + 3  # times any block size of 2 or more passes 2^31


class Seen(Exception):
    """Carries where a step would write; it never gets so far."""

    def __init__(self, slots: Tensor) -> None:
        self.slots = slots


def refuse(k: Tensor, v: Tensor, k_pool: Tensor, v_pool: Tensor, slots: Tensor) -> None:
    raise Seen(slots)


def write_slots(model: Any, kind: str, table: str) -> Tensor:
    """The cells that a step writes when every entry of its table is `BLOCK`."""
    step, network = getattr(model.steps, kind), model.steps.network
    step._make_harmless()
    step.inputs.tensor(table).fill_(BLOCK)
    pools = {"k": network.pools.k, "v": network.pools.v, "cells": model.steps.cells}
    pools |= {"h": network.states.h, "conv": network.states.conv}
    names = inspect.signature(step._forward).parameters
    given = {name: pools[name] if name in pools else step.inputs.tensor(name) for name in names}
    with pytest.raises(Seen) as seen:
        step._forward(**given)
    return seen.value.slots


@pytest.mark.parametrize(("kind", "table"), [("decode", "tables"), ("prefill", "table")])
def test_cells_of_a_step_do_not_wrap(
    loaded: LoadedModel, kind: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "write_kv", refuse)
    with opened(loaded) as model:
        slots, size = write_slots(model, kind, table), model.block_size
    assert slots.dtype == torch.int64
    assert size >= 2
    assert all(slot // size == BLOCK for slot in slots.tolist())
