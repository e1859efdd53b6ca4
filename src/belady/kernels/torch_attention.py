"""One step's attention in torch: which pages each row reads, under which mask, planned once and used by every layer.

Rows with a single token are gathered and attended together, in buckets of similar length so that padding stays below
half; longer chunks one by one. Query heads that share a key head are rows of one product: keys are never repeated.
Positions hold absolute places in a sequence; a window row reads from the first page that its window reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from belady.kernels.batch import NO_PAGE, ForwardBatch
from belady.kernels.program import Attention, LayerGroup
from belady.kernels.torch_cache import Pool

_BUCKET_TOKENS = 1 << 17
"""Most tokens gathered at once for decode rows, padding included: bounds scratch memory."""
_FREE_PAGES = 8
"""Padding that is cheaper than another call."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows attended in one call: `rows` of `queries` tokens each, reading `keys` slots."""

    tokens: torch.Tensor | None
    """Indices of the queries among the step's tokens; None: all of them, in order."""
    rows: int
    queries: int
    keys: int
    runs: torch.Tensor
    bias: torch.Tensor | None
    """0 or -inf, [rows, 1, queries, keys]; None when every query sees every key."""


class GroupStep:
    """What attention needs to know about one step in one layer group."""

    def __init__(self, pool: Pool, group: LayerGroup, index: int, batch: ForwardBatch) -> None:
        """Plan reads and writes of layer group number `index`; clears the pages that the step is first to write."""
        self._pool = pool
        self._device = pool.keys.device
        self._dtype = pool.keys.dtype
        self._window = group.window
        table = batch.block_tables[index]
        counts = np.diff(batch.row_start)
        row_of_token = np.repeat(np.arange(len(counts)), counts)
        pages = table[row_of_token, batch.positions // pool.page_size]
        assert (pages != NO_PAGE).all(), "the step's own tokens have pages"
        fresh = pages[batch.positions % pool.page_size == 0]
        if pool.page_size > 1 and len(fresh):
            pool.clear(self._ints(fresh))
        self._slots = pool.slot_index(self._ints(pages), self._ints(batch.positions % pool.page_size))
        self._segments = [
            self._segment(batch, table, rows, len(batch.tokens)) for rows in self._buckets(batch, counts)
        ]

    def attend(self, op: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Store k and v of the step's tokens and return the attention of q, [T, heads * d] like q."""
        self._pool.write(op.layer, self._slots, k, v)
        first = self._segments[0]
        if first.tokens is None:
            return self._attend(op, first, q)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for segment in self._segments:
            assert segment.tokens is not None, "only a segment of all tokens goes without"
            out[segment.tokens] = self._attend(op, segment, q[segment.tokens])
        return out

    def _attend(self, op: Attention, segment: _Segment, q: torch.Tensor) -> torch.Tensor:
        keys, values = self._pool.read(op.layer, segment.runs, segment.rows)
        keys, values = keys[:, :, : segment.keys], values[:, :, : segment.keys]
        if segment.queries == 1:
            grouped = q.view(segment.rows, keys.shape[1], -1, keys.shape[-1])
            return _scaled_attention(op, grouped, keys, values, segment.bias).reshape(q.shape)
        heads = q.view(1, segment.queries, -1, keys.shape[-1]).transpose(1, 2)
        return _scaled_attention(op, heads, keys, values, segment.bias).transpose(1, 2).reshape(q.shape)

    def _segment(
        self, batch: ForwardBatch, table: npt.NDArray[np.int32], rows: npt.NDArray[np.int64], total: int
    ) -> _Segment:
        size = self._pool.page_size
        last = batch.context_len[rows] - 1
        starts = batch.row_start[rows]
        queries = int(batch.row_start[rows[0] + 1] - starts[0])
        first_page = self._first_pages(batch, rows)
        count = int((last // size - first_page).max()) + 1
        columns = first_page[:, None] + np.arange(count)
        # Shorter rows read their own last page again, under the mask: never a page that another row may have spoilt.
        pages = table[rows[:, None], np.minimum(columns, (last // size)[:, None])]
        assert (pages != NO_PAGE).all(), "every page that the window reaches is there"
        keys = int((last + 1 - first_page * size).max())
        tokens = (starts[:, None] + np.arange(queries)).reshape(-1)
        return _Segment(
            tokens=None if len(tokens) == total and (np.diff(tokens) == 1).all() else self._ints(tokens),
            rows=len(rows),
            queries=queries,
            keys=keys,
            runs=self._pool.run_index(self._ints(pages)),
            bias=self._bias(first_page * size, batch.positions[tokens].reshape(len(rows), queries), keys),
        )

    def _bias(
        self, offset: npt.NDArray[np.int32], positions: npt.NDArray[np.int32], keys: int
    ) -> torch.Tensor | None:
        """Mask of keys at offset[row] + 0, 1, ... for queries at `positions` [rows, queries]."""
        window = self._window
        lowest = 0 if window is None else int((positions - offset[:, None]).max()) - window
        if positions.shape[1] == 1 and int((positions[:, 0] - offset).min()) == keys - 1 and lowest < 0:
            return None
        at = self._ints(offset)[:, None, None] + torch.arange(keys, device=self._device)
        query = self._ints(positions)[:, :, None]
        seen = at <= query
        if window is not None:
            seen &= at > query - window
        bias = torch.zeros(seen.shape, dtype=self._dtype, device=self._device)
        return bias.masked_fill_(~seen, -torch.inf)[:, None]

    def _first_pages(self, batch: ForwardBatch, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """First page that any query of each row sees."""
        if self._window is None:
            return np.zeros(len(rows), np.int32)
        first_query = batch.positions[batch.row_start[rows]]
        return np.maximum(0, first_query - self._window + 1) // self._pool.page_size

    def _buckets(self, batch: ForwardBatch, counts: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int64]]:
        """Rows to attend together: each chunk alone, single tokens by length."""
        for row in np.flatnonzero(counts > 1):
            yield np.array([row])
        single = np.flatnonzero(counts == 1)
        if not len(single):
            return
        pages = (batch.context_len[single] - 1) // self._pool.page_size - self._first_pages(batch, single) + 1
        order = np.argsort(pages, kind="stable")
        begin = 0
        for end in range(1, len(order) + 1):
            if end < len(order):
                longest = int(pages[order[end]])
                wide = longest > 2 * int(pages[order[begin]]) + _FREE_PAGES
                large = (end - begin + 1) * longest * self._pool.page_size > _BUCKET_TOKENS
                if not wide and not large:
                    continue
            yield np.sort(single[order[begin:end]])
            begin = end

    def _ints(self, array: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self._device)


def _scaled_attention(
    op: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """softmax(scale * q k^T + bias) v; query heads may be a multiple of key heads."""
    shared = q.shape[1] != k.shape[1]
    if op.softcap is None:
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, scale=op.scale, enable_gqa=shared
        )
    if shared:
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    scores = op.softcap * torch.tanh((q @ k.transpose(-1, -2)) * (op.scale / op.softcap))
    return torch.softmax(scores if bias is None else scores + bias, -1, dtype=torch.float32).to(q.dtype) @ v
