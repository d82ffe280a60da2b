"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import tokenizers

from metrale_lab.errors import InvalidRequest
from metrale_lab.weights.token_bytes import Detokenizer

if TYPE_CHECKING:
    from metrale_lab.weights.chat import ChatTemplate, Message

# Special tokens that end a turn or a document, for files that name only one of them as EOS.
TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
)


class Tokenizer:
    """Text to token ids and back, with the model's special tokens and chat template.

    Special tokens written out in a text are taken as such, since chat templates write them.

    Attributes
    ----------
    vocab_size : int
        Tokens known here; the model's embedding may have more rows.
    eos_ids : frozenset of int
        Tokens that end a generation.
    special_ids : frozenset of int
        Control and unused tokens, which decode to nothing.
    strips_first_space : bool
        Whether a text leaves out the space that it would begin with.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bytes_of: Callable[[str], bytes],
        added: Sequence[tuple[int, str]],
        special_ids: Iterable[int],
        eos_ids: Iterable[int],
        strip_first_space: bool = False,
        chat_template: ChatTemplate | None = None,
    ) -> None:
        self._backend = backend
        self.strips_first_space = strip_first_space
        self._chat_template = chat_template
        self.special_ids = frozenset(special_ids)
        self.eos_ids = frozenset(eos_ids)
        self._shown = _table(backend, bytes_of, dict(added))
        self.vocab_size = len(self._shown)
        self._spoken = [
            b"" if token_id in self.special_ids else piece
            for token_id, piece in enumerate(self._shown)
        ]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with BOS (and EOS) where the model's files ask for them."""
        return self._encode(text, add_special_tokens=True)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation, ready for the assistant's answer."""
        return self._encode(self.apply_chat_template(messages), add_special_tokens=False)

    def apply_chat_template(self, messages: Sequence[Message]) -> str:
        """The conversation as text, up to where the assistant's answer begins.

        `InvalidRequest` if the model has no template, or its template refuses the messages.
        """
        if self._chat_template is None:
            raise InvalidRequest(
                "this model has no chat template; submit text with chat=False instead of messages."
            )
        return self._chat_template.render(messages)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some tokens; control tokens are left out, cut characters become U+FFFD."""
        stream = self.detokenizer()
        return "".join([stream.push(token_id) for token_id in ids]) + stream.flush()

    def detokenizer(self) -> Detokenizer:
        """A fresh stream from ids to text, whole characters only, control tokens left out."""
        return Detokenizer(self._spoken, self.strips_first_space)

    def pieces(self, ids: Iterable[int]) -> dict[int, bytes]:
        """UTF-8 that each of the ids adds to a text."""
        return {one: self._spoken[one] for one in ids if 0 <= one < self.vocab_size}

    def token_text(self, token_id: int) -> str:
        """One token for display: control tokens in full, bytes of a cut character as U+FFFD."""
        if not 0 <= token_id < self.vocab_size:
            return f"[{token_id}]"
        return self._shown[token_id].decode(errors="replace")

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids


def _table(
    backend: tokenizers.Tokenizer, bytes_of: Callable[[str], bytes], added: dict[int, str]
) -> list[bytes]:
    vocab: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocab.values(), default=-1) + 1)
    for token, token_id in vocab.items():
        table[token_id] = added[token_id].encode() if token_id in added else bytes_of(token)
    return table
