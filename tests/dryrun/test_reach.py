"""A dry run executes code of the user: nothing but its command leads to it. Its inner part stands alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import preflight

HOME = Path(preflight.__file__).parent
INSIDE = sorted((HOME / "dryrun" / "inside").rglob("*.py"))
COMMAND = "commands/dry_run.py"


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, also in functions; and names of modules in its strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            yield node.value


def leads_to(path: Path, name: str) -> bool:
    said = name.rpartition(".")[2] in path.read_text(encoding="utf-8")  # the others need not be parsed
    return said and any(one.startswith(name) for one in imported(path))


def test_only_the_command_leads_to_a_dry_run() -> None:
    files = [path for home in (HOME, HOME.parent / "rules") for path in home.rglob("*.py")]
    found = [str(path.relative_to(HOME)) for path in files if leads_to(path, "preflight.dryrun")]
    assert [name for name in found if not name.startswith("dryrun/")] == [COMMAND]


def test_nothing_leads_to_the_command() -> None:
    files = [path for path in HOME.rglob("*.py") if leads_to(path, "preflight.commands.dry_run")]
    assert files == []


def test_hooks_and_the_action_do_not_start_it() -> None:
    root = HOME.parent
    for name in (".pre-commit-hooks.yaml", "action.yml"):
        assert "dry-run" not in (root / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", INSIDE, ids=lambda path: path.name)
def test_the_inner_part_stands_alone(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 9))
    assert "from __future__ import annotations" in text or not text.partition('"""')[2].partition('"""')[2].strip()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            assert not any(alias.name.partition(".")[0] == "preflight" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").partition(".")[0] != "preflight"
