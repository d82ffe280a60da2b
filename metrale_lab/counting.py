"""Numbers with the thing that they count."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number and its noun, in the plural unless it is one: "1 block", "0 free blocks"."""
    return f"{number} {noun if number == 1 else noun + ('es' if noun.endswith('ch') else 's')}"
