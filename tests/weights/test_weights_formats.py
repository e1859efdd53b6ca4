"""GGUF and safetensors readers: every storage type, and every way to damage a file."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from checkpoints import finish
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from belady.models.errors import ModelLoadError
from belady.models.weights.gguf import SUPPORTED_TYPES, GgufWeights
from belady.models.weights.safetensors import SafetensorsWeights

Q = gguf.GGMLQuantizationType
VALUES = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
FUZZ = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write_gguf(path: Path, kind: gguf.GGMLQuantizationType, stored: np.ndarray) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("some.words", ["a", "\u00e9"])
    writer.add_array("some.flags", [True, False])
    writer.add_array("some.numbers", [1.5, -2.0])
    writer.add_tensor("t", stored, raw_dtype=kind)
    writer.add_tensor("u", np.arange(5, dtype=np.float32))
    finish(writer)


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        (Q.F32, 0.0),
        (Q.F16, 2e-3),
        (Q.BF16, 2e-2),
        (Q.Q8_0, 2e-2),
        (Q.Q5_0, 0.15),
        (Q.Q5_1, 0.12),
        (Q.Q4_0, 0.3),
        (Q.Q4_1, 0.25),
    ],
)
def test_round_trip(tmp_path: Path, kind: gguf.GGMLQuantizationType, tolerance: float) -> None:
    write_gguf(tmp_path / "m.gguf", kind, quantize(VALUES, kind))
    with GgufWeights(tmp_path / "m.gguf") as source:
        assert (source.names(), source.shape("t"), source.stored_type("t")) == (
            ["t", "u"],
            (3, 256),
            kind.name,
        )
        assert source.metadata["some.words"] == ["a", "\u00e9"]
        assert source.metadata["some.flags"] == [True, False] and source.metadata["some.numbers"] == [
            1.5,
            -2.0,
        ]
        values = source.get("t")
        np.testing.assert_array_equal(source.get("u"), np.arange(5))
    assert values.dtype == np.float32 and values.flags.writeable
    np.testing.assert_allclose(values, VALUES, atol=tolerance)


def k_block(kind: gguf.GGMLQuantizationType, scale: float, minimum: float) -> tuple[np.ndarray, np.ndarray]:
    """One hand-made super-block of 256 weights with all sub-scales 1 (and sub-minima 1), and its values."""
    levels = np.arange(256, dtype=np.int64) % {Q.Q4_K: 16, Q.Q5_K: 32, Q.Q6_K: 64}[kind]
    if kind == Q.Q6_K:
        halves = levels.reshape(2, 4, 32)
        low = (halves[:, :2] & 15) | ((halves[:, 2:] & 15) << 4)
        high = sum((halves[:, n] >> 4) << 2 * n for n in range(4))
        parts = [low.ravel(), high.ravel(), np.ones(16, dtype=np.int64)]
        block = np.concatenate(
            [p.astype(np.uint8) for p in parts] + [np.array([scale], "<f2").view(np.uint8)]
        )
        return block, scale * (levels - 32)
    # Scales 0-3 and minima 0-3 in the low six bits of bytes 0-3 and 4-7; 4-7 share a byte of two nibbles.
    packed = np.array([1] * 8 + [0x11] * 4, dtype=np.uint8)
    groups = levels.reshape(4, 2, 32)
    low = (groups[:, 0] & 15) | ((groups[:, 1] & 15) << 4)
    parts = [np.array([scale, minimum], "<f2").view(np.uint8), packed]
    if kind == Q.Q5_K:
        bits = levels.reshape(8, 32) >> 4
        parts.append(sum(bits[n] << n for n in range(8)).astype(np.uint8))
    parts.append(low.ravel().astype(np.uint8))
    return np.concatenate(parts), scale * levels - minimum


@pytest.mark.parametrize("kind", [Q.Q4_K, Q.Q5_K, Q.Q6_K])
def test_k_quants_by_hand(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    block, expected = k_block(kind, scale=0.5, minimum=2.0)
    assert block.size == GGML_QUANT_SIZES[kind][1]
    write_gguf(tmp_path / "m.gguf", kind, np.stack([block, block]))
    with GgufWeights(tmp_path / "m.gguf") as source:
        np.testing.assert_array_equal(source.get("t"), np.stack([expected, expected]))


def test_all_promised_types_are_tested() -> None:
    tested = {"F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"}
    assert set(SUPPORTED_TYPES) == tested


def test_unsupported_type_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", Q.IQ4_NL, np.zeros((3, 18 * 8), np.uint8))
    with (
        GgufWeights(tmp_path / "m.gguf") as source,
        pytest.raises(ModelLoadError, match=r"`t` is stored as IQ4_NL.*Supported: F32, .*Q6_K"),
    ):
        source.get("t")


def whole_gguf(folder: Path) -> bytes:
    path = folder / "whole.gguf"
    if not path.exists():
        write_gguf(path, Q.Q4_1, quantize(VALUES, Q.Q4_1))
    return path.read_bytes()


def read_all_gguf(path: Path) -> None:
    with GgufWeights(path) as source:
        for name in source.names():
            assert source.get(name).shape == source.shape(name)


@FUZZ
@given(data=st.data())
def test_gguf_cut_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    whole = whole_gguf(tmp_path)
    end = data.draw(st.integers(0, len(whole) - 1))
    (tmp_path / "cut.gguf").write_bytes(whole[:end])
    padding = -(5 * 4) % 32  # the writer pads the last tensor too; nothing reads that
    if end >= len(whole) - padding:
        read_all_gguf(tmp_path / "cut.gguf")
    else:
        with pytest.raises(ModelLoadError):
            read_all_gguf(tmp_path / "cut.gguf")


@FUZZ
@given(data=st.data(), mask=st.integers(1, 255))
def test_gguf_byte_changed_anywhere(tmp_path: Path, data: st.DataObject, mask: int) -> None:
    broken = bytearray(whole_gguf(tmp_path))
    header = 500
    broken[data.draw(st.one_of(st.integers(0, header), st.integers(0, len(broken) - 1)))] ^= mask
    (tmp_path / "flipped.gguf").write_bytes(broken)
    try:
        read_all_gguf(tmp_path / "flipped.gguf")
    except ModelLoadError as error:
        assert "flipped.gguf" in str(error) and error.remedy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"GGU", "not a GGUF file"),
        (b"PK\x03\x04 something else", "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1), "version 1"),
        (b"GGUF" + struct.pack(">I", 3), "byte order"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "tensor count"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "metadata count"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + b"k" * 40, "metadata key"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 2**61),
            "metadata `k`",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 77), "unknown value type 77"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 9) * 20, "metadata `k`"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"\xff\xfe" + b"0" * 20, "not valid UTF-8"),
    ],
)
def test_gguf_absurd_headers(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelLoadError, match=message):
        GgufWeights(tmp_path / "m.gguf")


@pytest.mark.parametrize("reader", [GgufWeights, lambda path: SafetensorsWeights(path, {})])
def test_missing_file(tmp_path: Path, reader: type) -> None:
    with pytest.raises(ModelLoadError, match="absent"):
        reader(tmp_path / "absent")


def write_safetensors(folder: Path) -> bytes:
    path = folder / "whole" / "model.safetensors"
    if not path.exists():
        path.parent.mkdir()
        tensors = {"a": VALUES, "b": VALUES.astype(np.float16), "c": VALUES.astype(np.float64)}
        save_file(tensors, path, metadata={"format": "np"})
    return path.read_bytes()


def read_all_safetensors(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with SafetensorsWeights(folder, {}) as source:
        for name in source.names():
            assert source.get(name).shape == source.shape(name)


def test_safetensors_values(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    with SafetensorsWeights(tmp_path / "whole", {}) as source:
        np.testing.assert_array_equal(source.get("a"), VALUES)
        np.testing.assert_array_equal(source.get("b"), VALUES.astype(np.float16).astype(np.float32))
        np.testing.assert_array_equal(source.get("c"), VALUES)


def test_bfloat16_equals_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    tensor = torch.from_numpy(VALUES).to(torch.bfloat16)
    save_torch({"t": tensor}, tmp_path / "model.safetensors")
    with SafetensorsWeights(tmp_path, {}) as source:
        np.testing.assert_array_equal(source.get("t"), tensor.float().numpy())


def test_safetensors_unsupported_type(tmp_path: Path) -> None:
    save_file({"t": np.zeros(4, np.int8)}, tmp_path / "model.safetensors")
    with (
        SafetensorsWeights(tmp_path, {}) as source,
        pytest.raises(ModelLoadError, match=r"`t` is stored as I8.*Supported: F64"),
    ):
        source.get("t")


@FUZZ
@given(data=st.data())
def test_safetensors_cut_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    whole = write_safetensors(tmp_path)
    end = data.draw(st.one_of(st.integers(0, 300), st.integers(0, len(whole) - 1)))
    with pytest.raises(ModelLoadError):
        read_all_safetensors(tmp_path, whole[:end])


@FUZZ
@given(data=st.data(), mask=st.integers(1, 255))
def test_safetensors_byte_changed_anywhere(tmp_path: Path, data: st.DataObject, mask: int) -> None:
    broken = bytearray(write_safetensors(tmp_path))
    broken[data.draw(st.one_of(st.integers(0, 300), st.integers(0, len(broken) - 1)))] ^= mask
    try:
        read_all_safetensors(tmp_path, bytes(broken))
    except ModelLoadError as error:
        assert str(tmp_path) in str(error) and error.remedy


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("nonsense", "index can't be read"),
        (json.dumps({"weight_map": {"a": "../elsewhere"}}), "outside the folder"),
        (json.dumps({"weight_map": {}}), "0 of 0 shards"),
        (json.dumps({"weight_map": {"a": "model-1.safetensors"}}), "1 of 1 shards are missing: model-1"),
        (json.dumps({"weight_map": {"zz": "model.safetensors"}}), "`zz`, which the index promises"),
    ],
)
def test_bad_index(tmp_path: Path, index: str, message: str) -> None:
    write_safetensors(tmp_path)
    folder = tmp_path / "whole"
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelLoadError, match=message):
        SafetensorsWeights(folder, {})
