"""A model used by hand: right arguments of each of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from metrale_lab.engine import RowDraw
from metrale_lab.weights.tiny import ADAPTERS

SEA = ADAPTERS / "sea"


@contextmanager
def by_hand(model: Any) -> Iterator[dict[str, dict[str, Any]]]:
    """Arguments of every call of a model; what is taken meanwhile is given back."""
    before = set(model.sequences)
    event, memory = model.create_event(), model.alloc_host_pinned(64)
    model.load_adapter("sea", SEA)
    try:
        yield _arguments(model, event, memory)
    finally:
        model.default_stream.synchronize()
        for one in [one for one in model.sequences.values() if one.id not in before]:
            model.free_sequence(one)
        event.destroy()
        memory.free()
        for adapter in model.adapters.slots:
            for _ in range(adapter.users):
                model.release_adapter(adapter.slot)
        for name in model.adapters.names:
            model.unload_adapter(name)


def _arguments(model: Any, event: Any, memory: Any) -> dict[str, dict[str, Any]]:
    seq = model.alloc_sequence()
    model.prefill([1, 2, 3], seq)
    stream, logits = model.default_stream, model.decode_batch([7], [seq])
    pick = {
        "logits": logits,
        "masks": [(1, 2)],
        "dst": memory.view(),
        "event": event,
        "stream": stream,
    }
    return {
        "cache_sequence": {"seq": seq},
        "free_sequence": {"seq": seq},
        "compact_sequence": {"seq": seq, "new_slot": 0},
        "detach_slot_for_reuse": {"seq": seq},
        "save_sequence_state": {"seq": seq, "writer": None},
        "restore_sequence_state": {"seq": seq, "num_blocks": 1, "reader": None},
        "alloc_sequence_for": {"budget_tokens": 4},
        "reclaim_prefix_blocks": {"num_blocks": 1},
        "reclaim_prefix_blocks_for": {"prompt": [1], "adapter_slot": -1, "blocks_needed": 1},
        "lookup_prefix": {
            "prompt": [1, 2],
            "seq": model.alloc_sequence(),
            "needs_logits": True,
            "resumed": False,
        },
        "prefill": {"tokens": [9], "seq": seq, "stream": None},
        "decode_batch": {"tokens": [9], "seqs": [seq], "stream": None},
        "decode_batch_fed": {"sources": [], "seqs": [seq], "stream": stream},
        "argmax_batch_to_feed": pick,
        "sample_batch_to_feed": pick | {"draws": [RowDraw(1.0, 0, 1.0, 0, 3)]},
        "reserve_decode_block": {"seq": seq},
        "release_decode_blocks": {"seq": seq, "blocks": 0},
        "event_query": {"event": event},
        "event_synchronize": {"event": event},
        "destroy_event": {"event": event},
        "copy_d2h_async": {"src": torch.zeros(2), "dst": memory.view(), "stream": stream},
        "alloc_host_pinned": {"nbytes": 8},
        "free_host_pinned": {"memory": memory},
        "hold_blocks": {"blocks": 0},
        "observe": {"emit": print},
        "read_adapter": {"path": SEA},
        "load_adapter": {"name": "sea", "path": SEA},
        "install_adapter": {"name": "sea", "adapter": model.read_adapter(SEA)},
        "activate_adapter": {"name": "sea"},
        "acquire_adapter": {"name": "sea"},
        "release_adapter": {"slot": -1},
        "unload_adapter": {"name": "sea"},
    }
