"""Both formats of one checkpoint open as the same model, and as what transformers makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import SIZES, finish, gguf_tensor, gguf_writer, write_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from belady.models.config import LinearRope, Llama3Rope, RopeDivisors
from belady.models.errors import ModelLoadError
from belady.models.source import ModelSource, open_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {}, {"llama.rope.freq_base": 10000.0}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}, {}),
    "llama-bias": ("llama", {"attention_bias": True, "mlp_bias": True}, {}),
    "llama3": ("llama", {"rope_parameters": LLAMA3}, {}),
    "qwen2": ("qwen2", {}, {"qwen2.rope.freq_base": 10000.0}),
    "qwen3": ("qwen3", {}, {"qwen3.rope.freq_base": 10000.0}),
    "gemma3": (
        "gemma3",
        {
            "rope_parameters": GEMMA_ROPE,
            "sliding_window": 16,
            "sliding_window_pattern": 2,
            "query_pre_attn_scalar": 8,
        },
        {
            "gemma3.rope.freq_base": 1e6,
            "gemma3.rope.scaling.type": "linear",
            "gemma3.rope.scaling.factor": 8.0,
            "gemma3.attention.sliding_window": 16,
            "gemma3.attention.sliding_window_pattern": 2,
        },
    ),
}
CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3Text"}


def build(case: str, folder: Path) -> Any:
    """Save the case's random checkpoint into `folder`; return the transformers model."""
    family, options, _ = CASES[case]
    config_class = getattr(transformers, f"{CLASSES[family]}Config")
    model_class = getattr(transformers, f"{CLASSES[family].removesuffix('Text')}ForCausalLM")
    torch.manual_seed(len(case))
    model = model_class(config_class(**SIZES | {"tie_word_embeddings": family == "gemma3"} | options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 4)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return model


def build_gguf(case: str, model: Any, path: Path) -> None:
    family, options, extra = CASES[case]
    strings = {k: v for k, v in extra.items() if isinstance(v, str)}
    writer = gguf_writer(path, family, {k: v for k, v in extra.items() if k not in strings})
    for key, value in strings.items():
        writer.add_string(key, value)
    tied = model.config.tie_word_embeddings
    for name, tensor in model.state_dict().items():
        if not (tied and name == "lm_head.weight"):
            writer.add_tensor(*gguf_tensor(name, tensor.numpy(), family))
    if options.get("rope_parameters") is LLAMA3:
        plain = 10000.0 ** -(np.arange(0, 8, 2) / 8)
        divisors = plain / model.model.rotary_emb.inv_freq.numpy()
        writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    finish(writer)


@pytest.fixture(scope="module", params=sorted(CASES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    model = build(request.param, folder)
    build_gguf(request.param, model, folder / "same.gguf")
    with open_model(folder) as hf, open_model(folder / "same.gguf") as gg:
        yield model, hf, gg


def test_same_tensors(pair: tuple[Any, ModelSource, ModelSource]) -> None:
    _, hf, gg = pair
    assert hf.weights.names() == gg.weights.names()
    for name in hf.weights.names():
        ours = hf.weights.get(name)
        assert ours.dtype == np.float32 and ours.flags.writeable and ours.shape == hf.weights.shape(name)
        np.testing.assert_array_equal(ours, gg.weights.get(name), err_msg=name)


def test_every_parameter_of_the_checkpoint_is_used(pair: tuple[Any, ModelSource, ModelSource]) -> None:
    model, hf, _ = pair
    assert sum(hf.weights.get(n).size for n in hf.weights.names()) == sum(
        p.numel() for p in model.parameters()
    )


def test_same_config(pair: tuple[Any, ModelSource, ModelSource]) -> None:
    _, hf, gg = pair
    same = replace(gg.config, rope_scaling=hf.config.rope_scaling, norm_eps=hf.config.norm_eps)
    assert same == hf.config
    assert gg.config.norm_eps == pytest.approx(hf.config.norm_eps)
    for kind in set(hf.config.layer_types):
        np.testing.assert_allclose(
            gg.config.inverse_frequencies(kind), hf.config.inverse_frequencies(kind), rtol=1e-6
        )


def test_config_is_what_transformers_computes(pair: tuple[Any, ModelSource, ModelSource]) -> None:
    model, hf, _ = pair
    rotary = model.model.rotary_emb
    for layer, kind in zip(model.model.layers, hf.config.layer_types, strict=True):
        assert layer.self_attn.scaling == pytest.approx(hf.config.attention_scale)
        assert (getattr(layer.self_attn, "sliding_window", None) is not None) == (kind == "window")
        name = {"full": "full_attention", "window": "sliding_attention"}[kind]
        theirs = getattr(rotary, f"{name}_inv_freq", None)
        theirs = rotary.inv_freq if theirs is None else theirs
        np.testing.assert_allclose(hf.config.inverse_frequencies(kind), theirs.numpy(), rtol=1e-6)


def test_scaling_kinds(pair: tuple[Any, ModelSource, ModelSource], request: pytest.FixtureRequest) -> None:
    _, hf, gg = pair
    case = request.node.callspec.params["pair"]
    expected = {"llama3": (Llama3Rope, RopeDivisors), "gemma3": (LinearRope, LinearRope)}.get(
        case, (type(None),) * 2
    )
    assert (type(hf.config.rope_scaling), type(gg.config.rope_scaling)) == expected


def test_text_side(pair: tuple[Any, ModelSource, ModelSource]) -> None:
    _, hf, gg = pair
    assert hf.chat_template is not None and hf.chat_template.render([{"content": "hi"}]) == "hi"
    assert gg.chat_template is None
    assert hf.tokenizer.encode("cdef") == gg.tokenizer.encode("cdef") == [2, 3, 4, 5]
    assert gg.config.eos_ids == hf.config.eos_ids == (1,)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), mask=st.integers(1, 255))
def test_changed_byte_opens_or_is_one_error(
    pair: tuple[Any, ModelSource, ModelSource], tmp_path: Path, data: st.DataObject, mask: int
) -> None:
    """Whatever a damaged header says about the model and its tokenizer, a user sees one typed error."""
    broken = bytearray(pair[2].path.read_bytes())
    header = len(broken) - sum(4 * pair[2].weights.get(name).size for name in pair[2].weights.names())
    broken[data.draw(st.integers(0, min(header, 2500)))] ^= mask
    path = tmp_path / "flipped.gguf"
    path.write_bytes(broken)
    try:
        with open_model(path) as source:
            assert source.weights.get("final_norm.weight").size > 0
    except ModelLoadError as error:
        assert "flipped.gguf" in str(error)


def test_sharded_checkpoint(tmp_path: Path) -> None:
    model = build("llama", tmp_path)
    whole = {n: p.numpy() for n, p in model.state_dict().items()}
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    with open_model(tmp_path) as source:
        np.testing.assert_array_equal(source.weights.get("embed.weight"), whole["model.embed_tokens.weight"])
    shards[0].unlink()
    with pytest.raises(ModelLoadError, match=rf"1 of {len(shards)} shards are missing: {shards[0].name}"):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "'mamba' is not supported. Supported model types: llama"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised with 'gptq'"),
        ({"hidden_size": -4}, "`hidden_size` is -4"),
        ({"hidden_size": None}, "`hidden_size` is missing"),
        ({"num_hidden_layers": 10**12}, "not a positive number of sensible size"),
        ({"num_hidden_layers": 10**8}, "not a positive number of sensible size"),
        ({"num_hidden_layers": 4}, r"tensor `model\.layers\.3\..*` is missing"),
        ({"vocab_size": 41}, r"has shape \[40, 32\], the config says \[41, 32\]"),
        ({"num_key_value_heads": 3}, "does not divide"),
        ({"hidden_act": "relu"}, "supported: silu"),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 2}},
            r"'yarn'; supported: default, linear, llama3\. Use another model$",
        ),
        ({"eos_token_id": "x"}, "not a token id"),
    ],
)
def test_config_errors(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    build("llama", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelLoadError, match=message):
        open_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_or_garbled_file(tmp_path: Path, name: str) -> None:
    build("llama", tmp_path)
    (tmp_path / name).write_bytes(b"\xff\xfenonsense")
    with pytest.raises(ModelLoadError, match=name):
        open_model(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelLoadError, match=name):
        open_model(tmp_path)


def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelLoadError, match="no such file or folder"):
        open_model(tmp_path / "absent.gguf")
    monkeypatch.setenv("BELADY_CACHE", str(tmp_path))
    with pytest.raises(ModelLoadError, match="belady fetch"):
        open_model(None)


def test_hub_id_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*_: object, **__: object) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(ModelLoadError, match="can't be reached") as caught:
        open_model("some-org/some-model")
    assert "give its path" in caught.value.remedy


def test_a_broken_chat_template_costs_the_chat_endpoint_only(tmp_path: Path) -> None:
    build("llama", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with open_model(tmp_path) as source:
        assert source.chat_template is not None and source.chat_template.problem is not None
        assert "completions endpoint" in source.chat_template.problem
        assert source.tokenizer.encode("hi")
