"""The ranges that scenario numbers may have, as annotated types, and how a range reads in a message.

Upper bounds keep out what no machine could hold or whose arithmetic leaves the floats; they model nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import Meta

FileName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        description="1 to 64 letters, digits, dots, hyphens or underscores, the first a letter or a digit, "
        "since output files are called so",
    ),
]
"""A name that is also a file name in any folder."""

Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Servers = Annotated[int, Meta(ge=1, le=10_000)]
Context = Annotated[int, Meta(ge=2, le=1_000_000_000)]
"""Tokens of a context: at least one of prompt and one of output."""
Tokens = Annotated[int, Meta(ge=1, le=1_000_000_000)]
SharedTokens = Annotated[int, Meta(ge=0, le=10_000_000)]
MeanTokens = Annotated[float, Meta(ge=1, le=10_000_000)]
Share = Annotated[float, Meta(ge=0.001, le=1)]
Blend = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=1_000_000)]
Budget = Annotated[float, Meta(ge=0.000_001, le=1_000_000)]
"""Seconds that something may take; not 0."""
Rate = Annotated[float, Meta(ge=0.000_001, le=1_000_000)]
Scale = Annotated[float, Meta(ge=0.000_001, le=1_000_000)]


def allowed(hint: Any) -> str | None:
    """What a value of this type may be, in words; None where its type says it all."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(hint))
    for part in (hint, *get_args(hint)):
        for meta in getattr(part, "__metadata__", ()):
            if isinstance(meta, Meta):
                return meta.description or f"{_number(meta.ge)} to {_number(meta.le)}"
    return None


def _number(bound: float | None) -> str:
    assert bound is not None, "every range here has both ends"
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:.6f}".rstrip("0").rstrip(".")
