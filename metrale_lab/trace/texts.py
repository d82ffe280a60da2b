"""Token ids as text, in a lab and in a file that no longer has the lab's tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """Decodes as the tokenizer does that it comes from, and knows some of its ids.

    Attributes
    ----------
    pieces : mapping of int to bytes
        UTF-8 that each id adds; a character may be cut.
    strips_first_space : bool
        Whether a text leaves out the space that it would begin with.
    """

    pieces: Mapping[int, bytes]
    strips_first_space: bool

    @classmethod
    def of(cls, tokenizer: Any, ids: Iterable[int]) -> Self | None:
        """What a tokenizer says of these ids; None when it cannot tell their bytes.

        Without a tokenizer (None) the text of ids is the ids.
        """
        if tokenizer is None:
            return cls({one: f" {one}".encode() for one in ids}, True)
        if not hasattr(tokenizer, "pieces"):
            return None
        return cls(tokenizer.pieces(ids), tokenizer.strips_first_space)

    def __call__(self, ids: Iterable[int]) -> str:
        """The text of ids, with U+FFFD for cut characters; an id that is not known adds nothing."""
        whole = b"".join(self.pieces.get(one, b"") for one in ids)
        return whole.removeprefix(b" " if self.strips_first_space else b"").decode(errors="replace")

    def as_json(self) -> dict[str, Any]:
        """As what JSON has."""
        pieces = {str(one): piece.decode("latin-1") for one, piece in self.pieces.items()}
        return {"pieces": pieces, "strips_first_space": self.strips_first_space}

    @classmethod
    def from_json(cls, found: Any) -> Self | None:
        """What `as_json` gave; None stays None."""
        if found is None:
            return None
        pieces = {int(one): str(piece).encode("latin-1") for one, piece in found["pieces"].items()}
        return cls(pieces, bool(found["strips_first_space"]))
