"""Brings repositories: the small files of one commit each, into the user's cache. What is there already is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.corpus.git_files import NoMirror, files
from benchmarks.corpus.repositories import Repository, checkout


def bring(repositories: Sequence[Repository], source: str) -> list[str]:
    """Brings those that are missing. Why some could not be brought."""
    missed = []
    for each in repositories:
        home = checkout(each)
        if home.is_dir():
            continue
        part = home.with_name(f"{home.name}.{os.getpid()}.part")
        try:
            _write(part, files(each.name, each.commit, source))
        except (subprocess.CalledProcessError, NoMirror, OSError) as error:
            shutil.rmtree(part, ignore_errors=True)
            missed.append(f"{each.name}: {error}")
            continue
        part.rename(home)
        print(f"brought {each.name}", flush=True)
    return missed


def _write(folder: Path, found: Iterable[tuple[str, bytes]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in found:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
