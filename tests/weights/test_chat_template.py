"""Chat templates render as in transformers, in a sandbox, with errors for people."""

from __future__ import annotations

import json

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from metrale_lab.errors import InvalidRequest, ModelFormatError
from metrale_lab.weights.chat import ChatTemplate
from metrale_lab.weights.folder_tokenizer import tokenizer_from_folder
from tests import tiny_models

MESSAGES = [
    {"role": "system", "content": "Sei kurz."},
    {"role": "user", "content": "Grüße & <b>\n"},
    {"role": "assistant", "content": "{{ no }}"},
]
TEMPLATES = {
    "chatml": tiny_models.CHAT_TEMPLATE,
    "blocks on their own lines": (
        "{%- for m in messages -%}\n    {% if m.role == 'user' %}\n  U: {{ m.content | trim }}\n"
        "    {% elif m.role == 'system' %}\n{% continue %}\n    {% endif %}\n{% endfor %}\n"
    ),
    "json": "{{ messages | tojson }}|{{ messages[0] | tojson(indent=2) }}",
    "special tokens": "{{ bos_token }}{{ messages[1]['content'] }}{{ eos_token }}",
    "loop and namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% if ns.n > 2 %}{% break %}{% endif %}{{ m['role'] }}{% endfor %}{{ ns.n }}"
    ),
    "generation block": (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    ),
    "tools": "{% if tools %}tools{% else %}none{% endif %}{% if documents is none %}!{% endif %}",
    "year": "{{ strftime_now('%Y') }}",
}


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_rendering_equals_transformers(name, prompt):
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    expected = render_jinja_template(
        conversations=[MESSAGES],
        chat_template=TEMPLATES[name],
        add_generation_prompt=prompt,
        **tokens,
    )[0][0]
    template = ChatTemplate("file: field", TEMPLATES[name], tokens)
    assert template.render(MESSAGES, add_generation_prompt=prompt) == expected


def test_a_template_may_refuse():
    template = ChatTemplate("f", "{{ raise_exception('roles must alternate') }}", {})
    said = r"of the roles 'system', 'user', 'assistant': roles must alternate\. "
    with pytest.raises(InvalidRequest, match=said):
        template.render(MESSAGES)


def test_a_role_is_the_templates_to_accept():
    text = "{% if messages[0].role != 'user' %}{{ raise_exception('no') }}{% endif %}yes"
    template = ChatTemplate("f", text, {})
    assert template.render([{"role": "user", "content": ""}]) == "yes"
    with pytest.raises(InvalidRequest, match="of the roles 'wizard': no"):
        template.render([{"role": "wizard", "content": ""}] * 2)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ range(10**9) | list }}",
        "{{ messages[99].content.upper() }}",
        "{{ 1 / 0 }}",
    ],
)
def test_the_sandbox_holds_and_failures_are_invalid_requests(text):
    template = ChatTemplate("f", text, {})
    try:
        rendered = template.render(MESSAGES)
    except InvalidRequest:
        return
    assert rendered == ""  # an unsafe attribute is undefined


@pytest.mark.parametrize("text", ["{% for %}", "{{ x", "{% unknown %}", "{% generation %}"])
def test_a_broken_template_is_a_wrong_file(text):
    with pytest.raises(ModelFormatError, match=r"^file: field does not parse"):
        ChatTemplate("file: field", text, {})


@pytest.mark.parametrize(
    "messages",
    [
        "hello",
        [],
        {},
        ["hello"],
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": "user", "content": None}],
        [{"role": 1, "content": "x"}],
        [{"role": "", "content": "x"}],
        [{"role": " \n", "content": "x"}],
        None,
    ],
)
def test_messages_have_a_role_and_a_content(messages):
    with pytest.raises(InvalidRequest, match="expected a"):
        ChatTemplate("f", "x", {}).render(messages)


def test_where_folders_keep_their_template(tmp_path):
    tiny_models.write_tokenizer(tmp_path)
    config = tmp_path / "tokenizer_config.json"

    def rendered():
        return tokenizer_from_folder(tmp_path, 320).apply_chat_template(MESSAGES)

    assert rendered().startswith("<|im_start|>system\nSei kurz.")
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d{{bos_token}}"}]
    config.write_text(
        json.dumps({"chat_template": named, "bos_token": {"content": "<|im_start|>"}})
    )
    assert rendered() == "d<|im_start|>"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert rendered() == "own file"
    (tmp_path / "chat_template.jinja").unlink()
    config.write_text(json.dumps({"chat_template": [{"name": "tool", "template": "t"}, 5]}))
    with pytest.raises(InvalidRequest, match="no chat template"):
        rendered()
    config.write_text(json.dumps({"chat_template": 5}))
    with pytest.raises(ModelFormatError, match=r"tokenizer_config\.json: chat_template is 5"):
        rendered()
