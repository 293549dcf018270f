"""The newest whole checkpoint that a run wrote: which of the files that it saved one can go on from.

A checkpoint counts if the run itself wrote it, if all files are there that its form needs, and if each is whole: the
function that saved it came back, and its sizes agree with its own index. Nothing in it is executed or unpickled.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from preflight.vocabulary.notation import release
from preflight.vocabulary.watched import WatchedRank, WatchedSave

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
           "adapter_model.safetensors", "adapter_model.bin")  # fmt: skip
MOST_INDEX = 64 * 2**20
"""Bytes of an index that is read."""


class Form(Struct, frozen=True):
    """How a library lays a checkpoint out.

    `sign`: folder and name of a file by which its folder is known; "": the file itself is the checkpoint. `needs`: of
    each row one file is there, and with `{rank}` one for each rank. `last`: what is written after all others.
    `states`: what the pickle of a single file has, where it holds an optimizer. `atomic`: a file is replaced in one
    step. `saver`: the function that saves it. `other_batch`: the release of transformers from which it may go on with
    another batch; else it counts batches, or brings its own batch size, and would be another run.
    """

    name: str
    saver: str = ""
    sign: str = ""
    needs: tuple[tuple[str, ...], ...] = ()
    last: str = ""
    states: bytes = b""
    atomic: bool = False
    other_batch: tuple[int, ...] = ()


FORMS = (
    # transformers 5.23: trainer.py, _save_checkpoint. Until 5.1 the batch size of a checkpoint replaced the given one
    Form("transformers", sign=r"^checkpoint-\d+/", last="trainer_state.json", other_batch=(5, 2), needs=(
        WEIGHTS, ("trainer_state.json",), ("optimizer.pt",), ("scheduler.pt",),
        ("rng_state.pth", "rng_state_{rank}.pth"),
    )),
    # accelerate 1.15: checkpointing.py, save_accelerator_state
    Form("accelerate", sign=r"/(optimizer\.bin|random_states_\d+\.pkl)$", last="random_states_0.pkl", needs=(
        WEIGHTS, ("optimizer.bin",), ("random_states_{rank}.pkl",),
    )),
    # Lightning 2.6: fabric/utilities/cloud_io.py
    Form("lightning", saver="_atomic_save", states=b"optimizer_states", atomic=True),
    Form("torch", saver="save", states=b"param_groups"),
)  # fmt: skip


class Checkpoint(Struct, frozen=True):
    """A place that a run may go on from, or one that is not whole. `at`: when it was begun."""

    path: str
    form: Form
    at: float
    whole: bool

    def takes_other_batch(self, transformers: str) -> bool:
        """Whether the same run goes on from it with another batch and the same effective one."""
        return bool(self.form.other_batch) and (release(transformers) or ()) >= self.form.other_batch


def checkpoints(ranks: Sequence[WatchedRank]) -> list[Checkpoint]:
    """The checkpoints that the processes of a run wrote, the newest first."""
    saves = {save.path: save for rank in ranks for save in sorted(rank.saves, key=lambda one: one.at)}
    world = max((rank.world for rank in ranks), default=1)
    folders: dict[Path, list[WatchedSave]] = {}
    for save in saves.values():
        folders.setdefault(Path(save.path).parent, []).append(save)
    found = []
    for folder, files in folders.items():
        form = next((one for one in FORMS if _is_of(one, folder, files)), None)
        if form is not None:
            whole = _whole_folder(form, folder, {Path(one.path): one for one in files}, world)
            found.append(Checkpoint(str(folder), form, max(one.at for one in files), whole))
            continue
        found += [checkpoint for save in files if (checkpoint := _single(save)) is not None]
    there = (one for one in found if Path(one.path).exists())  # the program may keep the newest few
    return sorted(there, key=lambda one: one.at, reverse=True)


def _is_of(form: Form, folder: Path, files: Sequence[WatchedSave]) -> bool:
    return bool(form.sign) and any(re.search(form.sign, f"{folder.name}/{Path(one.path).name}") for one in files)


def _single(save: WatchedSave) -> Checkpoint | None:
    form = next((one for one in FORMS if one.saver == save.saver), None)
    if form is None or not (save.ended or form.atomic):
        return Checkpoint(save.path, form, save.at, False) if form is not None else None
    try:
        if form.states not in _pickled(Path(save.path)):
            return None  # weights alone, or something else
    except (OSError, ValueError, zipfile.BadZipFile):
        return Checkpoint(save.path, form, save.at, False)
    return Checkpoint(save.path, form, save.at, _intact(Path(save.path)))


def _whole_folder(form: Form, folder: Path, saves: dict[Path, WatchedSave], world: int) -> bool:
    if not all(one.ended for one in saves.values()):
        return False
    files: list[Path] = []
    for row in form.needs:
        there = next((names for name in row if (names := _there(folder, name, world))), None)
        if there is None:
            return False
        files += there
    try:
        files += [shard for file in files if file.name.endswith(".index.json") for shard in _shards(file)]
        own = [file for file in files if file.suffix != ".json" and not re.search(r"_\d+\.", file.name)]
        if not all(file in saves for file in own):  # what an earlier run left there
            return False
        if form.last and (folder / form.last).stat().st_mtime_ns < max(file.stat().st_mtime_ns for file in own):
            return False
        return all(_intact(file) for file in {*files, *(path for path in folder.iterdir() if path.is_file())})
    except (OSError, ValueError):
        return False


def _there(folder: Path, name: str, world: int) -> list[Path]:
    """The files that a name stands for, if all are there."""
    names = [name.format(rank=rank) for rank in range(world)] if "{rank}" in name else [name]
    found = [folder / one for one in names]
    return found if all(one.is_file() for one in found) else []


def _shards(index: Path) -> Iterator[Path]:
    for name in set(_json(index)["weight_map"].values()):
        yield index.parent / Path(str(name)).name


def _json(path: Path) -> dict[str, dict[str, str]]:
    with open(path, "rb") as file:
        found = json.loads(file.read(MOST_INDEX))
    if not isinstance(found, dict):
        raise ValueError(path.name)
    return found


def _intact(path: Path) -> bool:
    """Whether a file's size agrees with what it says of itself; of other kinds of files nothing is known."""
    try:
        if path.suffix == ".safetensors":
            return _safetensors(path)
        if path.suffix == ".json":
            return bool(path.stat().st_size) and json.loads(path.read_bytes()[:MOST_INDEX]) is not None
        if path.suffix in (".pt", ".pth", ".bin", ".pkl", ".ckpt", ".tar"):
            return bool(_pickled(path))
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return True


def _safetensors(path: Path) -> bool:
    """The format of safetensors: eight bytes with the length of the header, the header, the tensors."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length <= MOST_INDEX else {}
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return bool(ends) and path.stat().st_size == 8 + length + max(ends)


def _pickled(path: Path) -> bytes:
    """The pickle of a file of torch.save, which is not executed. Raises BadZipFile for a file that is not whole."""
    with zipfile.ZipFile(path) as archive:
        size = path.stat().st_size
        entries = archive.infolist()
        if any(entry.header_offset + entry.compress_size > size for entry in entries):
            raise zipfile.BadZipFile(path.name)
        name = next((entry for entry in entries if entry.filename.endswith("/data.pkl")), None)
        if name is None or name.file_size > MOST_INDEX:
            raise zipfile.BadZipFile(path.name)
        return archive.read(name)
