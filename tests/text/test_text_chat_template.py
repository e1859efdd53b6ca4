"""Chat templates: what they may use, and what a user hears when they fail."""

from __future__ import annotations

import pytest

from belady.text.chat_template import ChatTemplate, require_template
from belady.text.errors import TemplateError

MESSAGES = [{"role": "user", "content": "a <b> & 'c' \u00e9"}]


def test_json_is_not_html_escaped() -> None:
    template = ChatTemplate("{{ messages[0]['content'] | tojson }}")
    assert template.render(MESSAGES) == "\"a <b> & 'c' \u00e9\""


def test_variables_and_special_tokens() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{{ tools | length }}{{ flavour }}{{ add_generation_prompt }}", {"bos_token": "<s>"}
    )
    assert template.render(MESSAGES, tools=[{}, {}], add_generation_prompt=False, flavour="x") == "<s>2xFalse"


def test_date_comes_from_the_caller() -> None:
    source = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}undated{% endif %}"
    template = ChatTemplate(source)
    assert template.render(MESSAGES) == "undated"
    assert template.render(MESSAGES, strftime_now=lambda fmt: f"<{fmt}>") == "<%Y>"


def test_variables_of_any_name_reach_the_template() -> None:
    template = ChatTemplate("{{ kwargs }} {{ messages[0].role }} {{ seen }}")
    assert template.render(MESSAGES, self=1, messages=2, kwargs=3, seen=4) == "3 user 4"


def test_generation_block_and_loop_controls_render() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% break %}{% endfor %}"
    assert ChatTemplate(source).render([*MESSAGES, *MESSAGES]) == "user"


def test_refusal_carries_the_models_own_words() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateError, match=r"refuses these messages \(roles must alternate\)"):
        template.render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[7]['content']['x'] }}",
        "{{ 1 / 0 }}",
        "{{ nothing.here.at_all }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_failing_or_hostile_template_is_one_error(source: str) -> None:
    with pytest.raises(TemplateError, match="fails on these messages"):
        ChatTemplate(source).render(MESSAGES)


def test_invalid_source() -> None:
    template = ChatTemplate("{% if %}")
    assert template.problem is not None
    with pytest.raises(TemplateError, match="not valid"):
        template.render([])


def test_missing_template_names_the_model() -> None:
    with pytest.raises(TemplateError, match=r"'base-model' has no chat template"):
        require_template(None, "base-model")
