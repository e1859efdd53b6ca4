"""What goes wrong below the engine, said so that a user can act on it. Knows no backend."""

from __future__ import annotations

_GIB = 1 << 30


class KernelError(Exception):
    """A backend can't do what was asked of it."""


class CacheMemoryError(KernelError):
    """The KV pools that were asked for do not fit in memory. Nothing was allocated.

    `wanted` and `available` in bytes; `available` is None where the system doesn't say.
    """

    def __init__(self, wanted: int, available: int | None, what: str) -> None:
        free = "" if available is None else f"; {_size(available)} are free"
        super().__init__(
            f"the KV cache needs {_size(wanted)} ({what}){free}. "
            "Give the cache less memory (cache.bytes, --cache-bytes), which bounds the tokens held at once"
        )
        self.wanted = wanted
        self.available = available


class DeviceError(KernelError):
    """The device that was asked for can't be used."""


class ProgramError(ValueError):
    """A recorded program is not well formed; the message names the op."""


def _size(count: int) -> str:
    return f"{count / _GIB:.2f} GiB ({count} bytes)"
