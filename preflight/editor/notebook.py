"""`%load_ext preflight` in a notebook: `%%preflight` checks a cell before it runs, and estimates are shown as pages.

IPython is not imported: what is used of it are methods of the shell that it passes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from preflight.editor.checks import Checked, Checker
from preflight.engine.check import CheckOptions
from preflight.reports import html, render
from preflight.reports.style import Look
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.findings import Severity

MAGIC = "%%preflight"
NAME = "notebook.ipynb"
"""The file that the cells are read as, in the current directory."""
USAGE = "write %%preflight [--gpu NAME] [--run]"


class Publisher(Protocol):
    def publish(self, data: Mapping[str, str]) -> object: ...


class History(Protocol):
    @property
    def input_hist_raw(self) -> Sequence[str]: ...


class Shell(Protocol):
    """What is used of IPython's shell (IPython.core.interactiveshell.InteractiveShell)."""

    @property
    def display_pub(self) -> Publisher: ...
    @property
    def history_manager(self) -> History: ...
    def register_magic_function(self, func: Callable[[str, str], None], magic_kind: str, magic_name: str) -> object: ...
    def run_cell(self, raw_cell: str) -> object: ...


def load(shell: Shell) -> None:
    """Makes the magic known."""

    def magic(line: str, cell: str) -> None:
        _checked(shell, line, cell)

    shell.register_magic_function(magic, "cell", "preflight")


def _checked(shell: Shell, line: str, cell: str) -> None:
    """Shows what a check of the cell says, after the cells before it, and runs the cell unless it will fail."""
    try:
        gpu, run = _arguments(line)
        earlier = [text for text in shell.history_manager.input_hist_raw[:-1] if not text.lstrip().startswith(MAGIC)]
        found = _check([*earlier, cell], gpu)
    except PreflightError as error:
        shell.display_pub.publish({"text/plain": f"preflight: error: {error}"})
        return
    outcome = found.outcome
    text = render("concise", outcome, Look())
    shell.display_pub.publish({"text/plain": text, "text/html": html.framed(html.render(outcome, Look()))})
    if outcome.counts[Severity.error] and not run:
        shell.display_pub.publish(
            {"text/plain": f"preflight: the cell was not run; {MAGIC} --run runs it all the same"}
        )
        return
    shell.run_cell(cell)


def _arguments(line: str) -> tuple[str | None, bool]:
    """The GPU and whether the cell runs in any case. Raises PreflightError."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise PreflightError(f"{line}: {USAGE}") from error
    gpu, run = None, False
    while words:
        word = words.pop(0)
        if word == "--run":
            run = True
        elif word == "--gpu" and words:
            gpu = words.pop(0)
        else:
            raise PreflightError(f"{word}: {USAGE}")
    return gpu, run


def _check(cells: Sequence[str], gpu: str | None) -> Checked:
    """The report of these cells, as a notebook of them. Raises PreflightError."""
    made = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": text.splitlines(keepends=True)} for text in cells
    ]
    kernel = {"kernelspec": {"language": "python", "name": "python3"}}
    text = json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    checker = Checker(Path.cwd(), lambda: False, CheckOptions(gpu))
    return checker.check({Path.cwd() / NAME: text}, prove=False)
