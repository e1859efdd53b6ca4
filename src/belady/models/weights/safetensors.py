"""Safetensors weights of a Hugging Face folder: one file, or shards behind an index.

The header is a length, a JSON object and raw little-endian data. It is read here because numpy has no
bfloat16, so the `safetensors` package can't hand such tensors over without a tensor library. Files are
memory-mapped, never read as a whole. Does not know what the names mean.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from belady.models.errors import ModelLoadError
from belady.models.weights.base import FloatArray

SUPPORTED_TYPES = ("F64", "F32", "F16", "BF16")

_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_MAX_HEADER = 100 << 20
_AGAIN = "The file is damaged or incomplete: get it again"


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Tensor:
    file: int  # which shard
    dtype: str
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the shard


class SafetensorsWeights:
    """The weights of one folder, open and mapped. Use as a context manager or call `close`."""

    def __init__(self, folder: Path, metadata: Mapping[str, Any]) -> None:
        """Map the weight files of `folder`; `metadata` is its parsed config. Raises ModelLoadError."""
        self._path = folder
        self._metadata = metadata
        self._maps: list[mmap.mmap] = []
        self._tensors: dict[str, _Tensor] = {}
        try:
            for shard, wanted in _shards(folder):
                self._add(shard, wanted)
        except BaseException:
            self.close()
            raise

    def _add(self, shard: Path, wanted: set[str] | None) -> None:
        """Take the tensors of one file; with an index (`wanted`), those that it promises, all of them."""
        mapped = _map_file(shard)
        self._maps.append(mapped)
        found = _parse(shard, mapped, len(self._maps) - 1)
        missing = (wanted or set()) - found.keys()
        if missing:
            raise ModelLoadError(
                shard, f"tensor `{min(missing)}`, which the index promises, is not in this shard", _AGAIN
            )
        self._tensors |= found if wanted is None else {name: found[name] for name in found if name in wanted}

    @property
    def path(self) -> Path:
        return self._path

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def stored_type(self, name: str) -> str:
        return self._tensors[name].dtype

    def get(self, name: str) -> FloatArray:
        tensor = self._tensors[name]
        if tensor.dtype not in SUPPORTED_TYPES:
            raise unsupported_type(self._path, name, tensor.dtype)
        stored = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}[tensor.dtype]
        data = self._maps[tensor.file]
        values = np.frombuffer(data, stored, math.prod(tensor.shape), tensor.offset).reshape(tensor.shape)
        if tensor.dtype == "BF16":  # the upper half of a float32
            return (values.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(values, dtype=np.float32)

    def close(self) -> None:
        for mapped in self._maps:
            mapped.close()

    def __enter__(self) -> SafetensorsWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unsupported_type(path: Path, name: str, stored_type: str) -> ModelLoadError:
    """The error for a tensor stored in a way that can't be read."""
    return ModelLoadError(
        path,
        f"tensor `{name}` is stored as {stored_type}, which is not supported",
        f"Supported: {', '.join(SUPPORTED_TYPES)}. Use an unquantised checkpoint, or a GGUF file of the model",
    )


def _shards(folder: Path) -> list[tuple[Path, set[str] | None]]:
    """Weight files of the folder with the names expected in each (None: all)."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        single = folder / "model.safetensors"
        if single.exists():
            return [(single, None)]
        raise ModelLoadError(
            folder,
            "there is neither model.safetensors nor model.safetensors.index.json",
            "Get the safetensors files of the model (pickled .bin weights are not read), or a GGUF file",
        )
    try:
        weight_map = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(index, f"the index can't be read ({error})", _AGAIN) from error
    wanted: dict[str, set[str]] = {}
    for name, file in weight_map.items():
        if Path(file).name != file:
            raise ModelLoadError(index, f"the index names a file outside the folder ({file!r})", _AGAIN)
        wanted.setdefault(file, set()).add(name)
    missing = [file for file in sorted(wanted) if not (folder / file).is_file()]
    if missing or not wanted:
        what = f"{len(missing)} of {len(wanted)} shards are missing: {', '.join(missing[:5])}"
        raise ModelLoadError(
            folder, what, "Get the missing files; an interrupted download leaves such a folder"
        )
    return [(folder / file, names) for file, names in sorted(wanted.items())]


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise ModelLoadError(path, "the file is empty", _AGAIN) from error
    except OSError as error:
        raise ModelLoadError(
            path, f"the file can't be read ({error.strerror or error})", "Check the path and its permissions"
        ) from error


def _parse(path: Path, data: mmap.mmap, file: int) -> dict[str, _Tensor]:
    if len(data) < 8:
        raise ModelLoadError(path, "the file ends within its header", _AGAIN)
    length = int.from_bytes(data[:8], "little")
    if length > min(_MAX_HEADER, len(data) - 8):
        raise ModelLoadError(
            path,
            f"the header claims {length} bytes of {len(data)} in the file: cut short, or not safetensors",
            _AGAIN,
        )
    try:
        header = msgspec.json.decode(data[8 : 8 + length], type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(raw, type=_Entry) for name, raw in header.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelLoadError(path, f"the header is not valid ({error})", _AGAIN) from error
    return {name: _checked(path, name, entry, 8 + length, len(data), file) for name, entry in entries.items()}


def _checked(path: Path, name: str, entry: _Entry, start: int, end: int, file: int) -> _Tensor:
    first, last = entry.data_offsets
    what = f"tensor `{name[:60]}`"
    if min(entry.shape, default=1) < 0 or not 0 <= first <= last:
        raise ModelLoadError(path, f"{what} has a negative size", _AGAIN)
    if start + last > end:
        raise ModelLoadError(
            path, f"the data of {what} ends at byte {start + last}, the file at byte {end}", _AGAIN
        )
    if entry.dtype in _SIZES and math.prod(entry.shape) * _SIZES[entry.dtype] != last - first:
        raise ModelLoadError(path, f"{what} has {last - first} bytes, which its shape contradicts", _AGAIN)
    return _Tensor(file, entry.dtype, tuple(entry.shape), start + first)
