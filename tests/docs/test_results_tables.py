"""Tables that sum up the pages of results say what these pages say, the share without a verdict too."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from pages_of_the_guide import script


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with pages in an empty directory."""
    module = script("results")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "docs/results").mkdir(parents=True)
    return module


def test_the_figures_are_those_of_the_pages(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / results.ACCURACY_PAGE).write_text(
        "# Accuracy\n\n<!-- summary -->\n\n"
        "| runs | tier | answered | median error | p90 |\n|---|---|---|---|---|\n"
        "| LoRA | allocated | 3 of 4 | 0.1% | 0.2% |\n"
        "| LoRA | process | 2 of 4 | 1.5% | 3.5% |\n"
        "| detectors | allocated | 0 of 9 | - | - |\n"
        "\n<!-- end of summary -->\n\n"
        "| runs | tier | median error |\n|---|---|---|\n| one | process | 7% |\n"
    )
    (tmp_path / results.HOST_PAGE).write_text(
        "| group | median error | worst | inside the interval | left out: median | worst |\n|---|---|---|---|---|---|\n"
        "| text | 2.4% | 5.1% | 5 of 5 | 2.4% | 9.9% |\n| **all but long** | 1.2% | 8.0% | 9 of 10 | 1.6% | 22.0% |\n"
    )
    assert results.figures().splitlines() == [
        "| runs | process | reserved | allocated |",
        "|---|---|---|---|",
        "| LoRA | 1.5% (3.5%), 2 of 4 |  | 0.1% (0.2%), 3 of 4 |",
        "| detectors |  |  | 0 of 9 |",
        "",
        "Host memory of loaders and checkpoints: median error 1.2%, 8.0% at worst, 9 of 10 in their intervals.",
    ]


def test_held_out_runs_with_the_share_that_has_no_answer(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / results.HELD_OUT_PAGE).write_text(
        "| figure | quality | estimate |\n|---|---|---|\n| a | A | 7 |\n\n"
        "|  | answered | refused | median | p90 | worst under | worst over | inside |\n"
        "|---|---|---|---|---|---|---|---|\n"
        "| quality A | 3 | 1 | 1.4% | 9% | -30% | +1% | 90% |\n| some source | 1 | 1 | 2% | 2% | 0% | 2% | 50% |\n\n"
        "| outcome | fits | at-risk | exceeds | unknown |\n|---|---|---|---|---|\n| died | 1.0 | 0.0 | 3.0 | 6.0 |\n"
    )
    assert [line for line in results.held_out().splitlines() if not line.startswith("|--")] == [
        "| runs kept aside | with an answer | median error | nine in ten within | inside the interval |",
        "| program and figure are exact | 3 of 4 | 1.4% | 9% | 90% |",
        "",
        "| reports of jobs | no verdict | exceeds | at risk | fits |",
        "| that died | 60% | 30% | 0% | 10% |",
    ]


def test_repositories_that_were_labelled_first(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / results.CORPUS_PAGE).write_text(
        "|  | dev | held | last |\n|---|---|---|---|\n| launch files | 100 | 0 | 50 |\n"
        "| a figure of GPU memory: all is stated | 9 (9 %) | 0 | 1 (2 %) |\n"
        "| a figure that rests on a default for one of these | 9 (9 %) | 0 | 4 (8 %) |\n"
        "| a lower bound, or figures for a few values of what no file states | 1 (1 %) | 0 | 10 (20 %) |\n"
        "| unknown: model | 80 | 0 | 45 |\n"
    )
    assert "5 of 50 launch files get a figure, 10 bounds" in results.repositories()


def test_intervals_in_a_sentence(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / results.INTERVALS_PAGE).write_text(
        "| tier | runs | sources | inside | one vote a source |\n|---|---|---|---|---|\n"
        "| process | 3 | 2 | 9% | 9% |\n| all | 8 | 4 | 90.5% | 84.0% |\n"
    )
    inside = "90.5% lie inside an interval that was made without their source"
    assert results.intervals() == f"Of 8 runs, {inside}; 84.0% if each of 4 sources has one vote.\n"


def test_dry_runs_count_first_and_last_results(results: ModuleType, tmp_path: Path) -> None:
    (tmp_path / results.DRY_RUNS).mkdir(parents=True)
    failed, ran = '{"name": "%s", "batch": 1, "error": "no"}\n', '{"name": "%s", "batch": 1, "steps": [2]}\n'
    (tmp_path / results.DRY_RUNS / "results.jsonl").write_text(failed % "a" + ran % "b" + failed % "c")
    (tmp_path / results.DRY_RUNS / "results_again.jsonl").write_text(ran % "a")
    listed = "".join(f'[[scripts]]\nname = "{name}"\n' for name in "abc") + 'fails = "does not compile"\n'
    (tmp_path / results.DRY_RUNS / "scripts.toml").write_text(listed)
    assert results.dry_runs().splitlines()[-1] == "| 1 | 3 | 1 | 1 | 2 |"


def test_figures_of_hand_written_pages_are_those_of_the_outputs() -> None:
    root = Path(__file__).resolve().parents[2]
    shown = (root / "README.md").read_text()
    for name in ("docs/glossary.md", "docs/explanation/belief.md"):
        for figure in re.findall(r"\d+\.\d\d GiB", (root / name).read_text()):
            assert figure in shown, f"{name}: {figure}"
