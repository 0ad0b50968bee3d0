"""Templates render as `transformers` renders them, and what a caller may not do is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers.utils import chat_template_utils

from cenote import templates
from cenote.errors import BadInput, ConfigError

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is <a> & 'b'? "},
    {"role": "assistant", "content": "  A well. "},
]
SOURCES = {
    "plain": "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}",
    "blocks": "{% for m in messages %}\n  {% if loop.first %}\n  first\n  {% endif %}\n{{ m.role }}\n{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}",
    "json": "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }}",
    "loop controls": "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "special tokens": "{{ bos_token }}{{ messages[1].content | trim }}{{ eos_token }}",
    "unknown": "{{ nothing }}{% if nothing is defined %}a{% else %}b{% endif %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "prompt": "{{ messages[2].content }}{% if add_generation_prompt %}assistant:{% endif %}",
    "tools": "{{ tools is none }}{{ documents is none }}",
    "date": "{{ strftime_now('%Y') | length }}",
}
# Typed as if it gave one text.
reference: Any = chat_template_utils.render_jinja_template
TOKENS: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("add_generation_prompt", [False, True])
def test_equal_to_transformers(name: str, add_generation_prompt: bool) -> None:
    rendered, _ = reference(
        [MESSAGES], chat_template=SOURCES[name], add_generation_prompt=add_generation_prompt, **TOKENS
    )
    ours = templates.compiled(SOURCES[name]).render(MESSAGES, {}, **TOKENS, add_generation_prompt=add_generation_prompt)
    assert ours == rendered[0]


@pytest.mark.parametrize("content", ["  A well. ", "A well.", "A well. ", "  A well."])
@pytest.mark.parametrize("source", ["{{ messages[0].content }}</s>", "{{ messages[0].content | trim }}</s>"])
def test_a_message_is_continued_as_transformers_does(content: str, source: str) -> None:
    messages = [{"role": "assistant", "content": content}]
    rendered, _ = reference([messages], chat_template=source, continue_final_message=True)
    assert templates.continued(templates.compiled(source).render(messages, {}), content) == rendered[0]


def test_a_message_that_the_template_changes_cannot_be_continued() -> None:
    with pytest.raises(BadInput, match="continue_final_message"):
        templates.continued("A WELL.", "A well.")


@pytest.mark.parametrize(
    ("source", "reads_parts"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}", True),
        ("{% for m in messages %}{% for part in m['content'] | list %}{{ part.text }}{% endfor %}{% endfor %}", True),
        ("{% set c = messages[0].content %}{% for part in c %}{{ part }}{% endfor %}", True),
        ("{% for part in parts %}{{ part }}{% endfor %}", False),
    ],
)
def test_templates_that_read_parts_are_known(source: str, reads_parts: bool) -> None:
    assert templates.compiled(source).reads_parts is reads_parts


@pytest.mark.parametrize(
    ("source", "variables", "param"),
    [
        ("{{ raise_exception('roles must alternate') }}", {}, "chat_template"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", {}, "chat_template"),
        ("{{ messages.append(1) }}", {}, "chat_template"),
        ("{{ messages[9].content.text }}", {}, "chat_template"),
        ("{{ 1 / 0 }}", {}, "chat_template"),
        ("{{ messages }}", {"messages": []}, "chat_template_kwargs"),
        ("{{ messages }}", {"add_generation_prompt": True}, "chat_template_kwargs"),
    ],
)
def test_what_fails_is_bad_input(source: str, variables: dict[str, Any], param: str) -> None:
    with pytest.raises(BadInput) as caught:
        templates.compiled(source).render(MESSAGES, variables)
    assert caught.value.param == param


def test_a_setting_is_a_path_or_a_template(tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages }}", encoding="utf-8")
    assert templates.from_setting(str(path)) == templates.from_setting("{{ messages }}") == "{{ messages }}"
    for wrong in (str(tmp_path / "none.jinja"), "{% if %}"):
        with pytest.raises(ConfigError):
            templates.from_setting(wrong)
