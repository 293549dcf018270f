"""preflight.api: what rules are written with. It is documented and typed, and preflight's own rules use it alone."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import get_type_hints

import pytest

from preflight import api

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
RULES = sorted((ROOT / "rules").rglob("*.py"))
FUNCTIONS = [name for name in api.__all__ if inspect.isfunction(getattr(api, name))]
CLASSES = [name for name in api.__all__ if isinstance(getattr(api, name), type)]


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_import_of_preflight_the_public_names_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "preflight":
            assert node.module == "preflight.api"
            assert {alias.name for alias in node.names} <= set(api.__all__)
        elif isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "preflight" for alias in node.names)


def test_every_import_of_the_module_is_public() -> None:
    tree = ast.parse(inspect.getsource(api))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("preflight")
        for alias in node.names
    }
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert imported | defined == set(api.__all__)
    assert len(api.__all__) == len(set(api.__all__))


def test_every_name_is_on_the_page() -> None:
    assert [name for name in api.__all__ if f"`{name}`" not in PAGE] == []


def test_everything_public_says_what_it_is() -> None:
    for name in (*FUNCTIONS, *CLASSES):
        found = getattr(api, name)
        assert found.__doc__, name
        assert not found.__doc__.startswith(f"{name}("), "made by dataclass, not written"
        assert not isinstance(found, type) or "__doc__" in vars(found), name


def test_every_function_is_typed() -> None:
    for name in FUNCTIONS:
        signature = inspect.signature(getattr(api, name))
        assert signature.return_annotation is not inspect.Signature.empty, name
        assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values()), name


def test_the_types_of_a_rule_can_be_looked_up() -> None:
    assert get_type_hints(api.Rule.check)["return"]
