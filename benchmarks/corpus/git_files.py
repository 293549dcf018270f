"""The small files of one commit of a git repository: on the public host, or in a folder of git directories."""

from __future__ import annotations

import io
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

HOST = "https://github.com"
MOST_BYTES = 2**20


class NoMirror(Exception):
    """A folder of mirrors that lacks a repository."""


def files(
    name: str, commit: str, source: str, wanted: Callable[[str], bool] = lambda path: True
) -> Iterator[tuple[str, bytes]]:
    """Paths and bytes of the regular files of at most 1 MiB. Links, and what a mirror lacks, are left out.

    `source`: a URL, or a folder of git directories. Raises CalledProcessError and NoMirror.
    """
    if Path(source).is_dir():
        yield from _of_commit(_mirror(Path(source), name), commit, wanted)
        return
    with tempfile.TemporaryDirectory() as folder:
        _git("init", "--quiet", "--bare", folder)
        _git("--git-dir", folder, "fetch", "--quiet", "--depth=1", f"{source.rstrip('/')}/{name}", commit)
        yield from _of_commit(Path(folder), commit, wanted)


def _mirror(folder: Path, name: str) -> Path:
    """The git directory of a repository: OWNER+NAME/repo, OWNER+NAME or OWNER/NAME, bare or with a work tree."""
    flat = name.replace("/", "+")
    for home in (folder / flat / "repo", folder / flat, folder / f"{flat}.git", folder / name, folder / f"{name}.git"):
        for git in (home / ".git", home):
            if (git / "HEAD").is_file():
                return git
    raise NoMirror(f"{folder} has no git directory of {name}")


def _of_commit(git: Path, commit: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    blobs: dict[str, str] = {}
    for entry in (
        _git("--git-dir", str(git), "ls-tree", "-r", "-z", commit).decode(errors="surrogateescape").split("\0")
    ):
        described, _, path = entry.partition("\t")
        if described.startswith("100") and ".." not in path.split("/") and wanted(path):
            blobs[path] = described.split()[2]
    asked = "".join(f"{blob}\n" for blob in sorted(set(blobs.values()))).encode()
    sizes = [line.split() for line in _batch(git, "--batch-check", asked).decode().splitlines()]
    small = {blob for blob, kind, *size in sizes if kind == "blob" and int(size[0]) <= MOST_BYTES}
    answer = io.BytesIO(_batch(git, "--batch", "".join(f"{blob}\n" for blob in sorted(small)).encode()))
    texts: dict[str, bytes] = {}
    while head := answer.readline().split():
        texts[head[0].decode()] = answer.read(int(head[2]) + 1)[:-1]
    for path, blob in blobs.items():
        if blob in texts:
            yield path, texts[blob]


def _batch(git: Path, how: str, asked: bytes) -> bytes:
    command = ["git", "--git-dir", str(git), "cat-file", how]
    return subprocess.run(command, check=True, input=asked, stdout=subprocess.PIPE).stdout


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE).stdout
