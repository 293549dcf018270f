"""`%load_ext preflight`, with a shell that has what is used of IPython's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from notebooks_as_text import IMPORTS, MODEL, TRAINS

import preflight
from preflight.reports.html import framed
from preflight.vocabulary.job import build


class Shell:
    """Is its own history, formatter and publisher."""

    def __init__(self) -> None:
        self.display_pub = self.history_manager = self
        self.input_hist_raw: list[str] = []
        self.shown: list[Mapping[str, str]] = []
        self.ran: list[str] = []
        preflight.load_ipython_extension(self)

    def publish(self, data: Mapping[str, str]) -> None:
        self.shown.append(data)

    def register_magic_function(self, func: Callable[[str, str], None], magic_kind: str, magic_name: str) -> None:
        assert (magic_kind, magic_name) == ("cell", "preflight")
        self.magic = func

    def run_cell(self, raw_cell: str) -> None:
        self.ran.append(raw_cell)

    def check(self, line: str, cell: str) -> str:
        self.input_hist_raw.append(f"%%preflight {line}\n{cell}")
        self.magic(line, cell)
        return "".join(data["text/plain"] for data in self.shown)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    (tmp_path / "preflight.toml").write_text("set.train.seq_len = 512\n")
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    shell.input_hist_raw = [IMPORTS, MODEL, "!ls\n"]
    return shell


def test_cell_that_exceeds_is_not_run(shell: Shell, tmp_path: Path) -> None:
    said = shell.check("--gpu 'RTX 3060'", f"BS = 64\n{TRAINS}")
    assert "error[" in said
    assert "was not run" in said
    assert shell.ran == []
    assert [path.name for path in tmp_path.iterdir()] == ["preflight.toml"]


@pytest.mark.slow
def test_cell_runs_when_it_fits_or_is_told_to(shell: Shell) -> None:
    exceeding, fitting = f"BS = 64\n{TRAINS}", f"BS = 1\n{TRAINS}"
    assert "was not run" in shell.check("--gpu 'RTX 3060'", exceeding)
    shell.shown.clear()
    assert "error[" not in shell.check("--gpu H100", fitting)  # an earlier checked cell does not count
    shell.check("--run --gpu 'RTX 3060'", exceeding)
    assert shell.ran == [fitting, exceeding]


@pytest.mark.parametrize("line", ["--gpu", "RTX", "'", "--gpu nothing-of-this-name"])
def test_wrong_words_are_said_in_one_line(line: str, shell: Shell) -> None:
    said = shell.check(line, TRAINS)
    assert said.startswith("preflight: error: ")
    assert shell.ran == []


def test_results_of_the_interface_are_pages(tmp_path: Path) -> None:
    from preflight.api import check, estimate

    job = build({"model.name": "gpt2", "train.batch_size": 8, "train.seq_len": 128})
    page = estimate(job, "RTX 4090")._repr_html_()
    assert page is not None
    assert page.startswith("<iframe ")
    assert 'sandbox="allow-scripts"' in page
    (tmp_path / "nothing.py").write_text("print()\n")
    shown = check(tmp_path / "nothing.py", cwd=tmp_path)._repr_html_()
    assert shown is not None
    assert "preflight: no job was checked" in shown
    assert framed('"<script>').count('"') == 10
