"""Brings the public files that tests/golden checks: repositories at commits, listed in tests/golden/corpus.jsonl.

`python scripts/golden_corpus.py` fetches each commit from GitHub; with `--mirrors FOLDER` it reads git directories that
are there already, FOLDER/OWNER+NAME/repo. Text files alone are kept, in the folder that PREFLIGHT_CORPUS names (else in
the user's cache). Nothing of them is committed, imported or run.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "golden")]

import golden_cases  # noqa: E402

KEPT = {
    ".py", ".yaml", ".yml", ".json", ".toml", ".sh", ".bash", ".sbatch", ".slurm", ".sub", ".job", ".cfg", ".ini",
    ".txt", ".ipynb", ".def", ".env", "",
}  # fmt: skip
MOST_BYTES = 2**20


def files(repo: str, commit: str, mirrors: Path | None) -> Iterator[tuple[str, bytes]]:
    """The small text files of a commit; links, and what the git directory lacks, are left out. Raises
    CalledProcessError."""
    if mirrors is not None:
        home = mirrors / repo.replace("/", "+") / "repo"
        yield from _files(home / ".git" if (home / ".git").is_dir() else home, commit)
        return
    with tempfile.TemporaryDirectory() as folder:
        _git("init", "--quiet", "--bare", folder)
        _git("--git-dir", folder, "fetch", "--quiet", "--depth=1", f"https://github.com/{repo}", commit)
        yield from _files(Path(folder), commit)


def _files(git: Path, commit: str) -> Iterator[tuple[str, bytes]]:
    blobs: dict[str, str] = {}
    for entry in _git("--git-dir", str(git), "ls-tree", "-r", "-z", commit).decode().split("\0"):
        described, _, path = entry.partition("\t")
        if described.startswith("100") and Path(path).suffix.lower() in KEPT:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirrors", type=Path, help="git directories that are there already")
    mirrors = parser.parse_args().mirrors
    missed = []
    wanted = {(row["repo"], row["commit"]) for row in golden_cases.corpus()}
    for repo, commit in sorted(wanted):
        home = golden_cases.checkout(repo, commit)
        if home.is_dir():
            continue
        part = home.with_name(home.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir(parents=True)
            for path, content in files(repo, commit, mirrors):
                (part / path).parent.mkdir(parents=True, exist_ok=True)
                (part / path).write_bytes(content)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(part, ignore_errors=True)
            missed.append(f"{repo} at {commit}: {error}")
            continue
        part.rename(home)
    print(f"{len(wanted) - len(missed)} of {len(wanted)} repositories in {golden_cases.CORPUS}")
    for line in missed:
        print(f"missing: {line}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
