"""The port behind which a program is executed. Knows no library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from belady.kernels.batch import ForwardBatch
from belady.kernels.program import Program


class TensorSource(Protocol):
    """Where a backend finds the weights of its program."""

    def get(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor under its canonical name, fresh and writable."""


class Backend(Protocol):
    """One program with its weights and its key-value cache. One thread at a time.

    Layer groups and their pools are named by their index in `program.groups`.
    """

    @property
    def program(self) -> Program:
        """What is executed."""

    def bytes_per_page(self, group: int, page_size: int) -> int:
        """Bytes of keys and values that one page holds, over all layers of the group."""

    def allocate(self, pages: Sequence[int], page_size: int) -> None:
        """Replace the pools by new ones: pages per layer group, `page_size` token slots in a page.

        Raises CacheMemoryError when they do not fit; then there are no pools at all.
        """

    def copy_pages(self, group: int, src: Sequence[int], dst: Sequence[int], slots: Sequence[int]) -> None:
        """One after the other, copy the first slots[i] token slots of page src[i] to page dst[i], in every layer.

        What page dst[i] held before is gone; its other slots are as if never written.
        """

    def forward(self, batch: ForwardBatch) -> npt.NDArray[np.float32]:
        """Write the tokens' keys and values to their pages and return logits [R, vocab]."""
