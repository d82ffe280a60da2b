"""What the prefix cache must hold: exactly the tags of its nodes' tokens, and states of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from metrale_lab.engine.lora_pools import entry_of
from metrale_lab.testing import TagModel
from metrale_lab.testing.adapters import scripted_adapter
from metrale_lab.testing.device import ScriptedStream
from metrale_lab.testing.states import as_tags
from metrale_lab.testing.tags import NO_TOKENS, Layers, Tags, next_tags, tags_of


class Contents:
    """Compares blocks and snapshots of a model with the tokens that they are found by.

    `folders`: what each load of an adapter stands for, by name and generation; it may grow.
    """

    def __init__(self, model: TagModel, folders: Mapping[tuple[str, int], str]) -> None:
        self._model, self._folders = model, folders
        self._adapters: dict[int, int] = {0: 0}  # contents by identity, also of those that went

    def check(self) -> None:
        """AssertionError for a difference; nothing is told while a scripted stream has work."""
        self._learn_adapters()
        self._check_adapters()
        if self._model.tree is None or self._work_waits():
            return
        sides = self._model.network.blocks.sides
        for node in self._model.tree.nodes.values():
            size = len(node.tokens)
            expected = _tags(node.tokens, node.depth_tokens - size, self._content(node))
            for number, side in enumerate(sides):
                assert np.array_equal(side[:, node.block], expected[:, number]), (
                    f"block {node.block} of node {node.id} holds other tokens than {node.tokens}"
                )
        for one in self._model.snapshots.stored:
            if one.written:
                self._check_snapshot(one)

    def _work_waits(self) -> bool:
        stream = self._model.default_stream
        if isinstance(stream, ScriptedStream):
            return bool(stream.queue)  # to wait for it would take the fault that a step is told
        stream.synchronize()
        return False

    def _check_snapshot(self, one: Any) -> None:
        expected = _states(one.tokens, self._content(one))
        kept = self._model.steps.snapshots
        states = as_tags(kept.h)[:, one.number, 0, 0].tolist()
        windows = as_tags(kept.conv)[:, one.number].tolist()
        held = [(state, tuple(window)) for state, window in zip(states, windows, strict=True)]
        assert held == [tuple(tags) for tags in expected], (
            f"snapshot {one.number} is not the state after its {one.depth} tokens"
        )

    def _check_adapters(self) -> None:
        for slot in self._model.adapters.slots:
            if slot.identity:
                found = self._model.network.adapters.contents([entry_of(slot.slot)])[0]
                assert found == self._adapters[slot.identity], (
                    f"adapter slot {slot.slot} holds another adapter than {slot.name}"
                )

    def _content(self, one: Any) -> int:
        return self._adapters[one.adapter_id]

    def _learn_adapters(self) -> None:
        for slot in self._model.adapters.slots:
            if slot.identity and slot.identity not in self._adapters:
                path = self._folders[slot.name, slot.generation]
                self._adapters[slot.identity] = scripted_adapter(path).content


@lru_cache(4096)
def _tags(tokens: tuple[int, ...], start: int, content: int) -> Tags:
    return tags_of(tokens, start + np.arange(len(tokens)), content)


@lru_cache(4096)
def _states(tokens: tuple[int, ...], content: int) -> Layers:
    layers = NO_TOKENS
    for token in tokens:
        layers = next_tags(layers, token, content)
    return layers
