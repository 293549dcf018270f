"""Makefiles: what make would hand to the shell, and files that start nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.dialects.recipes.make_variables import Scope
from tests.recipes_as_text import batches, commands

NOTHING = {
    "a program of its own": "all:\n\tgcc -o main main.c\n",
    "a program that is not in the project": "lint:\n\tpython -m pip install -e .\n\tpython other.py\n",
    "a comment": "all:\n\t# python train.py\n",
    "an echo": "help:\n\t@echo python train.py\n",
    "no recipe": "TRAIN = python train.py\n",
    "another make": "all:\n\t$(MAKE) -C sub train\n",
    "a canned recipe": "define run\n\tpython train.py\nendef\n",
    "a program whose name is unknown": "all:\n\t$(PYTHON) train.py\n",
}
READ = {
    "a plain recipe": ("train:\n\tpython train.py --batch-size 8\n", ["train.py --batch-size 8"]),
    "silent, and its failure is none": ("train:\n\t-@python train.py\n", ["train.py"]),
    "a recipe on the line of the rule": ("train: data ; python train.py --batch-size 8\n", ["train.py --batch-size 8"]),
    "variables": (
        "B := 8\nW = 2\nARGS = --batch-size $(B) --workers ${W}\nt:\n\tpython train.py $(ARGS)\n",
        ["train.py --batch-size 8 --workers 2"],
    ),
    "a variable that is set below": ("t:\n\tpython train.py --batch-size $B\nB = 8\n", ["train.py --batch-size 8"]),
    ":= is expanded where it stands": (
        "B = 8\nA := --batch-size $(B)\nB = 16\nt:\n\tpython train.py $(A)\n",
        ["train.py --batch-size 8"],
    ),
    "= is expanded where it is used": (
        "B = 8\nA = --batch-size $(B)\nB = 16\nt:\n\tpython train.py $(A)\n",
        ["train.py --batch-size 16"],
    ),
    "+=": (
        "A = --batch-size 8\nA += --workers 2\nt:\n\tpython train.py $(A)\n",
        ["train.py --batch-size 8 --workers 2"],
    ),
    "?= after a value": ("B = 8\nB ?= 9\nt:\n\tpython train.py --batch-size $(B)\n", ["train.py --batch-size 8"]),
    "a comment behind a value": ("B = 8 # of 24 GiB\nt:\n\tpython train.py --workers=$(B)\n", ["train.py --workers=8"]),
    "lines that go on": (
        "A = --batch-size \\\n    8\nt:\n\tpython train.py $(A) \\\n\t  --workers 2\n",
        ["train.py --batch-size 8 --workers 2"],
    ),
    "a variable of the shell": ("t:\n\tB=8; python train.py --batch-size $$B\n", ["train.py --batch-size 8"]),
    "each line has a shell of its own": (
        "t:\n\tB=8\n\tpython train.py --batch-size $$B\n",
        ["train.py --batch-size ?"],
    ),
    "one shell": (".ONESHELL:\nt:\n\tB=8\n\tpython train.py --batch-size $$B\n", ["train.py --batch-size 8"]),
    "a variable of one target": (
        "B = 8\nsmall: B = 2\nsmall:\n\tpython train.py --batch-size $(B)\nbig:\n\tpython train.py --batch-size $(B)\n",
        ["train.py --batch-size 2", "train.py --batch-size 8"],
    ),
    "the target and its first prerequisite": (
        "run: train.py\n\tpython $< --batch-size 8 --out $@\n",
        ["train.py --batch-size 8 --out run"],
    ),
    "a loop": (
        "t:\n\tfor b in 8 16; do \\\n\t  python train.py --batch-size $$b; \\\n\tdone\n",
        ["train.py --batch-size 8", "train.py --batch-size 16"],
    ),
    "exported": ("export B = 8\nt:\n\tpython train.py --batch-size $$B\n", ["train.py --batch-size 8"]),
    "other folders": ("t:\n\tcd sub && python main.py --batch-size 8\n", ["sub/main.py --batch-size 8"]),
    "in a condition of make": (
        "ifeq ($(GPU),1)\nB = 8\nendif\nt:\n\tpython train.py --batch-size $(B)\n",
        ["train.py --batch-size ?"],
    ),
    "not set": ("t:\n\tpython train.py --batch-size $(B)\n", ["train.py --batch-size ?"]),
    "perhaps included": ("include x.mk\nt:\n\tpython train.py --batch-size $(B)\n", ["train.py --batch-size ?"]),
    "a function": ("B = $(shell nproc)\nt:\n\tpython train.py --batch-size $(B)\n", ["train.py --batch-size ?"]),
    "a substitution": ("A = a.c\nt:\n\tpython train.py --out $(A:.c=.o)\n", ["train.py --out ?"]),
    "a variable of itself": ("B = $(B)\nt:\n\tpython train.py --batch-size $(B)\n", ["train.py --batch-size ?"]),
    "an open reference": ("t:\n\tpython train.py --batch-size $(B\n", ["train.py --batch-size ?"]),
    "equal launches": ("a:\n\tpython train.py\nb:\n\tpython train.py\n", ["train.py"]),
}


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_a_makefile_that_starts_nothing(text: str, tmp_path: Path) -> None:
    assert commands("Makefile", text, tmp_path) == []


@pytest.mark.parametrize(("text", "found"), READ.values(), ids=READ)
def test_the_commands_of_a_makefile(text: str, found: list[str], tmp_path: Path) -> None:
    assert commands("Makefile", text, tmp_path, {"sub/main.py": "print()\n"}) == found


@pytest.mark.parametrize("name", ["makefile", "GNUmakefile", "train.mk"])
def test_the_names_of_makefiles(name: str, tmp_path: Path) -> None:
    assert commands(name, "t:\n\tpython train.py\n", tmp_path) == ["train.py"]


def test_a_finding_points_to_the_line_of_the_variable(tmp_path: Path) -> None:
    text = "# sizes\nB := 8\nt:\n\tpython train.py --batch-size $(B)\nu:\n\tpython train.py --batch-size 16\n"
    assert batches("Makefile", text, tmp_path) == [(8, "Makefile:2"), (16, "Makefile:6")]


def test_variables_that_double_each_other_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is expanded once at each depth: expanded wherever it is named, they would be a million."""
    read: list[str] = []
    parts = Scope.parts
    monkeypatch.setattr(Scope, "parts", lambda scope, piece: (read.append(piece.text), parts(scope, piece))[1])
    doubled = "".join(f"V{n + 1} = $(V{n})$(V{n})\n" for n in range(60))
    text = f"V0 = x\n{doubled}t:\n\tpython train.py --batch-size $(V60)\n"
    assert commands("Makefile", text, tmp_path) == ["train.py --batch-size ?"]
    assert 20 <= len(read) < 500
