"""Chat templates: a conversation as the text that the model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from metrale_lab.arguments import shown
from metrale_lab.errors import InvalidRequest, ModelFormatError

Message = Mapping[str, Any]


class ChatTemplate:
    """A Jinja template, run in a sandbox with the names that Hugging Face templates expect.

    Parameters
    ----------
    source : str
        File and field, for messages.
    text : str
        The template; `ModelFormatError` when it does not parse.
    special_tokens : mapping of str to str
        `bos_token`, `eos_token` and the like, as the template may use them.
    """

    def __init__(self, source: str, text: str, special_tokens: Mapping[str, str]) -> None:
        self.text = text
        self._names = dict(special_tokens)
        try:
            self._template = _environment().from_string(text)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelFormatError(
                f"{source} does not parse ({error}); expected a Jinja template."
            ) from None

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The conversation as text; `InvalidRequest` when the template refuses it."""
        check_messages(messages)
        try:
            return self._template.render(
                self._names
                | {
                    "messages": [dict(message) for message in messages],
                    "add_generation_prompt": add_generation_prompt,
                    "tools": None,
                    "documents": None,
                }
            )
        except Exception as error:
            roles = ", ".join(dict.fromkeys(shown(message["role"]) for message in messages))
            raise InvalidRequest(
                f"the model's chat template refuses these messages, of the roles {roles}: {error}. "
                "Change the messages, or submit text."
            ) from error


def check_messages(messages: object) -> None:
    """Refuse what is not a list of `{"role": ..., "content": ...}` with texts and a named role.

    Which roles there are is the template's to say.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise InvalidRequest(f"messages is {shown(messages)}; expected a list of role and content.")
    for number, message in enumerate(messages):
        known = isinstance(message, Mapping)
        for field in ("role", "content"):
            if not known or not isinstance(message.get(field), str):
                raise InvalidRequest(
                    f"message {number} is {shown(message)}; expected a text as its {field}."
                )
        if not message["role"].strip():
            raise InvalidRequest(
                f"message {number} is {shown(message)}; expected a role, such as 'user'."
            )


class _GenerationBlocks(Extension):
    """`{% generation %}` marks the assistant's words for training; here its body stands as is."""

    tags = {"generation"}  # noqa: RUF012 (the name and type that jinja2 gives)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    # jinja2's own filter escapes for HTML
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
