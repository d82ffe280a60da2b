"""Builds the tokenizer that a GGUF file's metadata describes."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import tokenizers
from tokenizers import AddedToken, models, processors

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.chat import ChatTemplate
from metrale_lab.weights.fields import Fields
from metrale_lab.weights.gguf_file import GgufFile
from metrale_lab.weights.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from metrale_lab.weights.token_bytes import byte_level_bytes
from metrale_lab.weights.tokenizer import TURN_ENDS, Tokenizer

_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
_MERGES = "tokenizer.ggml.merges"
_TEMPLATE = "tokenizer.chat_template"
_IDS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "eot_token": "tokenizer.ggml.eot_token_id",
    "eom_token": "tokenizer.ggml.eom_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
_ENDS = ("eos_token", "eot_token", "eom_token")


class _TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_WRITTEN_OUT = (_TokenType.UNKNOWN, _TokenType.CONTROL, _TokenType.USER_DEFINED)
_SILENT = (_TokenType.UNKNOWN, _TokenType.CONTROL, _TokenType.UNUSED)


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    """Byte-level BPE with the file's vocabulary, merges, cuts, special tokens and template."""
    fields = Fields(file.name, file.metadata)
    rule = _rule(fields)
    tokens = _texts(fields, _TOKENS)
    types = _types(fields, len(tokens))
    ids = {
        role: fields.integer(key, minimum=0, maximum=len(tokens) - 1)
        for role, key in _IDS.items()
        if key in fields
    }
    added = [(at, tokens[at]) for at, kind in enumerate(types) if kind in _WRITTEN_OUT]
    silent = {at for at, kind in enumerate(types) if kind in _SILENT}
    backend = _backend(fields, rule, tokens)
    backend.add_tokens(
        [AddedToken(text, special=at in silent, normalized=False) for at, text in added]
    )
    backend.post_processor = _ends(fields, rule, tokens, ids)
    return Tokenizer(
        backend,
        bytes_of=byte_level_bytes,
        added=added,
        special_ids=silent,
        eos_ids=_eos_ids(tokens, ids, silent),
        chat_template=_template(fields, tokens, ids),
    )


def _rule(fields: Fields) -> PreTokenizer:
    model = fields.text("tokenizer.ggml.model")
    if model != "gpt2":
        fields.refuse("tokenizer.ggml.model", model, "'gpt2', byte-level BPE")
    name = fields.text("tokenizer.ggml.pre")
    if name not in PRE_TOKENIZERS:
        fields.refuse("tokenizer.ggml.pre", name, f"one of {', '.join(sorted(PRE_TOKENIZERS))}")
    return PRE_TOKENIZERS[name]


def _texts(fields: Fields, name: str) -> list[str]:
    value = fields.values.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        fields.refuse(name, value, "an array of texts")
    return value


def _types(fields: Fields, count: int) -> list[int]:
    value = fields.values.get(_TYPES)
    if value is None:
        return [_TokenType.NORMAL] * count
    if not isinstance(value, np.ndarray) or len(value) != count:
        fields.refuse(_TYPES, value, f"an array of {count} integers, one per token")
    return [int(kind) for kind in value]


def _backend(fields: Fields, rule: PreTokenizer, tokens: list[str]) -> tokenizers.Tokenizer:
    merges = [_pair(fields, merge) for merge in _texts(fields, _MERGES)]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        fields.refuse(_TOKENS, f"{len(tokens) - len(vocab)} repeated", "each token once")
    try:
        model = models.BPE(vocab, merges, ignore_merges=rule.whole_words_first)
    except Exception as error:
        raise ModelFormatError(
            f"{fields.source}: {_MERGES} does not fit {_TOKENS} ({error}); "
            "expected merges whose parts and results are tokens."
        ) from None
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = rule.build()
    return backend


def _pair(fields: Fields, merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        fields.refuse(_MERGES, merge, "two tokens with a space between")
    return left, right


def _ends(
    fields: Fields, rule: PreTokenizer, tokens: list[str], ids: dict[str, int]
) -> processors.PostProcessor:
    """Adds BOS and EOS to a text, where the file or its kind of vocabulary says so."""
    wanted = {
        "bos_token": fields.flag("tokenizer.ggml.add_bos_token", default=rule.add_bos),
        "eos_token": fields.flag("tokenizer.ggml.add_eos_token", default=False),
    }
    for role, is_wanted in wanted.items():
        if is_wanted and role not in ids:
            raise ModelFormatError(
                f"{fields.source}: {_IDS[role]} is missing; expected the id of the token that "
                "every text gets."
            )
    used = [role for role, is_wanted in wanted.items() if is_wanted]
    parts = [role if role in used else "" for role in ("bos_token", "eos_token")]
    return processors.TemplateProcessing(
        single=" ".join(filter(None, (parts[0], "$A", parts[1]))),
        special_tokens=[(role, ids[role]) for role in used],
    )


def _eos_ids(tokens: list[str], ids: dict[str, int], special: set[int]) -> set[int]:
    named = {ids[role] for role in _ENDS if role in ids}
    return named | {at for at in special if tokens[at] in TURN_ENDS}


def _template(fields: Fields, tokens: list[str], ids: dict[str, int]) -> ChatTemplate | None:
    if _TEMPLATE not in fields:
        return None
    special_tokens = {role: tokens[token_id] for role, token_id in ids.items()}
    return ChatTemplate(f"{fields.source}: {_TEMPLATE}", fields.text(_TEMPLATE), special_tokens)
