"""GGUF files: header, metadata and tensors, dequantised to float32 one tensor at a time.

The header is parsed here rather than by the `gguf` package because every count and length in it must be
checked against the file before it is believed: a damaged file has to end in one sentence, not in an endless
loop. Block formats are dequantised by `gguf`. The file is memory-mapped, never read as a whole. Does not
know what the names mean.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.quants import dequantize

from belady.models.errors import ModelLoadError
from belady.models.weights.base import FloatArray

SUPPORTED_TYPES = (
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"),
    *("Q4_K", "Q5_K", "Q6_K"),
)

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_DIMS = 4
_MAX_NESTING = 3
_AGAIN = "The file is damaged or incomplete: get it again"
_SCALARS: dict[int, tuple[str, int]] = {
    GGUFValueType.UINT8: ("<B", 1),
    GGUFValueType.INT8: ("<b", 1),
    GGUFValueType.UINT16: ("<H", 2),
    GGUFValueType.INT16: ("<h", 2),
    GGUFValueType.UINT32: ("<I", 4),
    GGUFValueType.INT32: ("<i", 4),
    GGUFValueType.FLOAT32: ("<f", 4),
    GGUFValueType.BOOL: ("<?", 1),
    GGUFValueType.UINT64: ("<Q", 8),
    GGUFValueType.INT64: ("<q", 8),
    GGUFValueType.FLOAT64: ("<d", 8),
}


@dataclass(frozen=True, slots=True)
class _Tensor:
    shape: tuple[int, ...]  # numpy order
    type_id: int
    offset: int  # bytes from the start of the file
    size: int  # bytes


class GgufWeights:
    """One GGUF file, open and mapped. Use as a context manager or call `close`."""

    def __init__(self, path: Path) -> None:
        """Map `path` and parse its header. Raises ModelLoadError for whatever is wrong with it."""
        self._path = path
        self._map = _map_file(path)
        try:
            cursor = _Cursor(path, self._map)
            self._metadata, self._tensors = _parse(cursor)
        except BaseException:
            self._map.close()
            raise

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
        return _type_name(self._tensors[name].type_id)

    def get(self, name: str) -> FloatArray:
        tensor = self._tensors[name]
        if _type_name(tensor.type_id) not in SUPPORTED_TYPES:
            raise unsupported_type(self._path, name, _type_name(tensor.type_id))
        kind = GGMLQuantizationType(tensor.type_id)
        block, block_bytes = GGML_QUANT_SIZES[kind]
        raw = np.frombuffer(self._map, np.uint8, tensor.size, tensor.offset)
        rows = raw.reshape(*tensor.shape[:-1], tensor.shape[-1] // block * block_bytes)
        if kind == GGMLQuantizationType.F32:
            values = rows.view("<f4")
        elif kind == GGMLQuantizationType.F16:
            values = rows.view("<f2")
        else:
            with np.errstate(invalid="ignore", over="ignore"):  # a NaN scale is the file's business
                values = dequantize(rows, kind)
        return np.array(values, dtype=np.float32).reshape(tensor.shape)

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> GgufWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unsupported_type(path: Path, name: str, stored_type: str) -> ModelLoadError:
    """The error for a tensor stored in a way that can't be read."""
    return ModelLoadError(
        path,
        f"tensor `{name}` is stored as {stored_type}, which is not supported",
        f"Supported: {', '.join(SUPPORTED_TYPES)}. Requantise the model to one of these",
    )


def _type_name(type_id: int) -> str:
    try:
        return GGMLQuantizationType(type_id).name
    except ValueError:
        return f"type {type_id}"


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


