"""The guard in somebody else's process: light, and for Pythons and torches that preflight itself does not ask for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS

import preflight.guard as package
from preflight import guard

FOLDER = Path(package.__file__).parent
HEAVY = ("pydantic", "yaml", "click", "rich", "hydra", "torch", "numpy", "optuna", "preflight.vocabulary", "sqlite3")


def test_importing_it_imports_nothing_else() -> None:
    program = f"import sys; from preflight import guard; print([one for one in {HEAVY} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANGS, check=True)
    assert done.stdout == "[]\n"


def test_a_study_without_torch_is_guarded() -> None:
    """Its program may train with something else, and torch takes seconds."""
    program = "import sys; from preflight import guard; guard.optuna(print); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANGS, check=True)
    assert done.stdout == "False\n"


def test_its_names_are_there() -> None:
    for name in guard.__all__:
        if name != "optuna":
            assert getattr(guard, name) is not None
    assert dir(guard) == guard.__all__
    with pytest.raises(AttributeError, match="no attribute"):
        guard.there_is_no_such_name  # noqa: B018


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_it_is_of_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 9))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Match)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("zip", "isinstance"):
            assert not any(word.arg == "strict" for word in node.keywords)
            assert not any(isinstance(part, ast.BinOp) for part in node.args[1:]), "a union where it is evaluated"
