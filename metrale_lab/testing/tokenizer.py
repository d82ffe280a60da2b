"""One letter per token id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metrale_lab import arguments
from metrale_lab.arguments import integer, integers, refusal, shown
from metrale_lab.errors import InvalidRequest
from metrale_lab.testing.checks import end_ids

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"
UNKNOWN = "."  # the text of ids past the alphabet


class LetterTokenizer:
    """Token 0 is "a", 25 is "z", 26 is "A", 63 is "-".

    Parameters
    ----------
    eos_ids : iterable of int
        Ids that end a text.
    """

    vocab_size = len(ALPHABET)
    strips_first_space = False

    def __init__(self, eos_ids: Iterable[int] = ()) -> None:
        self.eos_ids = end_ids(eos_ids)

    def encode(self, text: str) -> list[int]:
        """One id per letter. InvalidRequest for a letter that is none of the alphabet's."""
        if unknown := [letter for letter in arguments.text("text", text) if letter not in ALPHABET]:
            raise InvalidRequest(
                f"the scripted model does not know {shown(unknown[0])}: allowed are the letters, "
                "the digits, + and -."
            )
        return [ALPHABET.index(letter) for letter in text]

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The contents of the messages, one after the other."""
        if isinstance(messages, Mapping | str) or not isinstance(messages, Sequence):
            raise refusal("messages", messages, "a list of messages")
        contents: list[Any] = [
            one["content"] if isinstance(one, Mapping) and "content" in one else None
            for one in messages
        ]
        return [one for content in contents for one in self.encode(content)]

    def decode(self, ids: Iterable[int]) -> str:
        """One letter per id."""
        return "".join(map(_letter, integers("ids", ids)))

    def token_text(self, token_id: int) -> str:
        """The letter of an id, "." past the alphabet."""
        return _letter(integer("token_id", token_id))

    def pieces(self, ids: Iterable[int]) -> dict[int, bytes]:
        """The letter of each id."""
        return {one: _letter(one).encode() for one in integers("ids", ids)}

    def detokenizer(self) -> LetterDetokenizer:
        """A fresh stream of letters."""
        return LetterDetokenizer()


class LetterDetokenizer:
    """Every token is a whole character."""

    def push(self, token_id: int) -> str:
        """The letter of the next token."""
        return _letter(token_id)

    def flush(self) -> str:
        """Nothing is ever kept back."""
        return ""


def _letter(token_id: int) -> str:
    return ALPHABET[token_id] if token_id < len(ALPHABET) else UNKNOWN
