"""Chat templates: messages to prompt text, through Jinja in a sandbox. Reads no clock: time is an argument.

Templates come with models, so they are foreign code: the sandbox keeps them from the interpreter, and
whatever they raise reaches the user as one typed error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from belady.text.errors import TemplateError

_OTHER_MESSAGES = "change them (order of roles, system message, tools), or render the prompt yourself and use the completions endpoint"


class _RefusedByTemplateError(Exception):
    """The template called `raise_exception`."""


class _GenerationBlock(Extension):
    """`{% generation %}` marks what training tooling counts as the assistant's words; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012  (declared so by jinja2)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One compiled template. Immutable and safe to share between threads."""

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        """`special_tokens` maps names that templates use (`bos_token`, `eos_token`) to their text.

        A `source` that is not a valid template is `problem`, and every rendering says so: the model is of use without.
        """
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self.problem: str | None = None
        """What is wrong with the template; None when it compiles."""
        self._template: jinja2.Template | None = None
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            self.problem = f"the model's chat template is not valid ({error}): use the completions endpoint, or mend the template"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        strftime_now: Callable[[str], str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Prompt text of `messages`; encode it with `add_special=False`.

        `strftime_now(format)` is how a template asks for the date; without it templates see no such function.
        `kwargs` reach the template as variables (`enable_thinking`), whatever their names. Raises TemplateError when the template
        refuses the messages or fails on them.
        """
        if self._template is None:
            raise TemplateError(str(self.problem))
        variables: dict[str, Any] = {
            **self._special_tokens,
            **kwargs,
            "messages": list(messages),
            "tools": None if tools is None else list(tools),
            "add_generation_prompt": add_generation_prompt,
        }
        if strftime_now is not None:
            variables["strftime_now"] = strftime_now
        try:
            return self._template.render(variables)
        except _RefusedByTemplateError as error:
            raise TemplateError(
                f"the model's chat template refuses these messages ({error}); {_OTHER_MESSAGES}"
            ) from error
        except Exception as error:  # foreign code may raise anything
            raise TemplateError(
                f"the model's chat template fails on these messages ({type(error).__name__}: {error}); {_OTHER_MESSAGES}"
            ) from error


def require_template(template: ChatTemplate | None, model: str) -> ChatTemplate:
    """`template`, or TemplateError for a model that has none."""
    if template is None:
        raise TemplateError(
            f"model {model!r} has no chat template (it is probably a base model); use the completions endpoint "
            f"or an instruction-tuned model"
        )
    return template


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    return environment


def _refuse(message: object) -> str:
    raise _RefusedByTemplateError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on: no HTML escapes, unlike Jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
