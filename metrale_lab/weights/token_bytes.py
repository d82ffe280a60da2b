"""The bytes behind each token, and text from a stream of them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence


def byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level vocabularies write bytes (as GPT-2's encoder does).

    Printable Latin-1 characters stand for themselves; the other 68 bytes follow from U+0100 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return alphabet | {chr(256 + at): byte for at, byte in enumerate(others)}


_ALPHABET = byte_alphabet()
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_bytes(token: str) -> bytes:
    """Bytes of a byte-level token; one with a character outside the alphabet is its own UTF-8."""
    try:
        return bytes([_ALPHABET[character] for character in token])
    except KeyError:
        return token.encode()


def metaspace_bytes(token: str) -> bytes:
    """Bytes of a SentencePiece token: `<0xNN>` is a byte, U+2581 a space."""
    single = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(single[1], 16)]) if single else token.replace("▁", " ").encode()


class Detokenizer:
    """Turns token ids into text as they come; a character appears when its last byte is there.

    Bytes that can never become UTF-8 become U+FFFD, as does a cut character at `flush`.
    """

    def __init__(self, token_bytes: Sequence[bytes], strip_first_space: bool) -> None:
        self._token_bytes = token_bytes
        self._strip = strip_first_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes, often but not always its own."""
        piece = self._token_bytes[token_id] if 0 <= token_id < len(self._token_bytes) else b""
        if self._strip and piece:
            piece, self._strip = piece.removeprefix(b" "), False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What a cut character left behind: U+FFFD, or nothing; then as new."""
        return self._decoder.decode(b"", final=True)
