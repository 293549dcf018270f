"""Runs the commands of the tutorials as a reader would, and compares what they print with what the pages show.

    python scripts/tutorials.py [--wheel FILE] [PAGE...]

Each page is followed in a fresh virtual environment with preflight's wheel alone, with an empty HOME, in an empty
directory. Nothing of a page is repeated here: its blocks say what to do, one after another.

    <!-- write: sweep.yaml -->                the reader writes this file
    <!-- end -->
    <!-- output: preflight check sweep.yaml -->   a command, with what it prints (made by scripts/generate.py)
    <!-- end -->
    <!-- skip: it needs a W&B account -->     not run here; the reason is printed
    <!-- end -->

The exit status is 1 if something else came than the page shows.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "tutorials"
_BLOCK = re.compile(r"(<!-- (write|output|skip): ([^\n]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_FENCED = re.compile(r"```\w*\n(.*?)```\n", re.DOTALL)
_LIMIT = 300
"""Seconds for one command, which takes a few: one that hangs must not hold up everything."""


def played(text: str, preflight: Sequence[str], skipped: list[str] | None = None) -> str:
    """The page with the outputs that its commands have, run one after another by `preflight` in an empty directory.

    `skipped` gets the reasons of the steps that are not run.
    """
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:

        def step(found: re.Match[str]) -> str:
            head, kind, what, body, end = found.groups()
            if kind == "write":
                file = Path(work, what)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(_text_of(what, body), encoding="utf-8")
            elif kind == "skip" and skipped is not None:
                skipped.append(what)
            elif kind == "output":
                return f"{head}\n{_output(what, preflight, home, work)}\n{end}"
            return found[0]

        return _BLOCK.sub(step, text)


def _text_of(name: str, body: str) -> str:
    found = _FENCED.search(body)
    if found is None:
        raise ValueError(f"no fenced block for {name}")
    return found[1]


def _output(command: str, preflight: Sequence[str], home: str, work: str) -> str:
    """A command and what it prints, standard error too, as a fenced block."""
    first, *filters = command.split(" | ")
    name, *arguments = shlex.split(first)
    if name != "preflight":
        raise ValueError(f"only preflight is run here: {command}")
    env = {"HOME": home, "PATH": os.defpath, "NO_COLOR": "1", "PYTHONUTF8": "1", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [*preflight, *arguments],
        cwd=work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=_LIMIT,
        check=False,
    )
    return block(command, filtered(done.stdout, filters))


def filtered(text: str, filters: Sequence[str]) -> str:
    """What `head -n N` and `tail -n N` (N > 0) would let through."""
    for name, option, count in map(shlex.split, filters):
        if name not in ("head", "tail") or option != "-n":
            raise ValueError(f"only head -n N and tail -n N are known here: {name} {option} {count}")
        lines = text.splitlines(keepends=True)
        text = "".join(lines[: int(count)] if name == "head" else lines[-int(count) :])
    return text


def block(command: str, output: str) -> str:
    """A command and its output, fenced."""
    language = "diff" if "--diff" in command else "json" if output.startswith("{") else "text"
    head = "" if language != "text" else f"$ {command}\n"
    return f"```{language}\n{head}{output.rstrip()}\n```\n"


def main(words: Sequence[str] | None = None) -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel", type=Path, help="preflight's wheel; built from this checkout if it is not given")
    parser.add_argument("pages", nargs="*", type=Path)
    options = parser.parse_args(words)
    differing = 0
    with tempfile.TemporaryDirectory() as directory:
        preflight = installed(Path(directory), options.wheel)
        for page in options.pages or sorted(PAGES.glob("*.md")):
            text = page.read_text(encoding="utf-8")
            skipped: list[str] = []
            came = played(text, [str(preflight)], skipped)
            steps = len(_BLOCK.findall(text))
            print(f"{page.name}: {steps} steps, {'as shown' if came == text else 'NOT AS SHOWN'}")
            for why in skipped:
                print(f"  skipped: {why}")
            if came != text:
                differing += 1
                lines = difflib.unified_diff(text.splitlines(), came.splitlines(), page.name, "what came", lineterm="")
                print("\n".join(lines))
    return int(bool(differing))


def installed(directory: Path, wheel: Path | None) -> Path:
    """The command `preflight` of a fresh virtual environment."""
    environment = directory / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    if wheel is None:
        wheels = directory / "wheels"
        subprocess.run(
            [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", wheels, ROOT], check=True, timeout=_LIMIT
        )
        [wheel] = wheels.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, timeout=_LIMIT)
    return environment / "bin" / "preflight"


if __name__ == "__main__":
    sys.exit(main())
