"""Folders that a program adds to `sys.path`: where its imports are looked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from preflight.python.interpreter import Interpreter

Run = Callable[..., Interpreter]

IMPORT = "from lib import probe\nfrom net import SIZE\nprobe(SIZE)\n"


def size(found: Interpreter) -> object:
    [call] = [one for one in found.calls if one.method == "probe"]
    return found.value_of(call.args[0]) if call.args else None


ADDED = {
    "from where it starts": 'import sys\nsys.path.append("nets/small")\n',
    "from its own folder": "import os, sys\nhere = os.path.dirname(os.path.abspath(__file__))\n"
    'sys.path.insert(0, os.path.join(here, "..", "..", "nets", "small"))\n',
    "with pathlib": "import sys\nfrom pathlib import Path\n"
    'sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "nets" / "small"))\n',
    "several": 'import sys\nsys.path.extend(["nowhere", "nets/small"])\n',
    "after the program's own": 'import sys\nsys.path += ["nets/large"]\nsys.path.append("nets/small")\n',
}


@pytest.mark.parametrize("text", ADDED.values(), ids=ADDED.keys())
def test_a_module_is_found_in_a_folder_that_was_added(run: Run, text: str) -> None:
    files = {"nets/small/net.py": "SIZE = 2\n"}
    assert size(run(text + IMPORT, files, path="runs/one/train.py")) == 2


def test_it_is_not_found_without(run: Run) -> None:
    assert size(run(IMPORT, {"nets/small/net.py": "SIZE = 2\n"}, path="runs/one/train.py")) != 2


@pytest.mark.parametrize(("how", "expected"), [("append(", 1), ("insert(0, ", 2)])
def test_the_order_of_python(run: Run, how: str, expected: int) -> None:
    """The program's own folder comes before one that is appended."""
    files = {"nets/net.py": "SIZE = 2\n", "runs/net.py": "SIZE = 1\n"}
    assert size(run(f'import sys\nsys.path.{how}"nets")\n{IMPORT}', files, path="runs/train.py")) == expected


def test_it_counts_only_after_it_was_added(run: Run) -> None:
    found = run(f'{IMPORT}import sys\nsys.path.append("nets")\n', {"nets/net.py": "SIZE = 2\n"})
    assert size(found) != 2


@pytest.mark.parametrize("folder", ["/etc", "../..", "nowhere", "net.py"])
def test_folders_outside_of_the_project_are_left_alone(run: Run, folder: str) -> None:
    found = run(f'import sys\nsys.path.append("{folder}")\n{IMPORT}', {"nets/net.py": "SIZE = 2\n"})
    assert found.import_folders == {}
