"""Made-up adapters: a name or path instead of a folder, a number instead of factors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from metrale_lab.arguments import refusal, text
from metrale_lab.engine.lora_pools import entry_of
from metrale_lab.errors import AdapterError, InvalidConfig
from metrale_lab.testing.tags import POISON


@dataclass(frozen=True, slots=True)
class ScriptedAdapter:
    """What `read_adapter` of a `TagModel` returns for any path.

    `content` goes into every tag that the adapter's rows leave.
    """

    source_name: str
    content: int
    rank: int = 1
    nbytes: int = 8


def scripted_adapter(path: object) -> ScriptedAdapter:
    """The adapter of a path: another content for each."""
    name = str(path)
    digest = blake2b(name.encode(errors="surrogateescape"), digest_size=7).digest()
    return ScriptedAdapter(name, 1 + int.from_bytes(digest))


def by_name(adapters: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    """Names and paths; a name alone is its own path. InvalidConfig when they are no texts."""
    if isinstance(adapters, str | bytes) or not isinstance(adapters, Iterable):
        raise refusal("adapters", adapters, "names, or names and texts", InvalidConfig)
    try:
        pairs = (
            adapters.items() if isinstance(adapters, Mapping) else [(one, one) for one in adapters]
        )
    except TypeError:  # an array without dimensions
        raise refusal("adapters", adapters, "names, or names and texts", InvalidConfig) from None
    return {
        text("adapters", name, InvalidConfig): text("adapters", path, InvalidConfig)
        for name, path in pairs
    }


class TagAdapters:
    """The content of each adapter slot; an empty one holds poison.

    Attributes
    ----------
    writes : Counter of int
        How often each slot was written, ever.
    """

    def __init__(self) -> None:
        self.writes: Counter[int] = Counter()
        self._contents = np.zeros(1, np.uint64)  # of entry 0, which is no adapter

    @property
    def nbytes(self) -> int:
        """Bytes of all entries, none before the first load."""
        return self._contents.nbytes if len(self._contents) > 1 else 0

    def check(self, adapter: ScriptedAdapter) -> None:
        """AdapterError unless it is a made-up adapter."""
        if not isinstance(adapter, ScriptedAdapter):
            raise refusal("adapter", adapter, "what read_adapter() returned", AdapterError)

    def fits(self, adapter: ScriptedAdapter, slots: int) -> bool:
        """Whether there are so many slots."""
        return entry_of(slots - 1) < len(self._contents)

    def grow(self, adapter: ScriptedAdapter, slots: int) -> Callable[[], None]:
        """Make that many slots, once the result is called."""

        def replace() -> None:
            fresh = np.full(entry_of(slots - 1) + 1, POISON)
            fresh[: len(self._contents)] = self._contents
            self._contents = fresh

        return replace

    def clear(self) -> None:
        """Hold no slot."""
        self._contents = np.zeros(1, np.uint64)

    def write(self, slot: int, adapter: ScriptedAdapter) -> None:
        """Put an adapter into a slot."""
        self.writes[slot] += 1
        self._contents[entry_of(slot)] = adapter.content

    def poison(self, slot: int) -> None:
        """Empty a slot."""
        self.writes[slot] += 1
        self._contents[entry_of(slot)] = POISON

    def contents(self, entries: Any) -> Any:
        """What the rows' adapters are, 0 = none; AssertionError for an empty slot."""
        found = self._contents[entries]
        assert not (found == POISON).any(), f"a row reads an empty adapter slot: {entries}"
        return found
