"""Builds the tokenizer of a Hugging Face folder from its `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.fields import Fields
from metrale_lab.weights.folder_config import read_json
from metrale_lab.weights.token_bytes import byte_level_bytes, metaspace_bytes
from metrale_lab.weights.tokenizer import TURN_ENDS, Tokenizer

if TYPE_CHECKING:
    from metrale_lab.weights.chat import ChatTemplate

_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")


def tokenizer_from_folder(folder: Path, vocab_size: int) -> Tokenizer:
    """Tokenizer with its special tokens and chat template; ids stay below `vocab_size`."""
    fields = Fields(f"{folder.name}/tokenizer.json", read_json(folder / "tokenizer.json"))
    backend = _backend(folder / "tokenizer.json", fields)
    vocab: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    if not vocab or max(vocab.values()) >= vocab_size:
        largest = max(vocab.values(), default=None)
        fields.refuse("its largest token id", largest, f"0 to {vocab_size - 1}, the embedding's")
    added = backend.get_added_tokens_decoder()
    special = [token_id for token_id, token in added.items() if token.special]
    names = _special_names(folder)
    bytes_of, strips = _decoding(fields)
    return Tokenizer(
        backend,
        bytes_of=bytes_of,
        added=[(token_id, token.content) for token_id, token in added.items()],
        special_ids=special,
        eos_ids=_eos_ids(folder, vocab, names, vocab_size)
        | {token_id for token_id in special if added[token_id].content in TURN_ENDS},
        strip_first_space=strips,
        chat_template=_template(folder, names),
    )


def _backend(path: Path, fields: Fields) -> tokenizers.Tokenizer:
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelFormatError(
            f"{fields.source} is not a tokenizer ({error}); expected one of the tokenizers library."
        ) from None
    backend.no_padding()
    backend.no_truncation()
    return backend


def _decoding(fields: Fields) -> tuple[Callable[[str], bytes], bool]:
    """How tokens spell bytes, and whether a text's first space is dropped."""
    decoder = fields.mapping("decoder")
    steps = decoder.values.get("decoders") if decoder.values.get("type") == "Sequence" else None
    kinds: dict[str, Any] = {
        str(step.get("type")): step
        for step in (steps if isinstance(steps, list) else [decoder.values])
        if isinstance(step, dict)
    }
    if "ByteLevel" in kinds:
        return byte_level_bytes, False
    if "Metaspace" in kinds:
        return metaspace_bytes, kinds["Metaspace"].get("prepend_scheme", "always") != "never"
    if "ByteFallback" in kinds:
        return metaspace_bytes, "Strip" in kinds
    return fields.refuse("decoder", sorted(kinds), "ByteLevel, Metaspace or ByteFallback")


def _special_names(folder: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        if not (folder / file).exists():
            continue
        values = read_json(folder / file)
        for role in _ROLES:
            value = values.get(role)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                names[role] = text
    return names


def _eos_ids(
    folder: Path, vocab: dict[str, int], names: dict[str, str], vocab_size: int
) -> set[int]:
    """What generation_config.json says, else config.json; and the tokenizer's own EOS."""
    ids = {vocab[names["eos_token"]]} if names.get("eos_token") in vocab else set()
    for file in ("generation_config.json", "config.json"):
        if not (folder / file).exists():
            continue
        fields = Fields(f"{folder.name}/{file}", read_json(folder / file))
        for part in (fields, fields.mapping("text_config")):
            if "eos_token_id" in part:
                return ids | _id_list(part, "eos_token_id", vocab_size)
    return ids


def _id_list(fields: Fields, name: str, vocab_size: int) -> set[int]:
    value = fields.values[name]
    listed = value if isinstance(value, list) else [value]
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < vocab_size:
            fields.refuse(name, value, f"token ids from 0 to {vocab_size - 1}")
    return set(listed)


def _template(folder: Path, names: dict[str, str]) -> ChatTemplate | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        try:
            return _parsed(f"{folder.name}/{file.name}", file.read_text("utf-8"), names)
        except (OSError, UnicodeDecodeError) as error:
            raise ModelFormatError(
                f"{folder.name}/{file.name} cannot be read ({error}); expected a Jinja template."
            ) from None
    config = folder / "tokenizer_config.json"
    if not config.exists():
        return None
    fields = Fields(f"{folder.name}/{config.name}", read_json(config))
    text = fields.values.get("chat_template")
    if isinstance(text, list):  # several named ones
        text = next(
            (
                one.get("template")
                for one in text
                if isinstance(one, dict) and one.get("name") == "default"
            ),
            None,
        )
    if text is None:
        return None
    if not isinstance(text, str):
        fields.refuse("chat_template", text, "a Jinja template, or a list with one named default")
    return _parsed(f"{fields.source}: chat_template", text, names)


def _parsed(source: str, text: str, names: dict[str, str]) -> ChatTemplate:
    from metrale_lab.weights.chat import ChatTemplate

    return ChatTemplate(source, text, names)
