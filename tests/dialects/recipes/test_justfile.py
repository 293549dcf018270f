"""justfiles: what just would hand to the shell, and files that start nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.dialects.recipes.justfile import Justfile
from tests.recipes_as_text import batches, commands

NOTHING = {
    "no program of the project": "build:\n    cargo build\n",
    "a comment": "train:\n    # python train.py\n",
    "an echo": "train:\n    @echo 'python train.py'\n",
    "a script in another language": "train:\n    #!/usr/bin/env python3\n    print('python train.py')\n",
    "a variable": "train := 'python train.py'\n",
    "another recipe": "train:\n    just fit\n",
}
READ = {
    "a plain recipe": ("train:\n    python train.py --batch-size 8\n", ["train.py --batch-size 8"]),
    "silent": ("@train:\n    @python train.py\n", ["train.py"]),
    "variables": (
        "b := '8'\nout := \"runs/\" + b\ntrain:\n    python train.py --batch-size {{b}} --out {{ out }}\n",
        ["train.py --batch-size 8 --out runs/8"],
    ),
    "a default": ("train b='8':\n    python train.py --batch-size {{b}}\n", ["train.py --batch-size 8"]),
    "an argument": ("train b:\n    python train.py --batch-size {{b}}\n", ["train.py --batch-size ?"]),
    "all arguments": ("train *args:\n    python train.py {{args}}\n", ["train.py ?"]),
    "a variable of the environment": (
        "b := env_var_or_default('B', '8')\ntrain:\n    python train.py --batch-size {{b}}\n",
        ["train.py --batch-size 8"],
    ),
    "a command": ("b := `nproc`\ntrain:\n    python train.py --batch-size {{b}}\n", ["train.py --batch-size ?"]),
    "a function": ("b := num_cpus()\ntrain:\n    python train.py --batch-size {{b}}\n", ["train.py --batch-size ?"]),
    "not set": ("train:\n    python train.py --batch-size {{b}}\n", ["train.py --batch-size ?"]),
    "of itself": ("b := b\ntrain:\n    python train.py --batch-size {{b}}\n", ["train.py --batch-size ?"]),
    "each line has a shell of its own": (
        "train:\n    B=8\n    python train.py --batch-size $B\n",
        ["train.py --batch-size ?"],
    ),
    "a script": (
        "train:\n    #!/usr/bin/env bash\n    B=8\n    python train.py --batch-size $B\n",
        ["train.py --batch-size 8"],
    ),
    "lines that go on": (
        "train:\n    python train.py \\\n      --batch-size 8\n",
        ["train.py --batch-size 8"],
    ),
    "exported": ("export B := '8'\ntrain:\n    python train.py --batch-size $B\n", ["train.py --batch-size 8"]),
    "with dependencies": ("data:\n    ls\ntrain: data\n    python train.py\n", ["train.py"]),
    "with attributes and settings": (
        "set shell := ['bash', '-c']\n[private]\ntrain:\n    python train.py\n",
        ["train.py"],
    ),
}


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_a_justfile_that_starts_nothing(text: str, tmp_path: Path) -> None:
    assert commands("justfile", text, tmp_path) == []


@pytest.mark.parametrize(("text", "found"), READ.values(), ids=READ)
def test_the_commands_of_a_justfile(text: str, found: list[str], tmp_path: Path) -> None:
    assert commands("justfile", text, tmp_path) == found


@pytest.mark.parametrize("name", ["Justfile", ".justfile", "train.just"])
def test_the_names_of_justfiles(name: str, tmp_path: Path) -> None:
    assert commands(name, "t:\n    python train.py\n", tmp_path) == ["train.py"]


def test_a_finding_points_to_the_line_of_the_variable(tmp_path: Path) -> None:
    text = "# sizes\nb := '8'\nt:\n    python train.py --batch-size {{b}}\n"
    assert batches("justfile", text, tmp_path) == [(8, "justfile:2")]


def test_variables_that_double_each_other_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read once at each depth: read wherever it is named, they would be thousands."""
    read: list[int] = []
    value = Justfile._value
    monkeypatch.setattr(Justfile, "_value", lambda *given: (read.append(given[-1]), value(*given))[1])
    doubled = "".join(f"v{n + 1} := v{n} + v{n}\n" for n in range(12))
    text = f"v0 := 'x'\n{doubled}t:\n    python train.py --batch-size {{{{v12}}}}\n"
    assert commands("justfile", text, tmp_path) == ["train.py --batch-size ?"]
    assert 12 <= len(read) < 200
