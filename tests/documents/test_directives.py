"""`#SBATCH` lines: what sbatch reads, and what it silently does not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.documents.bash import parse_bash
from preflight.documents.directives import read_directives
from preflight.vocabulary.text import Source


def options(text: str) -> list[tuple[str, str | None]]:
    return [(d.name, d.value) for d in read_directives(text)[0]]


IGNORED = [
    ("##SBATCH --mem=1G\n", "double-hash"),
    ("# SBATCH --mem=1G\n", "space"),
    ("#\tSBATCH --mem=1G\n", "space"),
    (" #SBATCH --mem=1G\n", "indented"),
    ("#sbatch --mem=1G\n", "case"),
    ("set -e\n#SBATCH --mem=1G\n", "after-command"),
    ("  ls # x\n#SBATCH --mem=1G\n", "after-command"),
    ("#SBATCH --comment='x\n", "quote"),
]


@pytest.mark.parametrize(("text", "reason"), IGNORED)
def test_lines_that_sbatch_does_not_read_have_a_reason(text: str, reason: str) -> None:
    directives, ignored = read_directives("#!/bin/bash\n" + text)
    assert directives == ()
    (line,) = ignored
    assert line.reason == reason
    assert line.message
    if reason != "quote":
        assert line.text == "--mem=1G"


@pytest.mark.parametrize(
    "text",
    [
        "# see SBATCH docs\n",
        "# SBATCH options below\n",
        "# SBATCH - see there\n",
        "#SLURM x\n",
        "#SBATCHES\n",
        "echo '#SBATCH'\n",
        "",
    ],
)
def test_prose_is_no_directive(text: str) -> None:
    directives, ignored = read_directives(text)
    assert (directives, [i for i in ignored if i.reason != "after-word"]) == ((), [])


def test_heredocs_are_another_scripts() -> None:
    document = parse_bash(Source("a.sh", "#SBATCH -N 1\ncat <<EOF\n#SBATCH -N 2\n # SBATCH -N 3\nEOF\n#SBATCH -N 4\n"))
    assert [d.value for d in document.directives] == ["1"]
    assert [(i.line, i.reason) for i in document.ignored_directives] == [(6, "after-command")]


READ: list[tuple[str, list[tuple[str, str | None]]]] = [
    ("#SBATCH --mem=4G", [("mem", "4G")]),
    ("#SBATCH --mem 4G", [("mem", "4G")]),
    ("#SBATCH --mem                 32G", [("mem", "32G")]),
    ("#SBATCH\t--mem=4G\r", [("mem", "4G")]),
    ("#SBATCH--mem=4G", [("mem", "4G")]),
    ("#SBATCH -N4", [("nodes", "4")]),
    ("#SBATCH -N 4 -n8 --gres gpu:2", [("nodes", "4"), ("ntasks", "8"), ("gres", "gpu:2")]),
    ("#SBATCH -HQ", [("hold", None), ("quiet", None)]),
    ("#SBATCH -Hn4", [("hold", None), ("ntasks", "4")]),
    ("#SBATCH --exclusive", [("exclusive", None)]),
    ("#SBATCH --exclusive=user -N1", [("exclusive", "user"), ("nodes", "1")]),
    ("#SBATCH --exclusive -N1", [("exclusive", None), ("nodes", "1")]),
    ("#SBATCH --mem=4G # all of it", [("mem", "4G")]),
    ("#SBATCH --mem=4G#x", [("mem", "4G")]),
    ("#SBATCH --comment='# x y' -N1", [("comment", "# x y"), ("nodes", "1")]),
    ('#SBATCH --comment="a\\"b"', [("comment", 'a"b')]),
    ("#SBATCH --comment=a\\ b", [("comment", "a b")]),
    ("#SBATCH --nodes=$N", [("nodes", "$N")]),
    ("#SBATCH --cpus-per-t=4", [("cpus-per-task", "4")]),
    ("#SBATCH --tasks-per-node=4", [("ntasks-per-node", "4")]),
    ("#SBATCH --mem", [("mem", None)]),
    ("#SBATCH --mem\n#SBATCH 4G", [("mem", "4G")]),
    ("#SLURM -N2", [("nodes", "2")]),
    ("\n# c\n  # d\n#SBATCH -N1\n\n#SBATCH -N2", [("nodes", "1"), ("nodes", "2")]),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_options_are_read_as_sbatch_reads_them(text: str, expected: list[tuple[str, str | None]]) -> None:
    assert options(text) == expected


def test_unknown_and_ambiguous_options_are_marked() -> None:
    directives, _ = read_directives("#SBATCH --foo=1 --bar 2 --ntasks-per=4 --quiet\n")
    assert [(d.name, d.value, d.known) for d in directives] == [
        ("foo", "1", False), ("bar", "2", False), ("ntasks-per", "4", False), ("quiet", None, True),
    ]  # fmt: skip


def test_reading_stops_at_a_word_that_is_no_option() -> None:
    directives, ignored = read_directives("#SBATCH -N1 4G\n#SBATCH --mem=1G\n")
    assert [d.name for d in directives] == ["nodes"]
    assert [(i.reason, i.text) for i in ignored] == [("after-word", "4G")]


def test_hetjob_starts_another_component() -> None:
    directives, _ = read_directives("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n")
    assert [(d.value, d.component) for d in directives] == [("1", 0), ("2", 1)]


def test_places_of_option_name_and_value() -> None:
    text = "# 😀\n#SBATCH --gres='gpu:2' -N4 -c 8 # c\n"
    directives, _ = read_directives(text)
    cut = [[text[s.start : s.end] for s in (d.span, d.name_span, d.value_span) if s is not None] for d in directives]
    assert cut == [["--gres='gpu:2'", "--gres", "'gpu:2'"], ["-N4", "-N", "4"], ["-c 8", "-c", "8"]]
    assert [d.line for d in directives] == [2, 2, 2]


@given(st.text(st.sampled_from("#SBATCH -=\"'\\mN4\n x$"), max_size=60))
@settings(max_examples=examples(300))
def test_any_text_is_read_and_places_hold_the_values(text: str) -> None:
    directives, ignored = read_directives("#SBATCH " + text)
    for directive in directives:
        assert directive.span.start <= directive.name_span.start <= directive.name_span.end <= directive.span.end
        if directive.value_span is not None and directive.value is not None and not set(directive.value) & set("'\"\\"):
            raw = ("#SBATCH " + text)[directive.value_span.start : directive.value_span.end]
            assert raw.replace("'", "").replace('"', "").replace("\\", "") == directive.value
    assert all(0 <= i.span.start <= i.span.end <= len(text) + 8 for i in ignored)


@pytest.mark.parametrize("part", ["{{", "{%", "{{ ", "{ ", "<", "@a", "[[A", "{a "])
def test_half_a_placeholder_is_read_once(part: str) -> None:
    """60 KiB of `{{` took 25 seconds of CPU time: each was compared with all the characters behind it."""
    start = time.process_time()
    read_directives("#SBATCH --comment={" + part * (60_000 // len(part)))
    assert time.process_time() - start < 5
