"""What the slots of live sequences must hold: the states after their committed tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

from metrale_lab.engine.lora_pools import entry_of
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.scheduler.router import Router
from metrale_lab.testing import TagModel
from metrale_lab.testing.tags import NO_TOKENS, Layers, next_tags


class Told(NamedTuple):
    """The states after the first tokens of a sequence, computed here."""

    tokens: int
    layers: Layers


class LiveStates:
    """Compares the buffer of each live sequence's parity with its tokens, step by step."""

    def __init__(self, model: TagModel, router: Router) -> None:
        self._model, self._router = model, router
        self._told: dict[SequenceState, Told] = {}

    def check(self) -> None:
        """AssertionError for a difference; nothing is told before the device did all its work."""
        memory: Any = self._model.network.memory
        if memory is None or self._is_behind():
            return
        live = list(self._model.sequences.values())
        self._told = {seq: self._told.get(seq, Told(0, NO_TOKENS)) for seq in live}
        for seq in live:
            if seq.slot_idx is not None and seq.seq_len:
                place = slice(None), seq.slot_idx, seq.seq_len % 2
                states, windows = memory.states[place].tolist(), memory.windows[place].tolist()
                held = [(state, tuple(one)) for state, one in zip(states, windows, strict=True)]
                assert held == [tuple(tags) for tags in self._state_of(seq)], (
                    f"buffer {seq.seq_len % 2} of slot {seq.slot_idx} is not of {seq}'s tokens"
                )

    def _is_behind(self) -> bool:
        """Whether work waits, or failed where nobody has asked for its end yet."""
        stream: Any = self._model.default_stream
        events: Any = (event for slot in self._router.slots_in_flight for event in slot.events)
        if not hasattr(stream, "queue"):
            return True
        failed = stream._fault is not None or any(event.fault is not None for event in events)
        return failed or bool(stream.queue)

    def _state_of(self, seq: SequenceState) -> Layers:
        count, layers = self._told[seq]
        entry = entry_of(seq.acquired_adapter_slot)
        content = int(self._model.network.adapters.contents([entry])[0])
        for token in seq.tokens[count:]:
            layers = next_tags(layers, token, content)
        self._told[seq] = Told(len(seq.tokens), layers)
        return layers
