"""The sampling fields that chat and completions share, and their translation into `Sampling`.

Strict about values and about semantics this server lacks; unknown keys are not looked at. Knows nothing of prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from belady.api.config import ApiConfig
from belady.api.errors import invalid, unsupported
from belady.core.client import ModelInfo, Sampling

MAX_LOGPROBS = 20
GUIDED = (
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "json_schema",
)


class StreamOptions(msgspec.Struct, kw_only=True):
    """What to add to a stream."""

    include_usage: bool = False


class SamplingFields(msgspec.Struct, kw_only=True):
    """Fields of both bodies, under OpenAI's names and the common extensions."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = False
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    priority: int | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    user: str | None = None
    best_of: int | None = None
    use_beam_search: bool | None = False
    prompt_logprobs: int | None = None
    structured_outputs: msgspec.Raw = msgspec.Raw(b"null")
    guided_json: msgspec.Raw = msgspec.Raw(b"null")
    guided_regex: msgspec.Raw = msgspec.Raw(b"null")
    guided_choice: msgspec.Raw = msgspec.Raw(b"null")
    guided_grammar: msgspec.Raw = msgspec.Raw(b"null")
    json_schema: msgspec.Raw = msgspec.Raw(b"null")


def check_supported(fields: SamplingFields) -> None:
    """Refuses what would change the output and is not there yet."""
    for name in GUIDED:
        if not is_null(getattr(fields, name)):
            raise unsupported(name, f"`{name}`: structured output is not supported yet; leave it out")
    if fields.use_beam_search:
        raise unsupported("use_beam_search", "beam search is not supported; leave `use_beam_search` out")
    if fields.best_of is not None and fields.best_of != choices(fields):
        raise unsupported(
            "best_of", "`best_of` above `n` is not supported; use `n` and choose among the choices"
        )
    if fields.prompt_logprobs is not None:
        raise unsupported(
            "prompt_logprobs", "log-probabilities of the prompt are not supported; leave it out"
        )
    if fields.skip_special_tokens is False:
        raise unsupported(
            "skip_special_tokens", "special tokens are always left out of the text; leave it out"
        )
    if fields.stream_options is not None and not fields.stream:
        raise invalid("`stream_options` is only allowed with `stream: true`", "stream_options")
    if fields.cache_salt == "":
        raise invalid("`cache_salt` must not be empty: leave it out or give a string", "cache_salt")


def is_null(raw: msgspec.Raw) -> bool:
    """True for a field that was left out or sent as null."""
    return bytes(raw).strip() == b"null"


def choices(fields: SamplingFields) -> int:
    """`n`, 1 when it was not given."""
    return 1 if fields.n is None else fields.n


def check_n(fields: SamplingFields, config: ApiConfig) -> int:
    n = choices(fields)
    if not 1 <= n <= config.max_n:
        raise invalid(f"`n` is {n}: it must be from 1 to {config.max_n} on this server", "n")
    return n


def resolve_max_tokens(
    asked: int | None,
    prompt_tokens: int,
    model: ModelInfo,
    default: int | None,
    *,
    param: str = "messages",
    field: str = "max_tokens",
) -> int:
    """Output tokens to allow; `default` None means as many as fit. Raises when prompt or sum exceed the window.

    `field` is where the client put `asked`.
    """
    window = model.context_length
    if prompt_tokens >= window:
        raise invalid(
            f"{_window(model)}, but the prompt has {prompt_tokens} tokens and at least "
            f"1 is needed for the answer: shorten the prompt",
            param,
            "context_length_exceeded",
        )
    if asked is not None:
        if asked < 1:
            raise invalid(f"`{field}` is {asked}: it must be at least 1", field)
        if prompt_tokens + asked > window:
            raise invalid(
                f"{_window(model)}, but {prompt_tokens + asked} were asked for "
                f"({prompt_tokens} in the prompt, {asked} for the answer): ask for at most {window - prompt_tokens}",
                field,
                "context_length_exceeded",
            )
        return asked
    room = max(1, min(window, model.cache_tokens) - prompt_tokens)
    return room if default is None else min(default, room)


