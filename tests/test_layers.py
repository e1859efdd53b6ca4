"""The import rules of ARCHITECTURE.md, and the purity of the core."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "belady"
IMPURE = {
    "time",
    "random",
    "os",
    "socket",
    "threading",
    "asyncio",
    "pathlib",
    "io",
    "secrets",
    "datetime",
    "numpy",
    "torch",
}


@pytest.mark.parametrize(
    "path",
    [
        *sorted((SOURCE / "core").rglob("*.py")),
        *(p for p in sorted((SOURCE / "policy").rglob("*.py")) if p.name != "registry.py"),
    ],
    ids=lambda p: str(p.relative_to(SOURCE)),
)
def test_decisions_are_pure(path: Path) -> None:
    """No clock, file, socket, thread, randomness or tensor in `core` and `policy`."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.partition(".")[0] not in IMPURE, f"{path.name} imports {name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "input", "exec", "eval"), f"{path.name} calls {node.func.id}"


def test_import_contracts_hold() -> None:
    run = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=SOURCE.parent.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    "module", ["belady.core.scheduler", "belady.policy.registry", "belady.formats", "belady.report"]
)
def test_base_install_needs_no_heavy_library(module: str) -> None:
    code = (
        f"import sys, {module}; "
        "heavy = {'numpy', 'torch', 'starlette', 'transformers', 'httpx'} & set(sys.modules); "
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
