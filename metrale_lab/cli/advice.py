"""What to do about an error where there are options and files, and no Python."""

from __future__ import annotations

from metrale_lab.errors import (
    AdapterNotLoaded,
    Advised,
    KvCacheExhausted,
    PoolsTooLarge,
    PromptTooLong,
)

ADVICE: dict[type[Advised], str] = {
    AdapterNotLoaded: "Load it with --adapter NAME=PATH.",
    KvCacheExhausted: "Shorten the prompt or lower max_tokens.",
    PoolsTooLarge: "Free memory, or give a smaller --model.",
    PromptTooLong: "Shorten the prompt.",
}


def told(error: BaseException) -> str:
    """The error in one text, with advice that a command line can follow."""
    if isinstance(error, Advised) and type(error) in ADVICE:
        return f"{error.fault} {ADVICE[type(error)]}"
    return str(error)
