"""Plans all files of `preflight init`, shows them as diffs, and writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from preflight.engine.files import batches, checkout
from preflight.engine.init import hook, pipeline, settings_file
from preflight.engine.init.computer import Found, ask_computer, ask_files
from preflight.engine.init.planned import Plan, Planned, Tree
from preflight.engine.rounds import unified
from preflight.engine.settings import load
from preflight.fixes.write import write_whole
from preflight.system.files import real
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.progress import Progress

PROJECT = "pyproject.toml"


def planned(path: Path, progress: Progress) -> Plan:
    """What would be written for the project of a directory. Nothing is written. Raises UsageError or SettingsError
    where one of its files is malformed, leads out of the checkout, or cannot be written."""
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such directory")
    place = real(path)
    root = checkout(place)
    tree = Tree(real(root) if root is not None else place, root is not None)
    settings, file = load(place)
    home = _project(place, tree.root)
    folder = "" if home == tree.root else f"{home.relative_to(tree.root).as_posix()}/"
    stated = settings.gpu is not None or settings.machine is not None
    found = Found() if stated else _found(place, progress)
    plan = settings_file.plan(tree, folder, settings, file, found).with_(hook.plan(tree)).with_(pipeline.plan(tree))
    for one in _all(plan.files):
        _refuse_unwritable(one)
    return plan


def _project(place: Path, root: Path) -> Path:
    """The closest folder upwards with a pyproject.toml, at most the root of the checkout; else that root."""
    for folder in (place, *place.parents):
        if folder == root or (folder / PROJECT).exists():
            return folder
    return root


def _found(place: Path, progress: Progress) -> Found:
    """The cluster that is here, else the GPU that the files ask for, else the one that is here."""
    with progress.shown("asking this computer"):
        here = ask_computer()
    if here.cluster is not None:
        return here
    with progress.shown("looking for job files"):
        asked = ask_files(batches([str(place)], place, from_hook=True), progress)
    return asked if asked.gpu is not None else Found(here.gpu, here.source, notes=(*here.notes, *asked.notes))


def _all(files: Sequence[Planned]) -> list[Planned]:
    return [each for one in files for each in (*one.companions, one)]


def _refuse_unwritable(one: Planned) -> None:
    """Raises UsageError where a file or its folder cannot be written, before anything is."""
    folder = one.path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"{one.name}: {folder} is not a directory; nothing was written")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{one.name}: the directory {folder} is read-only; nothing was written")
    if one.old is not None and not os.access(one.path, os.W_OK):
        raise UsageError(f"{one.name}: the file is read-only; nothing was written")


def diff(one: Planned) -> str:
    """The change of a file, and of those that it names."""
    return "".join(_diff(each) for each in _all([one]))


def _diff(one: Planned) -> str:
    before = f"a/{one.name}" if one.old is not None else "/dev/null"
    return unified(one.before, one.text, before, f"b/{one.name}")


def write(one: Planned) -> None:
    """Writes a file, after those that it names. Raises NotWritten."""
    for each in _all([one]):
        write_whole(each.path, each.old, each.data)
