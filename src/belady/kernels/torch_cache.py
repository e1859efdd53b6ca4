"""Page pools in torch tensors: allocation, copies, writes, and gathers of whole (page, head) runs.

Pages are head-major, `[layer][page][kv_head][slot][d]`, so that one page of one head is contiguous and a gather moves
whole runs. Does not know which request owns a page.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from belady.kernels.errors import CacheMemoryError
from belady.kernels.program import LayerGroup

_CGROUP = Path("/sys/fs/cgroup")


class Pool:
    """Keys and values of one layer group.

    Slots behind the last one written to a page are zero, as far as its present owner is concerned: a masked slot is
    still multiplied by 0, and what a former owner left there may not be a number.
    """

    def __init__(
        self, group: LayerGroup, pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.page_size = page_size
        self.pages = pages
        self.kv_heads = group.kv_heads
        shape = (len(group.layers), pages, group.kv_heads, page_size, group.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        # Two flat views of each layer: single slots to write, (page, head) runs to read.
        self._slots = [(k.view(-1, group.head_dim), v.view(-1, group.head_dim)) for k, v in self._layers()]
        run = page_size * group.head_dim
        self._runs = [(k.view(-1, run), v.view(-1, run)) for k, v in self._layers()]

    def _layers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip(self.keys.unbind(0), self.values.unbind(0), strict=True))

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store k and v, each [n, kv_heads * d], at the n * kv_heads flat `slots` of `slot_index`."""
        keys, values = self._slots[layer]
        keys.index_copy_(0, slots, k.reshape(-1, keys.shape[1]))
        values.index_copy_(0, slots, v.reshape(-1, values.shape[1]))

    def read(self, layer: int, runs: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [rows, kv_heads, n, d] of the flat `runs` of `run_index`, n = pages * page_size."""
        keys, values = self._runs[layer]
        shape = (rows, self.kv_heads, -1, self.keys.shape[-1])
        return keys.index_select(0, runs).view(shape), values.index_select(0, runs).view(shape)

    def slot_index(self, pages: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Flat slots of every head for tokens at `offsets` [n] in `pages` [n]: [n * kv_heads]."""
        heads = torch.arange(self.kv_heads, device=pages.device)
        return ((pages[:, None] * self.kv_heads + heads) * self.page_size + offsets[:, None]).view(-1)

    def run_index(self, tables: torch.Tensor) -> torch.Tensor:
        """Flat runs for block tables [rows, n]: [rows * kv_heads * n], heads outside pages."""
        heads = torch.arange(self.kv_heads, device=tables.device)
        return (tables[:, None, :] * self.kv_heads + heads[:, None]).reshape(-1)

    def copy(self, src: int, dst: int, slots: int) -> None:
        """Copy the first `slots` slots of page `src` to page `dst` in every layer, and clear the others of `dst`."""
        assert 0 <= slots <= self.page_size and 0 <= src < self.pages and 0 <= dst < self.pages, "in the pool"
        for pool in (self.keys, self.values):
            pool[:, dst, :, :slots] = pool[:, src, :, :slots]
            pool[:, dst, :, slots:] = 0

    def clear(self, pages: torch.Tensor) -> None:
        """Zero whole pages in every layer."""
        self.keys.index_fill_(1, pages, 0)
        self.values.index_fill_(1, pages, 0)


def page_bytes(group: LayerGroup, page_size: int, dtype: torch.dtype) -> int:
    """Bytes of keys and values in one page over all layers of a group."""
    return 2 * len(group.layers) * group.kv_heads * page_size * group.head_dim * dtype.itemsize


def allocate(
    groups: Sequence[LayerGroup],
    pages: Sequence[int],
    page_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> list[Pool]:
    """One pool per group, their memory committed. Raises CacheMemoryError when they do not fit."""
    assert len(pages) == len(groups) and page_size >= 1, "one page count per layer group"
    wanted = sum(n * page_bytes(g, page_size, dtype) for g, n in zip(groups, pages, strict=True))
    what = ", ".join(
        f"{n} pages of {page_size} tokens in group '{g.name}'" for g, n in zip(groups, pages, strict=True)
    )
    available = available_bytes(device)
    if available is not None and wanted > available:
        raise CacheMemoryError(wanted, available, what)
    try:
        return [Pool(g, n, page_size, dtype, device) for g, n in zip(groups, pages, strict=True)]
    except (RuntimeError, MemoryError) as error:  # torch raises RuntimeError for either kind of memory
        raise CacheMemoryError(wanted, available, what) from error


def available_bytes(device: torch.device) -> int | None:
    """Memory that can still be had on `device`, container limits included; None where the system doesn't say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return _free_pages()
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        return max(0, min(free, limit - int((_CGROUP / "memory.current").read_text())))
    except (OSError, ValueError):  # no container, or "max"
        return free


def _free_pages() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
