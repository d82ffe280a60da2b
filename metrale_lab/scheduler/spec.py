"""What a request asks for, checked where it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from metrale_lab import arguments
from metrale_lab.counting import counted
from metrale_lab.errors import InvalidRequest, KvCacheExhausted, PromptTooLong

LogitsArray = np.ndarray[Any, np.dtype[Any]]
Processor = Callable[[Sequence[int], LogitsArray], LogitsArray]

MAX_LOGPROBS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """The validated arguments of `submit`; making one raises `InvalidRequest`.

    Attributes
    ----------
    token_ids : tuple of int
        The prompt.
    max_tokens, min_tokens : int
        Output tokens at most, and before which neither EOS nor a stop ends the text.
    temperature, top_k, top_p, seed
        Sampling in this order, then one draw; temperature 0 takes the likeliest token.
    stop : tuple of str
        Texts that end the output; they are not part of it.
    stop_token_ids : tuple of int
        Ids that end the output.
    ignore_eos : bool
        EOS does not end the output.
    timeout : float or None
        Seconds from submit.
    logprobs : int
        Alternatives whose log-probability is kept per token; 0 = none.
    processors : tuple of callables
        Each takes the output ids so far and the logits `[vocab]` float32, and returns logits.
    adapter : str or None
        Name of a loaded LoRA adapter. What it stands for is settled when the request is admitted.
    priority : int
        Larger is served first.
    name : str or None
        Name for people.
    """

    token_ids: Sequence[int]
    max_tokens: int = 64
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    timeout: float | None = None
    logprobs: int = 0
    processors: Sequence[Processor] = ()
    adapter: str | None = None
    priority: int = 0
    name: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            checked = _CHECKS[field.name](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, checked)
        if not self.token_ids:
            raise InvalidRequest("the prompt is empty. Give at least one token.")
        if self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}. "
                "Lower min_tokens or raise max_tokens."
            )

    def check_fits(
        self, vocab_size: int, max_seq_len: int, block_size: int, num_blocks: int
    ) -> None:
        """Refuse what this model can never serve.

        Raises
        ------
        InvalidRequest
            An id lies outside the vocabulary.
        PromptTooLong
            The prompt leaves no room for one output token.
        KvCacheExhausted
            The prompt and its first output token need more blocks than the whole pool has.
        """
        for field, ids in (("token_ids", self.token_ids), ("stop_token_ids", self.stop_token_ids)):
            if (outside := max(ids, default=0)) >= vocab_size:
                raise InvalidRequest(
                    f"{field} has id {outside}, the vocabulary has ids 0 to {vocab_size - 1}. "
                    "Encode the text with this model's tokenizer."
                )
        length = len(self.token_ids)
        if length >= max_seq_len:
            raise PromptTooLong(
                f"the prompt has {counted(length, 'token')}, and a sequence at most {max_seq_len} "
                "with at least one output token.",
                "Shorten the prompt or raise max_seq_len.",
            )
        needed = -(-(length + min(self.max_tokens, 2) - 1) // block_size)
        if num_blocks and needed > num_blocks:
            raise KvCacheExhausted(
                needed,
                num_blocks,
                num_blocks,
                f"A prompt of {counted(length, 'token')} can never "
                "fit. Shorten it or raise num_blocks.",
            )


def _integer(low: int, high: int = arguments.LARGEST_INT) -> Callable[[str, Any], int]:
    return lambda name, value: arguments.integer(name, value, low, high)


def _number(allowed: str, fits: Callable[[float], bool]) -> Callable[[str, Any], float]:
    return lambda name, value: arguments.number(name, value, allowed, fits)


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _ids(name: str, value: Any) -> tuple[int, ...]:
    given = value
    if callable(getattr(value, "tolist", None)) and not isinstance(value, type):
        given = value.tolist()
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | set | frozenset):
        raise arguments.refusal(name, value, "a sequence of token ids")
    one = arguments.integer
    ids = tuple(one(f"{name}[{number}]", token) for number, token in enumerate(given))
    return tuple(sorted(ids)) if isinstance(given, set | frozenset) else ids


def _texts(name: str, value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else () if value is None else value
    if not isinstance(given, Sequence) or isinstance(given, bytes) or not all(map(_is_word, given)):
        raise arguments.refusal(name, value, "a text or several, none of them empty")
    return tuple(arguments.text(name, one) for one in given)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _callables(name: str, value: Any) -> tuple[Processor, ...]:
    given = (value,) if callable(value) else value
    if not isinstance(given, Sequence) or not all(map(callable, given)):
        raise arguments.refusal(name, value, "callables (token_ids, logits) -> logits")
    return tuple(given)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "token_ids": _ids,
    "max_tokens": _integer(1),
    "min_tokens": _integer(0),
    "temperature": _number("a finite number of at least 0", lambda x: x >= 0),
    "top_k": _integer(0),
    "top_p": _number("a number from 0 to 1", lambda x: 0 <= x <= 1),
    "seed": _optional(_integer(0)),
    "stop": _texts,
    "stop_token_ids": _ids,
    "ignore_eos": arguments.flag,
    "timeout": _optional(_number("a number of seconds above 0, or None", lambda x: x > 0)),
    "logprobs": _integer(0, MAX_LOGPROBS),
    "processors": _callables,
    "adapter": _optional(arguments.text),
    "priority": _integer(-arguments.LARGEST_INT),
    "name": _optional(arguments.text),
}
