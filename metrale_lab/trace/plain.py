"""A state as plain values that JSON holds, and back."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from metrale_lab.trace.state import BlockState, LabState

_MARKS = ("epoch",)  # of who may change an object: nothing that a reader sees


def plain_state(state: LabState) -> dict[str, Any] | None:
    """The state, with those blocks alone that were ever used; None when it says nothing."""
    fresh = LabState(state.num_blocks, state.block_size, ended_kept=state.ended_kept)
    if state == fresh:
        return None
    used = [one for one, new in zip(state.blocks, fresh.blocks, strict=True) if one != new]
    return {**_plain(state), "blocks": _plain(used)}


def state_of(plain: dict[str, Any]) -> LabState:
    """The state that `plain_state` made plain; any exception when it is another's."""
    state: LabState = _typed(LabState, {**plain, "blocks": []})
    for block in _typed(list[BlockState], plain["blocks"]):
        state.blocks[block.block] = block
    state.counts = _typed(dict[str, int], plain["counts"])  # of these blocks, not of fresh ones
    return state


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = (one.name for one in dataclasses.fields(value) if one.name not in _MARKS)
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):  # JSON has no keys but strings
        return [[_plain(key), _plain(one)] for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _typed(kind: Any, plain: Any) -> Any:
    """The value of that type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, tuple, list, dict):
        return _several(origin, inner, plain)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        kinds = _kinds(kind)
        return kind(**{name: _typed(kinds[name], one) for name, one in plain.items()})
    if isinstance(kind, type) and issubclass(kind, tuple):  # a named one
        return kind(*_several(tuple, tuple(_kinds(kind).values()), plain))
    if kind is float:  # JSON may have made it whole
        return float(plain)
    if not (plain is None if kind is None else isinstance(plain, kind)):
        raise TypeError(f"{plain!r} is not {kind}")
    return plain


def _several(origin: Any, inner: tuple[Any, ...], plain: Any) -> Any:
    if origin is UnionType:
        return None if plain is None else _typed(inner[0], plain)
    if origin is dict:
        return {_typed(inner[0], key): _typed(inner[1], one) for key, one in plain}
    kinds = inner[:1] * len(plain) if origin is list or inner[1:] == (...,) else inner
    return origin(_typed(kind, one) for kind, one in zip(kinds, plain, strict=True))


@cache
def _kinds(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
