"""Which checkpoint of a run is whole: all its files, written by this run, none of them torn."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.vocabulary.watched import WatchedRank, WatchedSave
from preflight.watch.checkpoints import checkpoints
from preflight.watch.retry import going_on

torch = pytest.importorskip("torch")
TRAINER = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")
STATE = {"weight": torch.zeros(3, 3)}


def written(folder: Path, name: str) -> Path:
    """A file as the library writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if path.suffix == ".safetensors":
        pytest.importorskip("safetensors.torch").save_file(STATE, path)
    elif path.suffix == ".json":
        path.write_text(json.dumps({"global_step": 2, "log_history": []}))
    else:
        torch.save({"model": STATE, "optimizer_states": [{"param_groups": []}]}, path)
    return path


def ranks(*paths: Path, torn: str = "", saver: str = "save", world: int = 1) -> list[WatchedRank]:
    saves = [WatchedSave(str(path), saver, at, path.name != torn) for at, path in enumerate(paths)]
    return [WatchedRank(0, world, saves=tuple(saves))]


def trainers(folder: Path) -> list[Path]:
    paths = [written(folder, name) for name in TRAINER]
    written(folder, "trainer_state.json")
    return paths


def test_a_whole_checkpoint_of_the_trainer(tmp_path: Path) -> None:
    paths = [*trainers(tmp_path / "checkpoint-2"), *trainers(tmp_path / "checkpoint-4")]
    found = checkpoints(ranks(*paths))
    assert [(Path(one.path).name, one.form.name, one.whole) for one in found] == [
        ("checkpoint-4", "transformers", True), ("checkpoint-2", "transformers", True),
    ]  # fmt: skip
    assert found[0].takes_other_batch("5.2.0")
    assert not found[0].takes_other_batch("5.1.0")
    assert not found[0].takes_other_batch("")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 20)


def older(path: Path) -> None:
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, how) for name in (*TRAINER, "trainer_state.json") for how in (cut, Path.unlink)]
    + [("trainer_state.json", older), ("optimizer.pt", lambda path: path.write_bytes(b""))],
)
def test_a_torn_checkpoint_of_the_trainer(tmp_path: Path, name: str, how: Callable[[Path], None]) -> None:
    paths = [*trainers(tmp_path / "checkpoint-2"), *trainers(tmp_path / "checkpoint-4")]
    how(tmp_path / "checkpoint-4" / name)
    assert [one.whole for one in checkpoints(ranks(*paths))] == [False, True]


def test_what_was_begun_and_not_ended_is_torn(tmp_path: Path) -> None:
    paths = trainers(tmp_path / "checkpoint-2")
    assert [one.whole for one in checkpoints(ranks(*paths, torn="optimizer.pt"))] == [False]


def test_files_of_an_earlier_run_do_not_complete_it(tmp_path: Path) -> None:
    paths = trainers(tmp_path / "checkpoint-2")
    assert [one.whole for one in checkpoints(ranks(*paths[:1]))] == [False]
    assert checkpoints(ranks()) == []


def test_every_shard_and_every_rank_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-2"
    names = ("a.safetensors", "b.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth")
    paths = [written(folder, name) for name in names]
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": names[0], "y": names[1]}}))
    written(folder, "trainer_state.json")
    assert [one.whole for one in checkpoints(ranks(*paths, world=2))] == [True]
    assert [one.whole for one in checkpoints(ranks(*paths, world=3))] == [False]
    (folder / names[1]).unlink()
    assert [one.whole for one in checkpoints(ranks(*paths, world=2))] == [False]


def test_accelerate(tmp_path: Path) -> None:
    names = ("model.safetensors", "optimizer.bin", "random_states_0.pkl")
    paths = [written(tmp_path / "step_4", name) for name in names]
    found = checkpoints(ranks(*paths))
    assert [(one.form.name, one.whole, one.takes_other_batch("5.9")) for one in found] == [("accelerate", True, False)]
    cut(paths[1])
    assert [one.whole for one in checkpoints(ranks(*paths))] == [False]


@pytest.mark.parametrize("saver", ["save", "_atomic_save"])
def test_a_single_file(tmp_path: Path, saver: str) -> None:
    paths = [written(tmp_path, name) for name in ("a.ckpt", "b.ckpt")]
    assert [one.whole for one in checkpoints(ranks(*paths, saver=saver))] == [True, True]
    atomic = saver == "_atomic_save"  # what it had before is there until the new one is
    assert [one.whole for one in checkpoints(ranks(*paths, torn="b.ckpt", saver=saver))] == [atomic, True]
    cut(paths[1])
    assert [one.whole for one in checkpoints(ranks(*paths, saver=saver))] == [False, True]


def test_weights_alone_are_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    torch.save(STATE, path)
    assert checkpoints(ranks(path)) == []


WORDS = ("python", "train.py")


@pytest.mark.parametrize(
    ("newest", "resumes", "other_batch", "takes", "starts", "says"),
    [
        ("whole", False, False, True, "flag", "from checkpoint-4"),
        ("torn", False, False, True, "flag", "from checkpoint-2"),
        ("whole", False, True, True, "flag", "from checkpoint-4"),
        ("whole", False, False, False, "given", "takes no checkpoint that is known"),
        ("none", False, False, True, "given", "no checkpoint was written"),
        ("torn alone", False, False, True, "given", "no checkpoint is whole"),
        ("torn alone", True, False, True, "not", "is not whole"),
        ("torn", True, False, False, "not", "checkpoint-4 is not whole"),
        ("whole", True, False, False, "given", "resumes by itself"),
        ("file", False, True, True, "given", "may count batches of the old size"),
        ("file", True, True, True, "not", "may count batches of the old size"),
        ("file", True, False, True, "flag", "from last.pt"),
    ],
)
def test_where_it_goes_on(
    tmp_path: Path, newest: str, resumes: bool, other_batch: bool, takes: bool, starts: str, says: str
) -> None:
    paths: list[Path] = []
    if newest in ("whole", "torn"):
        paths = [*trainers(tmp_path / "checkpoint-2"), *trainers(tmp_path / "checkpoint-4")]
    if newest == "torn alone":
        paths = trainers(tmp_path / "checkpoint-4")
    if newest.startswith("torn"):
        cut(paths[-1])
    if newest == "file":
        paths = [written(tmp_path, "last.pt")]
    flag = (lambda path: (*WORDS, "--resume", path)) if takes else (lambda _: None)
    going = going_on(WORDS, checkpoints(ranks(*paths)), resumes, other_batch, "5.23.0", flag)
    words = going.command
    assert ("not" if words is None else "given" if words == WORDS else "flag") == starts
    assert says in going.text
