"""One letter per token id."""

from __future__ import annotations

from collections.abc import Sequence

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"


class ToyTokenizer:
    """Token 0 is "a"; the EOS ids have no text of their own in outputs that they end."""

    vocab_size = len(ALPHABET)

    def __init__(self, eos_ids: frozenset[int] = frozenset()) -> None:
        self.eos_ids = eos_ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self.token_text, ids))

    def encode(self, text: str) -> list[int]:
        return [ALPHABET.index(letter) for letter in text]

    def token_text(self, token_id: int) -> str:
        return ALPHABET[token_id] if token_id < len(ALPHABET) else "."

    def detokenizer(self) -> ToyDetokenizer:
        return ToyDetokenizer()


class ToyDetokenizer:
    """Every token is a whole character."""

    def push(self, token_id: int) -> str:
        return ALPHABET[token_id] if token_id < len(ALPHABET) else "."

    def flush(self) -> str:
        return ""
