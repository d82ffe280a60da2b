"""One block index names the same block in every layer, and each layer's cells are its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from metrale_lab.engine.kv_pools import KvPools
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.testing import ScriptedDevice

LAYERS, BLOCKS, SIZE, HEADS, DIM = 12, 5, 16, 2, 32


def pools(**settings: Any) -> KvPools:
    spec: Any = SimpleNamespace(attention_layers=LAYERS, num_kv_heads=HEADS, head_dim=DIM)
    sizes = {"num_blocks": BLOCKS, "block_size": SIZE, "max_batch": 1, "max_seq_len": 64}
    return KvPools(spec, EngineSettings(**(sizes | settings)), torch.device("cpu"))


def test_every_layer_and_side_has_cells_of_its_own() -> None:
    one = pools()
    for layer in range(LAYERS):
        for block in range(BLOCKS + 1):
            one.k[layer, block] = 100 * layer + block
            one.v[layer, block] = -(100 * layer + block) - 1
    for layer in range(LAYERS):
        for block in range(BLOCKS + 1):
            assert one.k[layer, block].unique().tolist() == [100 * layer + block]
            assert one.v[layer, block].unique().tolist() == [-(100 * layer + block) - 1]
    assert one.dummy_block == BLOCKS


@pytest.mark.parametrize("poison", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fresh_block_is_filled_in_every_layer_and_no_other_block_is(
    poison: bool, dtype: torch.dtype
) -> None:
    one, stream = pools(poison=poison, kv_dtype=dtype), ScriptedDevice().create_stream("model")
    one.k.fill_(7)
    one.v.fill_(7)
    one.enqueue_fill(3, stream)
    for side in (one.k, one.v):
        fresh = side[:, 3].float()
        assert bool(fresh.isnan().all() if poison else (fresh == 0).all())
        others = side[:, [0, 1, 2, 4, 5]].float()
        assert bool((others == 7).all())
    assert one.block_bytes == 2 * LAYERS * SIZE * HEADS * DIM * dtype.itemsize


@pytest.mark.parametrize("poison", [False, True])
def test_a_freed_block_is_poison_behind_what_was_launched_if_asked_for(poison: bool) -> None:
    one, stream = pools(poison=poison), ScriptedDevice("lag").create_stream("model")
    one.k.fill_(7)
    one.v.fill_(7)
    one.enqueue_end(3, stream)
    assert bool((one.k == 7).all())
    stream.synchronize()
    for side in (one.k, one.v):
        freed = side[:, 3]
        assert bool(freed.isnan().all() if poison else (freed == 7).all())
        assert bool((side[:, [0, 1, 2, 4, 5]] == 7).all())
