"""Opens a model: one description, whatever it came as (Hugging Face folder, GGUF file, hub id, or nothing).

What comes out is the same for both formats: a `ModelConfig`, tensors under canonical names, a tokenizer and,
where the model has one, a chat template. Everything that can be found wrong without reading tensor data is
found here. Does not know how a network computes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from belady.models.config import ModelConfig
from belady.models.errors import ModelLoadError
from belady.models.fetch import default_model_path
from belady.models.weights import gguf, safetensors
from belady.models.weights.canonical import CanonicalWeights, has_lm_head
from belady.models.weights.gguf_config import parse_gguf_config
from belady.models.weights.hf_config import parse_hf_config
from belady.text.chat_template import ChatTemplate
from belady.text.errors import TemplateError, TokenizerError
from belady.text.gguf_tokenizer import load_gguf_tokenizer
from belady.text.hf_tokenizer import load_hf_tokenizer, token_text
from belady.text.tokenizer import Tokenizer

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """An open model. Close it once the weights are loaded; everything but `weights` stays usable."""

    path: Path
    name: str  # what to call it: the folder's name, or the file's without its suffix
    config: ModelConfig
    weights: CanonicalWeights
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None

    def close(self) -> None:
        """Release the weight files. Idempotent."""
        self.weights.close()

    def __enter__(self) -> ModelSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_model(model: str | Path | None = None) -> ModelSource:
    """Open a folder, a .gguf file, a hub id (`org/name`, which may download), or the default model (None).

    Raises ModelLoadError, which says what was wrong and what to do, for anything that can't be served.
    """
    path = resolve(model)
    try:
        return _open_gguf(path) if path.is_file() else _open_folder(path)
    except (TokenizerError, TemplateError) as error:
        raise ModelLoadError(path, str(error).removeprefix(f"{path}: "), "") from error
    except OSError as error:
        raise ModelLoadError(
            path, f"it can't be read ({error.strerror or error})", "Check the path and its permissions"
        ) from error


def resolve(model: str | Path | None) -> Path:
    """Local path of a model; downloads a hub id that is not cached. Raises ModelLoadError."""
    if model is None:
        default = default_model_path()
        if default is None:
            raise ModelLoadError(
                "default model",
                "it is not in the cache",
                "Run `belady fetch`, or name a model: `belady serve PATH`",
            )
        return default
    path = Path(model).expanduser()
    if path.exists():
        return path
    if isinstance(model, str) and _HUB_ID.fullmatch(model) and not model.startswith((".", "/")):
        return _from_hub(model)
    raise ModelLoadError(
        path,
        "there is no such file or folder",
        "Give a .gguf file, a Hugging Face folder, or a hub id like org/name",
    )


def _from_hub(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(_HUB_FILES)))
    except Exception as error:  # the client raises errors of several libraries
        kind = type(error).__name__
        if kind in (
            "RepositoryNotFoundError",
            "GatedRepoError",
            "HFValidationError",
            "RevisionNotFoundError",
        ):
            raise ModelLoadError(
                hub_id,
                f"no local path has this name, and the model hub refuses it ({kind})",
                "Check the spelling; for a gated model, accept its terms and log in with `hf auth login`",
            ) from error
        raise ModelLoadError(
            hub_id,
            f"no local path has this name, and the model hub can't be reached ({kind})",
            "Check the network, or download the model elsewhere and give its path",
        ) from error


def _open_gguf(path: Path) -> ModelSource:
    source = gguf.GgufWeights(path)
    try:
        metadata = source.metadata
        config = parse_gguf_config(source)
        tokenizer = load_gguf_tokenizer(metadata, config.eos_ids)
        tokens = metadata.get("tokenizer.ggml.tokens", [])
        ids = {"bos_token": tokenizer.bos_id, "eos_token": next(iter(tokenizer.eos_ids), None)}
        template = metadata.get("tokenizer.chat_template")
        return ModelSource(
            path=path,
            name=path.stem,
            config=config,
            weights=CanonicalWeights(source, config, is_gguf=True, readable=gguf.SUPPORTED_TYPES),
            tokenizer=tokenizer,
            chat_template=_template(template, {k: tokens[i] for k, i in ids.items() if i is not None}),
        )
    except BaseException:
        source.close()
        raise


def _open_folder(folder: Path) -> ModelSource:
    raw = _read_json(folder / "config.json")
    if raw is None:
        raise ModelLoadError(
            folder,
            "there is no config.json",
            "Give a folder in Hugging Face format, or a .gguf file by its own path",
        )
    generation = _read_json(folder / "generation_config.json") or {}
    tokenizer_config = _read_json(folder / "tokenizer_config.json") or {}
    # Settings first: an unsupported architecture is a better message than whatever its weights lack.
    parse_hf_config(folder, raw, generation, has_lm_head=True)
    source = safetensors.SafetensorsWeights(folder, raw)
    try:
        config = parse_hf_config(folder, raw, generation, has_lm_head=has_lm_head(source.names()))
        specials = {
            k: token_text(tokenizer_config.get(k))
            for k in ("bos_token", "eos_token", "unk_token", "pad_token")
        }
        template = _folder_template(folder, tokenizer_config)
        return ModelSource(
            path=folder,
            name=folder.resolve().name,
            config=config,
            weights=CanonicalWeights(source, config, is_gguf=False, readable=safetensors.SUPPORTED_TYPES),
            tokenizer=load_hf_tokenizer(folder, tokenizer_config, config.eos_ids),
            chat_template=_template(template, {k: v for k, v in specials.items() if v is not None}),
        )
    except BaseException:
        source.close()
        raise


def _read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, None when there is no file."""
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelLoadError(path, f"it is not a JSON object ({error})", "Get the file again") from error


def _folder_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> Any:
    """Template text: its own file first, then an older JSON file, then the tokenizer's config."""
    own = folder / "chat_template.jinja"
    if own.is_file():
        try:
            return own.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ModelLoadError(own, "it is not UTF-8 text", "Get the file again") from error
    older = _read_json(folder / "chat_template.json") or {}
    return older.get("chat_template") or tokenizer_config.get("chat_template")


def _template(raw: Any, special_tokens: Mapping[str, str]) -> ChatTemplate | None:
    """Compile a template given as text, or as a list of named ones, of which `default` is meant."""
    if isinstance(raw, list):
        named = {item.get("name"): item.get("template") for item in raw if isinstance(item, Mapping)}
        raw = named.get("default", next(iter(named.values()), None))
    return ChatTemplate(raw, special_tokens) if isinstance(raw, str) and raw.strip() else None
