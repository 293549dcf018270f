"""Brings the public files that tests/golden checks: repositories at commits, listed in tests/golden/corpus.jsonl.

`python scripts/golden_corpus.py` fetches each commit from GitHub; with `--mirrors FOLDER` it reads git directories that
are there already, FOLDER/OWNER+NAME/repo. Text files alone are kept, in the folder that PREFLIGHT_CORPUS names (else in
the user's cache). Nothing of them is committed, imported or run.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "golden")]

import golden_cases  # noqa: E402

from benchmarks.corpus.git_files import HOST, NoMirror, files  # noqa: E402

KEPT = {
    ".py", ".yaml", ".yml", ".json", ".toml", ".sh", ".bash", ".sbatch", ".slurm", ".sub", ".job", ".cfg", ".ini",
    ".txt", ".ipynb", ".def", ".env", "",
}  # fmt: skip


def _kept(path: str) -> bool:
    return Path(path).suffix.lower() in KEPT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirrors", default=HOST, help="git directories that are there already")
    source = parser.parse_args().mirrors
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
            for path, content in files(repo, commit, source, _kept):
                (part / path).parent.mkdir(parents=True, exist_ok=True)
                (part / path).write_bytes(content)
        except (subprocess.CalledProcessError, NoMirror) as error:
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
