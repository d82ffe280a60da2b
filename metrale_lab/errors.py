"""Every error that the package raises on purpose.

Each message says three things: what was asked, what there is, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metrale_lab.counting import counted


def printable(text: str) -> str:
    """The text with everything escaped that is no line break, tab or printable character."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text)


class MetraleError(Exception):
    """Base of all errors of this package; whatever they name, their message can be printed."""

    def __str__(self) -> str:
        return printable(super().__str__())


class Advised(MetraleError):
    """An error that is met in several places, each with its own means against it.

    Attributes
    ----------
    fault, advice : str
        What was asked and what there is; what to do about it in Python.
    """

    def __init__(self, fault: str, advice: str) -> None:
        self.fault, self.advice = fault, advice
        super().__init__(f"{fault} {advice}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fault, self.advice)


class InvalidConfig(MetraleError, ValueError):
    """A configuration field is unknown or out of range."""


class PoolsTooLarge(Advised, InvalidConfig):
    """The memory pools would take more than is free."""


class InvalidRequest(MetraleError, ValueError):
    """A request has an argument that no engine could serve."""


class PromptTooLong(Advised, InvalidRequest):
    """A prompt leaves no room for a single output token."""


class ModelFormatError(MetraleError, ValueError):
    """A model file is wrong, cut off, or of a kind that the engine does not know."""


class ModelNotFound(MetraleError, LookupError):
    """No built-in model, file or folder has the given name."""


class FetchFailed(MetraleError):
    """A model could not be brought to this machine."""


class WriteFailed(MetraleError, OSError):
    """A file could not be written; what was there before is still there."""


class KvCacheExhausted(Advised):
    """The block pool has too few blocks, counting what could be evicted.

    Attributes
    ----------
    needed, free, total : int
        Blocks asked for, blocks on the free list, usable blocks of the pool.
    """

    def __init__(self, needed: int, free: int, total: int, hint: str = "") -> None:
        self.needed, self.free, self.total = needed, free, total
        advice = hint or "Raise num_blocks, lower max_tokens, or send fewer requests at once."
        blocks = counted(needed, "block")
        fault = f"KV cache exhausted: {blocks} needed, {free} free of {total}."
        super().__init__(fault, advice)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.needed, self.free, self.total, self.advice)


class SlotPoolExhausted(MetraleError):
    """All sequence slots are taken."""

    def __init__(self, max_slots: int) -> None:
        self.max_slots = max_slots
        super().__init__(
            f"slot pool exhausted: none of {counted(max_slots, 'slot')} is free. "
            "Free a sequence, or raise max_batch (hybrid models: ssm_slots)."
        )

    def __reduce__(self) -> tuple[type[SlotPoolExhausted], tuple[int]]:
        return type(self), (self.max_slots,)


class SlotBusy(MetraleError):
    """A slot was asked for that a live sequence owns."""

    def __init__(self, slot: int, owner: int) -> None:
        self.slot, self.owner = slot, owner
        super().__init__(
            f"slot {slot} is owned by sequence {owner}. "
            "Compact onto a free slot, or retire its owner first."
        )

    def __reduce__(self) -> tuple[type[SlotBusy], tuple[int, int]]:
        return type(self), (self.slot, self.owner)


class SwapUnsupported(MetraleError, NotImplementedError):
    """This model cannot save or restore sequences."""


class SwapFormatError(MetraleError, ValueError):
    """A saved sequence is damaged, or belongs to another model."""


class DeviceFeedUnsupported(MetraleError, NotImplementedError):
    """This model has no device-resident token feed."""

    def __init__(self, method: str) -> None:
        self.method = method
        super().__init__(
            f"{method}: this model has no device token feed. "
            "Ask supports_device_token_feed() first, or use scheduler='sync'."
        )

    def __reduce__(self) -> tuple[type[DeviceFeedUnsupported], tuple[str]]:
        return type(self), (self.method,)


class DeviceFault(MetraleError, RuntimeError):
    """Work on a device stream failed; `__cause__` is what it raised."""


class AdapterError(MetraleError):
    """A LoRA adapter is unknown, malformed, or does not fit the model."""


class AdapterNotLoaded(Advised, AdapterError):
    """No adapter is loaded under the name that was asked for."""


class ThreadNotBound(MetraleError, RuntimeError):
    """The model was used on a thread that never called bind_gpu_to_thread()."""


class EngineRunning(MetraleError, RuntimeError):
    """The call needs a paused engine."""


class EngineBusy(MetraleError, RuntimeError):
    """The call needs an engine without requests in it."""


class EngineStopped(MetraleError, RuntimeError):
    """The engine was closed."""


class LabPaused(MetraleError, RuntimeError):
    """Waiting would never end: the lab was paused by the same code that waits."""


class TraceIncomplete(MetraleError):
    """Events of the asked range were overwritten.

    Attributes
    ----------
    first, last, dropped : int
        First and last event number that is still there, and how many are gone.
    """

    def __init__(self, first: int, last: int, dropped: int) -> None:
        self.first, self.last, self.dropped = first, last, dropped
        super().__init__(
            f"the record holds events {first} to {last}; {dropped} earlier ones were overwritten. "
            "Raise record_events, or ask for a later range."
        )

    def __reduce__(self) -> tuple[type[TraceIncomplete], tuple[int, int, int]]:
        return type(self), (self.first, self.last, self.dropped)


class GoldenMismatch(MetraleError, AssertionError):
    """A run differs from its golden text."""


class ExpectationFailed(MetraleError, AssertionError):
    """A sentence given to `lab.expect` does not hold.

    Attributes
    ----------
    sentence : str
        What was expected.
    actual : object
        What was found.
    rows : pandas.DataFrame or None
        The table rows that it was read from.
    picture : matplotlib.figure.Figure or None
        The plot that shows it.
    """

    def __init__(
        self, sentence: str, actual: Any = None, rows: Any = None, picture: Any = None
    ) -> None:
        self.sentence, self.actual = sentence, actual
        self.rows, self.picture = rows, picture
        table = "" if rows is None or not len(rows) else f"\n{_whole(rows)}"
        super().__init__(f"expected: {sentence}\n   found: {actual}{table}")

    def __reduce__(self) -> tuple[type[ExpectationFailed], tuple[str, Any, Any]]:
        return type(self), (self.sentence, self.actual, self.rows)


def _whole(rows: Any) -> str:
    """A table with the columns that pandas would leave out where the terminal is narrow."""
    return str(rows.to_string(max_rows=20, line_width=100))


def _short(sentence: str, most: int = 200) -> str:
    return repr(sentence if len(sentence) <= most else sentence[:most] + "…")


class ExpectSyntaxError(MetraleError, ValueError):
    """A sentence given to `lab.expect` is none of those it knows, or names a request not given."""

    def __init__(self, sentence: str, known: Sequence[str] = (), missing: str = "") -> None:
        self.sentence, self.known, self.missing = sentence, tuple(known), missing
        fault = f"expect does not understand {_short(sentence)}."
        if missing:
            fault = f"expect: {_short(sentence)} names {{{missing}}}; give {missing}=a request."
        listing = "".join(f"\n  {one}" for one in known)
        super().__init__(f"{fault} It knows:{listing}")

    def __reduce__(self) -> tuple[type[ExpectSyntaxError], tuple[str, tuple[str, ...], str]]:
        return type(self), (self.sentence, self.known, self.missing)