class _Cursor:
    """Reads forward through the header; refuses to read, or to believe a count, past the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.at = 0

    def fail(self, problem: str) -> ModelLoadError:
        return ModelLoadError(self.path, f"{problem} (at byte {self.at})", _AGAIN)

    def need(self, size: int, what: str) -> None:
        if size > len(self.data) - self.at:
            raise self.fail(
                f"the file ends within {what}: {size} bytes wanted, {len(self.data) - self.at} left"
            )

    def unpack(self, fmt: str, size: int, what: str) -> Any:
        self.need(size, what)
        (value,) = struct.unpack_from(fmt, self.data, self.at)
        self.at += size
        return value

    def u32(self, what: str) -> int:
        return int(self.unpack("<I", 4, what))

    def u64(self, what: str) -> int:
        return int(self.unpack("<Q", 8, what))

    def string(self, what: str) -> str:
        length = self.u64(what)
        self.need(length, what)
        raw = self.data[self.at : self.at + length]
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not valid UTF-8") from error
        self.at += length
        return text

    def count(self, smallest: int, what: str) -> int:
        """A count of items that take `smallest` bytes or more each."""
        count = self.u64(what)
        self.need(count * smallest, what)
        return count

    def value(self, type_id: int, what: str, depth: int = 0) -> Any:
        if type_id in _SCALARS:
            return self.unpack(*_SCALARS[type_id], what)
        if type_id == GGUFValueType.STRING:
            return self.string(what)
        if type_id != GGUFValueType.ARRAY or depth >= _MAX_NESTING:
            raise self.fail(f"{what} has unknown value type {type_id}")
        item_type = self.u32(what)
        if item_type not in _SCALARS:
            smallest = 8 if item_type == GGUFValueType.STRING else 12
            return [self.value(item_type, what, depth + 1) for _ in range(self.count(smallest, what))]
        fmt, size = _SCALARS[item_type]
        count = self.count(size, what)
        items = np.frombuffer(self.data, np.dtype(fmt), count, self.at).tolist()
        self.at += count * size
        return items


def _parse(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, _Tensor]]:
    if cursor.data[:4] != _MAGIC:
        raise ModelLoadError(
            cursor.path,
            f"this is not a GGUF file (it starts with {cursor.data[:4]!r} instead of {_MAGIC!r})",
            "Give a .gguf file or a folder in Hugging Face format",
        )
    cursor.at = 4
    version = cursor.u32("the version")
    if version not in _VERSIONS:
        raise ModelLoadError(
            cursor.path,
            f"GGUF version {version} (or another byte order) is not supported",
            f"Supported: little-endian, version {' or '.join(map(str, _VERSIONS))}. Convert the model anew",
        )
    tensor_count = cursor.u64("the tensor count")
    pair_count = cursor.count(8 + 4 + 1, "the metadata count")
    cursor.need(tensor_count * (8 + 4 + 8 + 4 + 8), "the tensor count")
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = cursor.string("a metadata key")
        if key in metadata:
            raise cursor.fail(f"metadata key `{key[:60]}` occurs twice")
        metadata[key] = cursor.value(cursor.u32("a value type"), f"metadata `{key[:60]}`")
    return metadata, _parse_tensors(cursor, tensor_count, metadata.get("general.alignment", 32))


def _parse_tensors(cursor: _Cursor, count: int, alignment: Any) -> dict[str, _Tensor]:
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise cursor.fail("`general.alignment` is not a power of two of sensible size")
    relative: dict[str, _Tensor] = {}
    for _ in range(count):
        name = cursor.string("a tensor name")
        if name in relative:
            raise cursor.fail(f"tensor `{name[:60]}` occurs twice")
        relative[name] = _parse_tensor(cursor, f"tensor `{name[:60]}`")
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, _Tensor] = {}
    for name, tensor in relative.items():
        if tensor.offset % alignment:
            raise cursor.fail(f"tensor `{name[:60]}` starts at an unaligned offset")
        if start + tensor.offset + tensor.size > len(cursor.data):
            raise ModelLoadError(
                cursor.path,
                f"the data of tensor `{name[:60]}` ends at byte {start + tensor.offset + tensor.size}, "
                f"the file at byte {len(cursor.data)}",
                _AGAIN,
            )
        tensors[name] = _Tensor(tensor.shape, tensor.type_id, start + tensor.offset, tensor.size)
    return tensors


def _parse_tensor(cursor: _Cursor, what: str) -> _Tensor:
    """One tensor's entry; its offset still counts from the start of the data section."""
    dims = cursor.u32(what)
    if not 0 < dims <= _MAX_DIMS:
        raise cursor.fail(f"{what} has {dims} dimensions")
    shape = tuple(reversed([cursor.u64(what) for _ in range(dims)]))
    type_id = cursor.u32(what)
    offset = cursor.u64(what)
    if 0 in shape:
        raise cursor.fail(f"{what} is empty")
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(type_id)]
    except (ValueError, KeyError):
        return _Tensor(shape, type_id, offset, 0)  # refused when it is asked for, by name and type
    if shape[-1] % block:
        raise cursor.fail(f"{what} has rows of {shape[-1]} values, not a multiple of its block size {block}")
    return _Tensor(shape, type_id, offset, math.prod(shape) // block * block_bytes)
