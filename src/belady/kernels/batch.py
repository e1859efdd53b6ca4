"""What one forward pass computes: plain numpy arrays, the same for every backend. Knows neither plans nor requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

NO_PAGE = -1
"""In a block table: no page here (past the row's end, or it has left a sliding window). Never read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBatch:
    """Rows of consecutive tokens: a decode row has one, a prefill chunk has many. All arrays are int32.

    A row's tokens take the positions just before `context_len`; keys and values of all earlier positions that its
    attention reaches are in the pages of its block tables already.
    """

    tokens: Ints
    """[T] ids, row after row."""
    positions: Ints
    """[T] place of each token in its sequence, from 0."""
    row_start: Ints
    """[rows + 1] row r has tokens row_start[r] up to row_start[r + 1]; at least one."""
    context_len: Ints
    """[rows] tokens of the row's sequence up to and including this chunk."""
    block_tables: tuple[Ints, ...]
    """Per layer group [rows, at least ceil(context_len / page_size)]: physical page of positions
    [k * page_size, (k + 1) * page_size), or NO_PAGE."""
    sample_rows: Ints
    """[R] indices into the T tokens whose logits are wanted, in this order."""

    def __post_init__(self) -> None:
        starts, rows = self.row_start, len(self.context_len)
        assert self.tokens.shape == self.positions.shape, "one position per token"
        assert starts.shape == (rows + 1,) and starts[0] == 0 and starts[-1] == len(self.tokens), "CSR over T"
        counts = np.diff(starts)
        assert (counts > 0).all(), "every row has a token"
        last = self.positions[starts[1:] - 1]
        assert (last + 1 == self.context_len).all(), "a row ends at its context length"
        assert (self.positions[starts[:-1]] == self.context_len - counts).all(), (
            "a row's tokens are consecutive"
        )
        assert all(len(table) == rows for table in self.block_tables), "one table row per row, per group"
