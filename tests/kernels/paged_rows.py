"""Sequences over scattered pages, for tests of backends: hands out pages in random order and builds batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belady.kernels.backend import Backend
from belady.kernels.batch import NO_PAGE, ForwardBatch
from belady.kernels.program import Program
from belady.models.config import ModelConfig

VOCAB = 50
FULL = ModelConfig(
    family="llama",
    vocab_size=VOCAB,
    hidden=32,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=48,
    norm_eps=1e-5,
    rope_theta=10_000.0,
    context_length=256,
    layer_types=("full",) * 3,
    tie_embeddings=True,
)
WINDOWED = ModelConfig(
    family="gemma3",
    vocab_size=VOCAB,
    hidden=32,
    layers=4,
    heads=4,
    kv_heads=1,
    head_dim=8,
    ffn=48,
    norm_eps=1e-6,
    rope_theta=100_000.0,
    rope_local_theta=10_000.0,
    context_length=256,
    layer_types=("window", "window", "full", "window"),
    sliding_window=6,
    tie_embeddings=False,
    qk_norm=True,
    post_norms=True,
    activation="gelu_tanh",
    embedding_scale=5.5,
    query_pre_attn_scalar=12.0,
    attn_logit_softcap=None,
    final_logit_softcap=9.0,
)


class RandomWeights:
    """Reproducible random tensors for any program: a `TensorSource`."""

    def __init__(self, program: Program, seed: int = 0) -> None:
        self._shapes = {w.name: w.shape for w in program.weights}
        self._seed = seed

    def get(self, name: str) -> np.ndarray:
        rng = np.random.default_rng([self._seed, *name.encode()])
        values = rng.standard_normal(self._shapes[name]).astype(np.float32)
        return 1 + 0.1 * values if values.ndim == 1 else values * 0.3


class PagedRows:
    """Named token sequences in a backend's pools. Pages that leave a window are overwritten by whoever comes next."""

    def __init__(self, backend: Backend, page_size: int, pages: int = 200, seed: int = 0) -> None:
        self.backend = backend
        self.page_size = page_size
        self.groups = backend.program.groups
        backend.allocate([pages] * len(self.groups), page_size)
        rng = np.random.default_rng(seed)
        self.free = [list(map(int, rng.permutation(pages))) for _ in self.groups]
        self.length: dict[str, int] = {}
        self.tables: dict[str, list[list[int]]] = {}

    def run(self, rows: Sequence[tuple[str, Sequence[int]]], sample: str = "all") -> np.ndarray:
        """Append tokens to each named sequence in one batch; logits of all tokens, or of each row's `last`."""
        for name, tokens in rows:
            self._extend(name, len(tokens))
        counts = [len(tokens) for _, tokens in rows]
        ends = np.cumsum([0, *counts]).astype(np.int32)
        context = np.array([self.length[name] for name, _ in rows], np.int32)
        places = [np.arange(n - c, n) for n, c in zip(context, counts, strict=True)]
        return self.backend.forward(
            ForwardBatch(
                tokens=np.concatenate([np.asarray(t, np.int32) for _, t in rows]),
                positions=np.concatenate(places).astype(np.int32),
                row_start=ends,
                context_len=context,
                block_tables=tuple(self._table(g, [n for n, _ in rows]) for g in range(len(self.groups))),
                sample_rows=np.arange(ends[-1], dtype=np.int32) if sample == "all" else ends[1:] - 1,
            )
        )

    def leave_windows(self, name: str) -> int:
        """Give back the pages that no later query of `name` can see; returns how many."""
        freed = 0
        for group, table, free in zip(self.groups, self.tables[name], self.free, strict=True):
            if group.window is None:
                continue
            for at in range(max(0, self.length[name] - group.window + 1) // self.page_size):
                if table[at] != NO_PAGE:
                    free.append(table[at])
                    table[at] = NO_PAGE
                    freed += 1
        return freed

    def fork(self, name: str, copy: str) -> None:
        """Share the full pages of `name` with a new sequence, and copy the used slots of a partly filled one."""
        full, used = divmod(self.length[name], self.page_size)
        self.length[copy] = self.length[name]
        self.tables[copy] = [list(table[: full + (used > 0)]) for table in self.tables[name]]
        if used:
            for group, table in enumerate(self.tables[copy]):
                page = self.free[group].pop()
                self.backend.copy_pages(group, [table[full]], [page], [used])
                table[full] = page

    def _extend(self, name: str, count: int) -> None:
        self.length[name] = self.length.get(name, 0) + count
        tables = self.tables.setdefault(name, [[] for _ in self.groups])
        for table, free in zip(tables, self.free, strict=True):
            while len(table) * self.page_size < self.length[name]:
                table.append(free.pop())

    def _table(self, group: int, names: Sequence[str]) -> np.ndarray:
        tables = [self.tables[name][group] for name in names]
        padded = np.full((len(tables), max(map(len, tables))), NO_PAGE, np.int32)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = table
        return padded
