"""Arrays on disk that are not there: those that --array states, and the one line about others."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import STEP, dry_run

from preflight.dryrun.command import array_of
from preflight.vocabulary.errors import UsageError

pytest.importorskip("torch")

STATED = """\
import numpy
pictures, labels = numpy.load("data/x_train.npy"), numpy.load("data/y_train.npy")
assert (pictures.shape, pictures.dtype) == ((100, 3, 8, 8), numpy.float32)
assert (labels.shape, labels.dtype) == ((100,), numpy.int64)
with numpy.load("data/both.npz") as both:
    assert both["x"].shape == (4, 2) and both["y"].dtype == numpy.uint8 and both.files == ["x", "y"]
try:
    numpy.load("kept.npy")
    raise SystemExit(5)
except FileNotFoundError:
    pass
def load_tokens(name):
    tokens = numpy.load(name)
    return tokens
assert load_tokens("shard.npy").ndim == 1
step(); step()
"""
SAID = [
    "data/x_train.npy is not there: its arrays are those of --array",
    "data/y_train.npy is not there: its arrays",
    "data/both.npz is not there: its arrays",
    "shard.npy is not there: numpy.load has",
]
GROUPS = """\
import h5py
with h5py.File("sets/train.h5", "r") as file:
    assert len(file["lr"]) == 100 and file["lr"][3].shape == (17, 17)
    assert len(file["scenes"]) == 64 and file["scenes"]["7"]["depth"].shape == (5,)
    assert file["scenes/3/depth"].dtype == "float16" and list(file.keys()) == ["lr", "scenes"]
with h5py.File("made.h5", "w") as file:
    file["x"] = [1, 2]
with h5py.File("made.h5") as file:
    assert list(file["x"]) == [1, 2]
step(); step()
"""


def ran(folder: Path, program: str, *arrays: str) -> list[str]:
    """What was assumed."""
    (folder / "train.py").write_text(STEP + program)
    words = [word for one in arrays for word in ("--array", one)]
    found = dry_run(folder, "--gpu", "RTX 4090", "--output-format", "json", *words, "--", "python", "train.py")
    assert found.status == 0, found.err
    return [str(one) for one in found.data["dry_run"]["assumptions"] if "not there" in one]


def test_stated_arrays(tmp_path: Path) -> None:
    names = ("x_train.npy=100x3x8x8", "data/y_train.npy=100:int64", "data/both.npz:x=4x2", "data/both.npz:y=4:uint8")
    said = ran(tmp_path, STATED, *names)
    assert len(said) == len(SAID)
    for one, words in zip(said, SAID, strict=True):
        assert words in one


@pytest.mark.slow
def test_arrays_in_groups(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    assert len(ran(tmp_path, GROUPS, "sets/*.h5:lr=100x17x17", "sets/*.h5:scenes/*/depth=5:float16")) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import numpy\nnumpy.load('x.npy')", "--array 'x.npy=300x17'"),
        pytest.param("import h5py\nh5py.File('x.h5', 'r')['lr']", "--array 'x.h5:lr=300x17'", marks=pytest.mark.slow),
    ],
)
def test_other_arrays_are_named(tmp_path: Path, line: str, words: str) -> None:
    pytest.importorskip(line.split()[1])
    (tmp_path / "train.py").write_text(f"import torch\n{line}\n")
    found = dry_run(tmp_path, "--", "python", "train.py")
    assert (found.status, words in found.error) == (2, True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x.npy=10", ["x.npy", "", [10], "float32"]),
        ("a/b.h5:group/x=10x3:int64", ["a/b.h5", "group/x", [10, 3], "int64"]),
        ("C:/data/x.npy=10", ["C:/data/x.npy", "", [10], "float32"]),
        ("run=3.npz:x=2:bool", ["run=3.npz", "x", [2], "bool"]),
    ],
)
def test_the_words(text: str, found: list[object]) -> None:
    assert array_of(text) == found


@pytest.mark.parametrize("text", ["x.npy", "=10", "x.npy=", "x.npy=0", "x.npy=10x", "x.npy=10:complex64"])
def test_other_words(text: str) -> None:
    with pytest.raises(UsageError, match="state a file and a shape"):
        array_of(text)
