"""`%%preflight` in a real kernel of Jupyter: what a notebook shows, what runs and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from notebooks_as_text import IMPORTS, MODEL, TRAINS
from processes import HANGS

pytestmark = pytest.mark.integration


def executed(folder: Path, *cells: str) -> list[list[dict[str, Any]]]:
    """The outputs of each cell."""
    pytest.importorskip("ipykernel")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(made, timeout=HANGS, allow_errors=True, resources=resources).execute()
    return [list(cell.outputs) for cell in made.cells]


def said(outputs: list[dict[str, Any]]) -> str:
    return "".join("".join(one.get("text", "")) + one.get("data", {}).get("text/plain", "") for one in outputs)


def pages(outputs: list[dict[str, Any]]) -> list[str]:
    return [one["data"]["text/html"] for one in outputs if "text/html" in one.get("data", {})]


def test_a_cell_that_will_fail_is_shown_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "preflight.toml").write_text("set.train.seq_len = 512\n")
    _, failing, after, plain, api = executed(
        tmp_path,
        "%load_ext preflight",
        f"%%preflight --gpu 'RTX 3060'\nran = True\n{IMPORTS}\n{MODEL}\nBS = 64\n{TRAINS}",
        "print('ran' in globals())",
        "%%preflight\nprint('this cell trains nothing')",
        "from preflight.api import estimate, job_of\n"
        "estimate(job_of({'model.name': 'gpt2', 'train.batch_size': 8, 'train.seq_len': 128}), 'RTX 4090')",
    )
    assert "error[" in said(failing)
    assert "was not run" in said(failing)
    [page] = pages(failing)
    assert page.startswith('<iframe title="preflight" sandbox="allow-scripts"')
    assert said(after).strip() == "False"
    assert "this cell trains nothing" in said(plain)
    [estimate] = pages(api)
    assert "GPU memory" in estimate
    assert not (tmp_path / "out").exists()
