"""From what a user gives as a prompt to token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metrale_lab import arguments
from metrale_lab.errors import InvalidRequest


def prompt_ids(tokenizer: Any, prompt: Any, token_ids: Any, chat: bool) -> Sequence[int]:
    """The prompt as ids, from a text, chat messages or ids.

    Raises
    ------
    InvalidRequest
        Both or neither are given, the types do not fit, or there is no tokenizer for a text.
    """
    chat = arguments.flag("chat", chat)
    if (prompt is None) == (token_ids is None):
        raise InvalidRequest("give either prompt or token_ids: one of them, not both.")
    if token_ids is not None:
        if chat:
            raise InvalidRequest("chat=True takes a text or messages as prompt, not token_ids.")
        ids: Sequence[int] = token_ids
        return ids
    if tokenizer is None:
        raise InvalidRequest("this model has no tokenizer: give token_ids instead of prompt.")
    if chat:
        ids = tokenizer.encode_chat(_messages(prompt))
    elif isinstance(prompt, str):
        ids = tokenizer.encode(_encodable(prompt))
    else:
        raise InvalidRequest(
            f"prompt is of type {type(prompt).__name__}: give a text, or messages with chat=True."
        )
    return ids


def _messages(prompt: Any) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": _encodable(prompt)}]
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes) or not prompt:
        raise InvalidRequest("messages: a text, or a list of {'role': …, 'content': …} is allowed.")
    return [_message(number, one) for number, one in enumerate(prompt)]


def _message(number: int, message: Any) -> dict[str, str]:
    texts = [message.get(key) if isinstance(message, dict) else None for key in ("role", "content")]
    if not all(isinstance(text, str) for text in texts) or not str(texts[0]).strip():
        raise InvalidRequest(
            f"message {number} is {arguments.shown(message)}: "
            "{'role': text, 'content': text} is allowed, such as 'user' for the role."
        )
    return {"role": _encodable(str(texts[0])), "content": _encodable(str(texts[1]))}


def _encodable(text: str) -> str:
    return arguments.text("prompt", text)
