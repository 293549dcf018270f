"""A finding on the first screen: at most eight lines, each of which can be understood alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from outcomes import GIB, finding, outcome

from preflight.reports import render
from preflight.reports.short import MOST_LINES, cost_text
from preflight.reports.style import Look
from preflight.vocabulary.findings import Finding, Fix, Part, Safety, TimeCost

SLOWER = TimeCost(1.2, 1.35, "a step", "a second forward", "a paper")


def shown(root: Path, one: Finding, look: Look | None = None) -> list[str]:
    """The lines of a finding."""
    return render("full", outcome(root, (one,)), look or Look()).partition("\n\n")[0].splitlines()


def test_eight_lines_say_what_where_how_much_and_the_fix(tmp_path: Path) -> None:
    assert shown(tmp_path, finding()) == [
        "error[gpu-memory-exceeded]: needs 40 GiB of 24 GiB",
        " --> sweep.yaml:4:21",
        "4 |     values: [8, 16, 64]  # as in the paper",
        "  |                     ^^ too large",
        "  = need: 40 GiB (38 GiB to 42 GiB), the GPU has 24 GiB  " + "█" * 25 + "│" + "█" * 15 + "▓",
        "  = most: activations 39 GiB, 98 % of it",
        "  = fix: `--unsafe-fixes` writes: write 16; it changes the run: the batch changes",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_nothing_makes_it_longer_or_wider(tmp_path: Path, width: int) -> None:
    long = Fix("word " * 90, Safety.unsafe, (), "reason " * 90, (SLOWER, SLOWER))
    for one in (
        finding(message="word " * 90, notes=("note " * 60,), help=("help " * 90,), fix=long),
        finding(message="word " * 90, fix=None, help=("help " * 90,)),
        finding(headline="head " * 90, origin=None, interval=None, fix=None, help=()),
        finding(message="x" * 300),
    ):
        lines = shown(tmp_path, one, Look(width=width))
        assert len(lines) <= MOST_LINES
        assert all(len(line) <= width for line in lines if "xxx" not in line)


def test_what_is_cut_says_so(tmp_path: Path) -> None:
    lines = shown(tmp_path, finding(message="word " * 90))
    assert lines[1].endswith(" …")
    assert shown(tmp_path, finding(message="word " * 90), Look(unicode=False))[1].endswith(" ...")


def test_the_headline_is_said_in_the_place_of_the_message(tmp_path: Path) -> None:
    one = finding(headline="the job does not fit")
    assert shown(tmp_path, one)[0] == "error[gpu-memory-exceeded]: the job does not fit"
    whole = render("full", outcome(tmp_path, (one,)), Look(detail="all"))
    assert whole.startswith("error[gpu-memory-exceeded]: needs 40 GiB of 24 GiB\n")


def test_without_a_capacity_there_is_no_bar(tmp_path: Path) -> None:
    lines = shown(tmp_path, finding(capacity=None))
    assert "  = need: 40 GiB (38 GiB to 42 GiB)" in lines


def test_a_part_is_named_in_words(tmp_path: Path) -> None:
    lines = shown(tmp_path, finding(parts=(Part("queue", 30 * GIB),), side="host"))
    assert "  = most: queue (batches that wait for the GPU) 30 GiB, 75 % of it" in lines


def test_a_fix_says_what_it_costs_in_time_and_everything_names_the_source(tmp_path: Path) -> None:
    fix = Fix("turn it on", Safety.safe, (), costs=(SLOWER,))
    assert cost_text(SLOWER) == "a step takes 1.2 to 1.35 times as long"
    assert shown(tmp_path, finding(fix=fix))[-1] == f"  = fix: `--fix` writes: turn it on; {cost_text(SLOWER)}"
    whole = render("full", outcome(tmp_path, (finding(fix=fix),)), Look(detail="all"))
    assert f"  = cost: {cost_text(SLOWER)}: a second forward (a paper)\n" in whole


def test_help_stands_in_the_place_of_a_fix(tmp_path: Path) -> None:
    assert shown(tmp_path, finding(fix=None, help=("ask for more", "or less")))[-1] == "  = help: ask for more"


def test_a_single_line_is_left_when_asked_for(tmp_path: Path) -> None:
    text = render("full", outcome(tmp_path, (finding(), replace(finding(), fix=None))), Look(detail="line"))
    assert text == (
        "sweep.yaml:4:21: error[gpu-memory-exceeded] needs 40 GiB of 24 GiB [*]\n"
        "sweep.yaml:4:21: error[gpu-memory-exceeded] needs 40 GiB of 24 GiB\n"
    )
