"""What people see: the evidence is in the text, hostile text is not sent to the terminal, colours obey."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from outcomes import GIB, device, finding, host, outcome, span, study

from preflight import RULE_PAGES
from preflight.reports import automatic, render
from preflight.reports.bar import bar
from preflight.reports.explain import source_text
from preflight.reports.places import snippet
from preflight.reports.streams import clean
from preflight.reports.style import Look, columns, look_for, wrap
from preflight.reports.summary import studies_line, summary
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, Verdict
from preflight.vocabulary.findings import Part, Severity
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.standing import Assumption, Standing
from preflight.vocabulary.study import Bound
from preflight.vocabulary.study import Source as Place
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Origin, Span, Unknown
from preflight.vocabulary.words import assumed, gib, plural
from preflight.vocabulary.words import fits_if as words_of_fits

PLAIN = Look(width=100)
WHOLE = Look(width=100, detail="all")


def test_a_remark_of_many_places_is_shown_once(tmp_path: Path) -> None:
    bare = {"rule": "invalid-config", "message": "no program", "fix": None, "interval": None, "severity": Severity.info}
    places = [Origin("sweep.yaml", Span(at, at + 2)) for at in range(5)]
    remarks = tuple(finding(**{**bare, "origin": at}) for at in places)
    once = render("full", outcome(tmp_path, (*remarks, finding())), PLAIN)
    assert once.count("info[invalid-config]: no program") == 1
    assert "the same in 4 more places: sweep.yaml:1" in once
    assert render("full", outcome(tmp_path, remarks), WHOLE).count("no program") == 5
    errors = tuple(finding(**{**bare, "severity": Severity.error, "origin": at}) for at in places)
    assert render("full", outcome(tmp_path, errors), PLAIN).count("no program") == 5


def test_full_finding(tmp_path: Path) -> None:
    assert render("full", outcome(tmp_path, (finding(),)), WHOLE) == (
        "error[gpu-memory-exceeded]: needs 40 GiB of 24 GiB\n"
        " --> sweep.yaml:4:21\n"
        "  |\n"
        "4 |     values: [8, 16, 64]  # as in the paper\n"
        "  |                     ^^ too large\n"
        " ::: conf dir/train.py:1:39\n"
        "  |\n"
        "1 | loader = DataLoader(data, num_workers=16)\n"
        "  |                                       -- the workers\n"
        "  |\n"
        "  = GPU memory: 40 GiB expected (38 GiB to 42 GiB), 24 GiB available\n"
        "    █▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓\n"
        "    █ weights 1 GiB  ▓ activations 39 GiB\n"
        "  = note: gpt2, batch 64 x 1024\n"
        "  = help: use a smaller batch\n"
        "  = fix: write 16; `--unsafe-fixes` writes it (unsafe: the batch changes)\n"
        f"  = rule: {RULE_PAGES}/index.md\n"
        "\n"
        "Found 1 error (1 fix with --unsafe-fixes, which changes the run; add --diff to see it first)\n"
        "1 study, 3 combinations, worst 40.0 of 24.0 GiB: exceeds, host 8.0 of 32.0 GiB: fits\n"
    )


def test_ascii_look_has_only_ascii(tmp_path: Path) -> None:
    assert render("full", outcome(tmp_path, (finding(),)), Look(unicode=False)).isascii()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_lines_keep_to_the_width(tmp_path: Path, width: int) -> None:
    long = finding(message="word " * 60, notes=("note " * 60,), help=("help " * 60,))
    for detail in ("short", "all"):
        text = render("full", outcome(tmp_path, (long,)), Look(width=width, detail=detail))  # type: ignore[arg-type]
        lines = text.partition("\n\nFound")[0].splitlines()
        assert max(len(line) for line in lines if RULE_PAGES not in line) <= width  # an address stays whole


def test_colours_do_not_change_the_words(tmp_path: Path) -> None:
    plain = render("full", outcome(tmp_path, (finding(),)), PLAIN)
    coloured = render("full", outcome(tmp_path, (finding(),)), Look(colour=True, width=100))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_concise_is_one_line_per_finding(tmp_path: Path) -> None:
    text = render("concise", outcome(tmp_path, (finding(), finding(fix=None, origin=None))), PLAIN)
    first, second, *_ = text.splitlines()
    assert first == "sweep.yaml:4:21: error[gpu-memory-exceeded] needs 40 GiB of 24 GiB [*]"
    assert second == "error[gpu-memory-exceeded] needs 40 GiB of 24 GiB"


def test_github_annotation_escapes_what_the_runner_would_read(tmp_path: Path) -> None:
    odd = finding(message="100% of a, b: c", notes=(), help=("then\r\nthis",))
    first = render("github", outcome(tmp_path, (odd,)), PLAIN).splitlines()[0]
    assert first == (
        "::error file=sweep.yaml,line=4,endLine=4,col=21,endColumn=23,title=preflight%3A gpu-memory-exceeded::"
        "100%25 of a, b: c%0Athen\\x0d this"
    )


@pytest.mark.parametrize(
    ("estimates", "gpu", "words"),
    [
        (Estimates(device(8 * GIB), None), None, "worst 8.0 of 24.0 GiB: fits"),
        (Estimates(device(8 * GIB, None), None), None, "worst needs 8 GiB of GPU memory (no GPU is stated"),
        (Estimates(None, host(8 * GIB, None)), None, "host needs 8 GiB per node (no limit is stated)"),
        (Estimates(None, host(8 * GIB)), None, "host 8.0 of 32.0 GiB: fits, GPU memory unknown"),
        (Estimates(None, None, ("train.seq_len",)), None, "need unknown (train.seq_len not known"),
    ],
)
def test_summary_of_studies(tmp_path: Path, estimates: Estimates, gpu: Gpu | None, words: str) -> None:
    assert words in studies_line(outcome(tmp_path, (), (study(estimates, gpu),)), PLAIN)


def test_why_the_gpu_memory_is_unknown_is_said_once(tmp_path: Path) -> None:
    unknown = study(Estimates(None, host(8 * GIB), causes={"device": Unknown("quantised weights have no law")}))
    lines = list(summary(outcome(tmp_path, (), (unknown,)), WHOLE))
    assert lines[-1] == "note: the GPU memory of sweep.yaml is unknown: quantised weights have no law"
    short = list(summary(outcome(tmp_path, (), (unknown,)), PLAIN))
    assert short[-1] == "unknown: the GPU memory of sweep.yaml: quantised weights have no law"
    told = outcome(tmp_path, (finding(rule="fits-only-if", study=0),), (unknown,))
    for look in (PLAIN, WHOLE):
        assert not [line for line in summary(told, look) if line.startswith(("note:", "unknown:"))]


def test_smallest_gpu_is_named(tmp_path: Path) -> None:
    small = Gpu("RTX 4080", 16 * GIB, (0, 0, 0), (0, 0, 0), (8, 9))
    line = studies_line(outcome(tmp_path, (), (study(Estimates(device(8 * GIB, None), None), smallest=small),)), PLAIN)
    assert "the smallest GPU that fits is RTX 4080" in line


def test_a_lower_bound_names_no_gpu_that_fits(tmp_path: Path) -> None:
    """It says which GPUs are too small. That no GPU fits, or which one does, does not follow."""
    bound = replace(device(8 * GIB, None), lower_bound=True)
    line = studies_line(outcome(tmp_path, (), (study(Estimates(bound, None)),)), PLAIN)
    assert "at least 8 GiB of GPU memory (no GPU is stated: which one fits is not known)" in line
    assert "no single GPU" not in line


def test_clean_and_unrecognised_do_not_look_alike(tmp_path: Path) -> None:
    nothing = list(summary(outcome(tmp_path, (), (), files=(), unrecognised=("a.yaml", "b.yaml", "c.py")), PLAIN))
    assert nothing[:2] == [
        "warning: no job was checked: nothing recognised in 3 files",
        "  looked at: files that are not recognised: 2 YAML files, 1 Python file",
    ]
    assert nothing[2].startswith(
        "  next: name the file that starts the job (preflight check train.py), or state a job by"
    )
    idle = list(summary(outcome(tmp_path, (), ()), PLAIN))
    assert idle[0] == "warning: no job was checked: 1 file read, and nothing in it trains a model"
    empty = list(summary(outcome(tmp_path, (), (), files=()), PLAIN))
    assert empty[0] == "warning: no job was checked: no file has a name that preflight reads"
    assert empty[1].startswith("  next: ")


def test_control_characters_of_a_file_are_shown_not_sent(tmp_path: Path) -> None:
    text = "name: \x1b[31mred\x1b[0m\u202e\n"
    report = outcome(tmp_path, (finding(origin=Origin("evil.yaml", Span(6, 9)), related=(), message="\x1b]0;x\x07"),))
    (tmp_path / "evil.yaml").write_text(text)
    shown = render("full", report, PLAIN)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[31mred" in shown


def test_span_beyond_the_text_is_no_crash(tmp_path: Path) -> None:
    gone = finding(
        origin=Origin("sweep.yaml", Span(10_000, 10_010)), related=((Origin("none.yaml", Span(3, 4)), "gone"),)
    )
    shown = render("full", outcome(tmp_path, (gone,)), WHOLE)
    assert "::: none.yaml\n" in shown


@pytest.mark.parametrize(
    ("text", "part", "under"),
    [
        ("a: 10\n", "10", "   ^^ here"),
        ("\ta: 10\n", "10", "       ^^ here"),
        ("日本: 10\n", "10", "      ^^ here"),
        ("a:\n  b: 1\n", "a:\n  b", "^^ here"),
        ("a: ''\n", "''", "   ^^ here"),
    ],
)
def test_caret_stands_under_the_span(text: str, part: str, under: str) -> None:
    lines = snippet(Source("x", text), span(text, part), "here", "^", "bold", PLAIN, 1)
    assert lines[1] == "  | " + under


def test_a_label_without_room_behind_the_marks_stands_before_them() -> None:
    text = f"{'a' * 40} = 64"
    lines = snippet(Source("x", text), span(text, "64"), "too much for this GPU", "^", "bold", Look(width=60), 1)
    assert lines[1] == "  | " + "too much for this GPU ^^".rjust(45)
    assert all(len(line) <= 60 for line in lines)


def test_long_line_is_cut_around_the_span() -> None:
    text = "x: [" + "1, " * 200 + "64, " + "2, " * 200 + "]\n"
    lines = snippet(Source("x", text), span(text, "64"), "", "^", "bold", Look(width=60), 1)
    assert all(columns(line) <= 60 for line in lines)
    at = lines[1].index("^")
    assert lines[0][at : at + 2] == "64"


def test_bar_is_to_scale_and_marks_the_capacity() -> None:
    line, _ = bar((Part("weights", 10 * GIB), Part("activations", 10 * GIB)), 40 * GIB, Look(unicode=False), 42)
    assert line == "#" * 10 + "=" * 10 + " " * 20 + "|"


def test_bar_keeps_the_five_largest_parts() -> None:
    parts = tuple(Part(f"p{size}", size * GIB) for size in range(1, 9))
    legend = " ".join(bar(parts, None, PLAIN, 90)[1:])
    assert [f"p{size}" in legend for size in range(1, 9)] == [False] * 3 + [True] * 5
    assert "other 6 GiB" in legend


def test_bar_of_nothing_is_nothing() -> None:
    assert bar((), 1, PLAIN, 60) == []


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "colour"),
    [
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "0"}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_obey_the_environment(stream: io.StringIO, env: dict[str, str], colour: bool) -> None:
    assert look_for(stream, env).colour is colour


def test_auto_is_github_within_actions_only() -> None:
    assert automatic({"GITHUB_ACTIONS": "true"}) == "github"
    assert automatic({"CI": "true"}) == "full"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (512, "512 bytes"),
        (2048, "2 KiB"),
        (1_153_434, "1.1 MiB"),
        (GIB, "1 GiB"),
        (8 * 10**9, "7.45 GiB"),
    ],
)
def test_sizes_are_binary(size: int, text: str) -> None:
    assert gib(size) == text


def test_words() -> None:
    assert [plural(1, "study"), plural(2, "study"), plural(0, "file")] == ["1 study", "2 studies", "0 files"]
    assert wrap("one two three four five six seven", 24, "  ", 4) == "one two three four\n  five six seven"
    assert clean("a\tb\nc") == "a    b c"


SEVERAL = (
    Assumption("train.batch_size", 8, Standing.by_name, "a name suggests it"),
    Assumption("train.attention", "sdpa", Standing.assumed, "the program was not read"),
    Assumption("train.copies.ema", 0, Standing.assumed, "the program was not read"),
    Assumption("validation.batch_size", None, Standing.unknown, "a pattern"),
    Assumption("train.compile", False, Standing.assumed, "the program was not read"),
)


def fits_if(assumptions: tuple[Assumption, ...] = SEVERAL[:1]) -> DeviceEstimate:
    return replace(device(8 * GIB), verdict="fits-if", assumptions=assumptions)


@pytest.mark.parametrize("format_", ["full", "concise", "github"])
def test_what_has_to_hold_is_always_said(tmp_path: Path, format_: str) -> None:
    shown = render(format_, outcome(tmp_path, (), (study(Estimates(fits_if(), None)),)), PLAIN)
    assert "8.0 of 24.0 GiB: fits if its assumptions hold" in shown
    assert "note: sweep.yaml fits if train.batch_size = 8 (a name suggests it)" in shown


def test_assumptions_of_one_reason_stand_together() -> None:
    names, program = "train.batch_size = 8 (a name suggests it)", "(the program was not read)"
    words = f"{names}, train.attention = sdpa, train.copies.ema = 0 {program}"
    assert assumed(SEVERAL[:3]) == words
    assert (
        assumed(SEVERAL) == f"{words}, validation.batch_size not known (a pattern), and 1 more, which --explain shows"
    )
    assert assumed(SEVERAL[4:]) == "train.compile = false (the program was not read)"


def test_a_field_without_a_value_decides_whether_it_fits() -> None:
    words = "train.batch_size = 8 (a name suggests it), validation.batch_size allows it (a pattern)"
    assert words_of_fits((SEVERAL[0], SEVERAL[3])) == f"fits if {words}"


@pytest.mark.parametrize("verdict", ["at-risk", "unknown", "exceeds"])
def test_what_has_to_hold_for_the_host_is_said_beside_any_verdict_of_the_gpu(tmp_path: Path, verdict: Verdict) -> None:
    roomy = replace(host(8 * GIB), verdict="fits-if", assumptions=SEVERAL[:1])
    one = study(Estimates(replace(device(8 * GIB), verdict=verdict), roomy))
    lines = list(summary(outcome(tmp_path, (), (one,)), PLAIN))
    assert "note: the host memory of sweep.yaml fits if train.batch_size = 8 (a name suggests it)" in lines


@pytest.mark.parametrize(("verdict", "said"), [("at-risk", True), ("unknown", False)])
def test_only_an_implausible_need_is_called_so(tmp_path: Path, verdict: Verdict, said: bool) -> None:
    one = study(Estimates(replace(device(40 * GIB), verdict=verdict, assumptions=SEVERAL[:1]), None))
    assert ("not plausible" in "\n".join(summary(outcome(tmp_path, (), (one,)), PLAIN))) == said


def test_why_a_bound_is_not_certain_is_said(tmp_path: Path) -> None:
    least = replace(device(40 * GIB), lower_bound=True, notes=("about images",))
    bound = replace(least, verdict="unknown", assumptions=SEVERAL[1:2])
    lines = list(summary(outcome(tmp_path, (), (study(Estimates(bound, None)),)), WHOLE))
    said = "it needs at least 40 GiB with train.attention = sdpa (the program was not read)"
    assert lines[-1] == f"note: the GPU memory of sweep.yaml is unknown: {said}"


def test_the_summary_names_no_field_that_is_not_the_cause(tmp_path: Path) -> None:
    """The model has no law; that a sample's size is not known either does not matter."""
    cause = Unknown("no law is shipped for it", Cause.no_law)
    unknown = Estimates(None, None, ("data.sample_bytes",), {"device": cause})
    lines = list(summary(outcome(tmp_path, (), (study(unknown),)), WHOLE))
    assert "data.sample_bytes" not in "".join(lines)
    assert lines[-1].endswith("is unknown: no law is shipped for it")


def test_a_default_of_every_program_names_no_file(tmp_path: Path) -> None:
    bare = Bound("machine.accelerator", Const("gpu"), default=True, source=Place.library)
    [report] = outcome(tmp_path).reports
    assert source_text(outcome(tmp_path), report, bare) == "default of the library"


@pytest.mark.parametrize(("field", "told"), [("machine.gpu", False), ("train.batch_size", True)])
def test_a_dry_run_does_not_tell_which_gpu_it_is(field: str, told: bool, tmp_path: Path) -> None:
    assumed_so = (Assumption(field, "A100 40GB", Standing.read, "its name may mean another"),)
    found = study(Estimates(replace(device(40 * GIB), verdict="unknown", assumptions=assumed_so), None))
    of_program = replace(found, study=replace(found.study, program="train.py"))
    lines = summary(outcome(tmp_path, (), (of_program,)), Look())
    assert any("preflight dry-run" in line for line in lines) is told