def _window(model: ModelInfo) -> str:
    window, whole = model.context_length, model.model_context
    if whole is None or whole <= window:
        return f"this model's context window is {window} tokens"
    return (
        f"this server holds at most {window} tokens per request (the model could take {whole}; its operator can raise "
        f"--cache-bytes or --max-context)"
    )


def build(
    fields: SamplingFields, *, max_tokens: int, logprobs: int | None, config: ApiConfig, model: ModelInfo
) -> Sampling:
    """Validated sampling parameters; raises `ApiError` naming the field."""
    min_tokens = fields.min_tokens or 0
    if not 0 <= min_tokens <= max_tokens:
        raise invalid(f"`min_tokens` is {min_tokens}: it must be from 0 to {max_tokens}", "min_tokens")
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=_number("temperature", fields.temperature, 1.0, low=0.0, high=100.0),
        top_p=_number("top_p", fields.top_p, 1.0, low=0.0, high=1.0, open_low=True),
        top_k=_top_k(fields.top_k),
        min_p=_number("min_p", fields.min_p, 0.0, low=0.0, high=1.0),
        seed=_seed(fields.seed),
        frequency_penalty=_number("frequency_penalty", fields.frequency_penalty, 0.0, low=-2.0, high=2.0),
        presence_penalty=_number("presence_penalty", fields.presence_penalty, 0.0, low=-2.0, high=2.0),
        repetition_penalty=_number(
            "repetition_penalty", fields.repetition_penalty, 1.0, low=0.0, high=100.0, open_low=True
        ),
        logit_bias=_logit_bias(fields.logit_bias or {}, model.vocab_size),
        logprobs=logprobs,
        stop=_stops(fields.stop, config.max_stops),
        stop_token_ids=_stop_ids(fields.stop_token_ids or [], config.max_stops, model.vocab_size),
        include_stop_str=bool(fields.include_stop_str_in_output),
        ignore_eos=bool(fields.ignore_eos),
    )


def check_top_logprobs(name: str, value: int) -> int:
    if not 0 <= value <= MAX_LOGPROBS:
        raise invalid(f"`{name}` is {value}: it must be from 0 to {MAX_LOGPROBS}", name)
    return value


def _number(
    name: str, value: float | None, default: float, *, low: float, high: float, open_low: bool = False
) -> float:
    if value is None:
        return default
    if not math.isfinite(value) or value > high or value < low or (open_low and value == low):
        start = f"above {low:g}" if open_low else f"from {low:g}"
        raise invalid(f"`{name}` is {value:g}: it must be {start} to {high:g}", name)
    return float(value)


def _top_k(value: int | None) -> int | None:
    if value is None or value in (0, -1):
        return None
    if value < -1:
        raise invalid(f"`top_k` is {value}: it must be at least 1 (0 or -1 switch it off)", "top_k")
    return value


def _seed(value: int | None) -> int | None:
    if value is None:
        return None
    if not -(2**63) <= value < 2**63:
        raise invalid("`seed` must fit in 64 bits", "seed")
    return value & (2**63 - 1)


def _logit_bias(bias: Mapping[str, float], vocab: int) -> dict[int, float]:
    checked: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) < 12 and int(key) < vocab):
            message = f"`logit_bias`: {key[:20]!r} is not a token id of this model (0 to {vocab - 1})"
            raise invalid(message, "logit_bias")
        if not -100.0 <= value <= 100.0:
            raise invalid(f"`logit_bias.{key}` is {value:g}: it must be from -100 to 100", "logit_bias")
        checked[int(key)] = value
    return checked


def _stops(stop: str | list[str] | None, limit: int) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > limit:
        raise invalid(f"`stop` has {len(stops)} strings: at most {limit} are allowed on this server", "stop")
    if any(not text for text in stops):
        raise invalid("`stop` has an empty string: leave it out", "stop")
    return tuple(stops)


def _stop_ids(ids: list[int], limit: int, vocab: int) -> tuple[int, ...]:
    if len(ids) > limit:
        raise invalid(f"`stop_token_ids` has {len(ids)} ids: at most {limit} are allowed", "stop_token_ids")
    for token in ids:
        if not 0 <= token < vocab:
            raise invalid(f"`stop_token_ids`: {token} is not a token id (0 to {vocab - 1})", "stop_token_ids")
    return tuple(ids)
