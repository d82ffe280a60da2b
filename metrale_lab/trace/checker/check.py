"""All laws, checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from metrale_lab.trace.checker import adapters, blocks, prefix, slots, steps, whole
from metrale_lab.trace.checker.applies import NOT_APPLICABLE, why_not
from metrale_lab.trace.checker.memory import Memory
from metrale_lab.trace.checker.world import World

Law = Callable[[World], Iterator[str]]

LAWS: dict[str, Law] = {
    "I1": blocks.i1,
    "I2": blocks.i2,
    "I3": blocks.i3,
    "I4": steps.i4,
    "I5": steps.i5,
    "I6": blocks.i6,
    "I7": steps.i7,
    "I8": blocks.i8,
    "I9": prefix.i9,
    "I10": prefix.i10,
    "I11": prefix.i11,
    "I12": prefix.i12,
    "I13": slots.i13,
    "I14": adapters.i14,
    "I15": whole.i15,
    "I16": steps.i16,
    "I17": steps.i17,
    "I18": steps.i18,
    "I19": steps.i19,
    "I20": prefix.i20,
    "I21": whole.i21,
    "I22": whole.i22,
}

# What of a law the live structures cannot show; the test suite shows it.
LEFT_TO_TESTS = {
    "I4": "read is what steps in flight were sent, and prompts settle within their tick; what the "
    "device made of it, the tests show",
    "I6": "read is what the host sent; what the device made of it, the tests show",
    "I7": "told is whether tables keep their blocks, and these their lives; that the device wrote "
    "them, the tests show",
    "I8": "the host's copy of the padded tables is read; that it arrives, the tests show",
    "I9": "told is what each block was stored for; what K and V are in it, the tests show",
    "I14": "told is whether a slot in use was written; that its factors are right, the tests show",
    "I15": "comparing with the oracle is left to the tests",
    "I17": "the id in a feed cell is the device's; that it is the one before, the tests show",
    "I18": "told is which step has which slot; what the device writes there, the tests show",
    "I20": "that a retried admission looks up once, the tests show",
}
TOLD = 3  # violations of a law that its detail spells out


class LawResult(NamedTuple):
    """One law now.

    Attributes
    ----------
    law : str
        I1 to I22.
    holds : bool
    detail : str
        What breaks it, in words; when it holds, what it says; "not applicable: ..." and why, when
        nothing here could break it.
    """

    law: str
    holds: bool
    detail: str


def check(model: Any, scheduler: Any = None, memory: Memory | None = None) -> list[LawResult]:
    """Check every law over the live structures; on the engine's thread, between two ticks.

    With the `memory` of the check before, also what may not have changed since: counters, blocks
    in use, delivered tokens. Raises nothing: a law that cannot be read is broken. Costs the
    blocks, the table entries and the tokens of live sequences. See `World` for what is read.
    """
    world = World(model, scheduler, Memory() if memory is None else memory)
    with suppress(Exception):  # what cannot be read breaks its law below
        world.memory.forget_if_reset(world.allocator.resets)
    results = [_result(name, law, world) for name, law in LAWS.items()]
    with suppress(Exception):
        world.memory.remember(world)
    return results


def sentence(law: str) -> str:
    """What a law says."""
    return (LAWS[law].__doc__ or "").split("\n\n")[0].strip()


def _result(name: str, law: Law, world: World) -> LawResult:
    try:
        broken = list(law(world))
    except Exception as error:
        return LawResult(name, False, f"cannot be read: {type(error).__name__}: {error}")
    if broken:
        more = f"; and {len(broken) - TOLD} more" if len(broken) > TOLD else ""
        return LawResult(name, False, "; ".join(islice(broken, TOLD)) + more)
    if reason := why_not(name, world):
        return LawResult(name, True, NOT_APPLICABLE + reason)
    note = LEFT_TO_TESTS.get(name) or slots.note(name, world)
    return LawResult(name, True, sentence(name) + (f" ({note})" if note else ""))
