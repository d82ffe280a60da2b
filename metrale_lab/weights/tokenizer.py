"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """Turns a stream of token ids into text, whole characters only."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class Tokenizer(Protocol):
    """Text to token ids and back, with the model's chat template."""

    eos_ids: frozenset[int]
    vocab_size: int

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]: ...

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]]) -> str: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def detokenizer(self) -> Detokenizer: ...

    def token_text(self, token_id: int) -> str: ...
