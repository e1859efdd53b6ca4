from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import write_checkpoint


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("llama")
    write_checkpoint(folder, "llama")
    return folder


@pytest.fixture(scope="session")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("gemma")
    write_checkpoint(folder, "gemma3")
    return folder
