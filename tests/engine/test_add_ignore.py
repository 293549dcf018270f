"""`--add-ignore`: comments that ignore what was found and change nothing else, or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from command_line import PROGRAM, SWEEP, Command, TooLarge, fake_engine
from folders import Write

from preflight.engine.suppress import ignores
from preflight.fixes.comments import above, behind, means_the_same
from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.rule import Case, Rule
from preflight.vocabulary.text import Source, splice
from preflight.vocabulary.values import Origin, Span

GPU = ("--gpu", "RTX 4090")


class AboutTheRequest(Rule):
    name = "about-the-request"
    summary = "It speaks of a line of directives"

    def check(self, case: Case) -> Iterator[Finding]:
        text = case.project.source(case.study.paths[0]).text
        at = text.index("#SBATCH")
        yield self.finding("words", Origin(case.study.paths[0], Span(at, at + 7)), Severity.error)


class AboutTheFile(Rule):
    name = "about-the-file"
    summary = "It speaks of a file"

    def check(self, case: Case) -> Iterator[Finding]:
        yield self.finding("words", None, Severity.error)


class AgainstComments(Rule):
    name = "against-comments"
    summary = "It finds our comments in one of the files"

    def check(self, case: Case) -> Iterator[Finding]:
        text = case.project.source(case.study.paths[0]).text
        if "run_cap" in text and "preflight:" in text:
            yield self.finding("words", None, Severity.error)


FILES = {"sweep.yaml": SWEEP, "train.py": PROGRAM}


# --- texts: what must not be written -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("x.sh", "#!/bin/bash\necho\n", 1),
        ("x.sh", "#SBATCH --mem=1G\n", 1),
        ("x.sh", "python train.py \\\n  --batch 8\n", 1),
    ],
)
def test_nothing_is_written_behind(path: str, text: str, line: int) -> None:
    assert behind(Source(path, text), line, "# c") is None


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [("x.sh", "#!/bin/bash\necho\n", 1), ("x.sh", "python train.py \\\n  --batch 8\n", 2)],
)
def test_nothing_is_written_above(path: str, text: str, line: int) -> None:
    assert above(Source(path, text), line, "# c") is None


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("x.yaml", "a: |\n  one\n  two\nb: 1\n", 2),
        ("x.yaml", "a: >-\n  one\n", 2),
        ("x.yaml", 'a: "one\n  two"\n', 1),
        ("x.yaml", "a: [1,\n", 1),
        ("x.py", 'a = """one\ntwo"""\n', 1),
        ("x.py", "a = (\n", 1),
        ("x.sh", "cat <<EOF\none\nEOF\n", 2),
        ("x.sh", 'echo "one\ntwo"\n', 1),
        ("x.sh", "cat <<EOF\none\nEOF\n", 3),
        ("x.json", '{"a": 1}\n', 1),
    ],
)
def test_comment_that_would_be_a_part_of_the_text_is_refused(path: str, text: str, line: int) -> None:
    source = Source(path, text)
    edits = [edit for make in (behind, above) if (edit := make(source, line, "# c")) is not None]
    assert not all(means_the_same(source, edit) for edit in edits) or not edits


@pytest.mark.parametrize("text", ["a: 1\nb: 2\n", "a: 1\r\nb: 2\r\n", "a: 1", "a: 1   \nb: 2\n", "a:\n  - 1\n"])
def test_comment_behind_a_value_changes_nothing(text: str) -> None:
    source = Source("x.yaml", text)
    edit = behind(source, 1, "# c")
    assert edit is not None
    assert means_the_same(source, edit)
    assert splice(text, [edit]).startswith(("a: 1  # c", "a:  # c"))


def test_line_above_is_indented_and_ends_as_the_others() -> None:
    source = Source("x.sh", "if true; then\r\n\tpython a.py\r\nfi\r\n")
    edit = above(source, 2, "# c")
    assert edit is not None
    assert means_the_same(source, edit)
    assert splice(source.text, [edit]) == "if true; then\r\n\t# c\r\n\tpython a.py\r\nfi\r\n"


# --- the command ----------------------------------------------------------------------------------------------------


def test_nothing_is_written_without_findings(project: Write, check: Command) -> None:
    root = project({"sweep.yaml": SWEEP.replace("64", "8"), "train.py": PROGRAM})
    run = check(".", *GPU, "--add-ignore")
    assert (run.status, "ignored" in run.out) == (0, False)
    assert "preflight:" not in (root / "sweep.yaml").read_text()


def test_fixes_come_first(project: Write, check: Command) -> None:
    root = project(FILES)
    run = check(".", *GPU, "--add-ignore", "--fix")
    assert (run.status, run.err.count("\n")) == (2, 1)
    assert (root / "sweep.yaml").read_text() == SWEEP


def test_diff_writes_nothing(project: Write, check: Command) -> None:
    root = project(FILES)
    run = check(".", *GPU, "--add-ignore", "--diff")
    assert run.status == 1
    assert "+  # preflight: ignore[too-large]\n" in run.out
    assert (root / "sweep.yaml").read_text() == SWEEP


def test_written_once_and_only_the_comment(project: Write, check: Command) -> None:
    """The line has a comment already, so the new one stands above it."""
    root = project(FILES)
    run = check(".", *GPU, "--add-ignore")
    assert run.status == 0
    assert "note: 1 finding is ignored now, by comments in sweep.yaml" in run.out
    text = (root / "sweep.yaml").read_text()
    line = "  batch_size: {value: 64}"
    assert text == SWEEP.replace(line, f"  # preflight: ignore[too-large]\n{line}")
    again = check(".", *GPU, "--add-ignore")
    assert (again.status, (root / "sweep.yaml").read_text()) == (0, text)


def test_line_without_a_comment_gets_it_at_its_end(project: Write, check: Command) -> None:
    root = project({**FILES, "sweep.yaml": SWEEP.replace("  # as in the paper", "")})
    check(".", *GPU, "--add-ignore")
    assert "{value: 64}  # preflight: ignore[too-large]\n" in (root / "sweep.yaml").read_text()


def test_comment_that_is_there_gets_the_new_name(project: Write, check: Command) -> None:
    ours = "  # preflight: ignore[other-rule] until 2999-01-01: why"
    root = project({**FILES, "sweep.yaml": SWEEP.replace("  # as in the paper", ours)})
    check(".", *GPU, "--add-ignore")
    [found] = ignores(Source("sweep.yaml", (root / "sweep.yaml").read_text()))
    assert (found.rules, found.until, found.reason) == (("other-rule", "too-large"), "2999-01-01", "why")


def test_value_of_a_program_gets_it_in_the_program(project: Write, check: Command) -> None:
    sweep = SWEEP.replace("  batch_size: {value: 64}  # as in the paper\n", "")
    program = PROGRAM.replace("default=4", "default=64")
    root = project({"sweep.yaml": sweep, "train.py": program})
    assert check(".", *GPU, "--add-ignore").status == 0
    assert (root / "train.py").read_text() == program.replace(
        "default=64)", "default=64)  # preflight: ignore[too-large]"
    )


def test_script_gets_it_where_its_command_stays_the_same(project: Write, check: Command) -> None:
    """The line of the finding ends the command, and the one above goes on, so that no line can stand between them."""
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py --max_length 512 \\\n  --batch_size 64\n"
    root = project({"run.sh": script, "train.py": PROGRAM})
    assert check("run.sh", *GPU).status == 1
    assert check("run.sh", *GPU, "--add-ignore").status == 0
    assert (root / "run.sh").read_text() == script.replace("size 64", "size 64  # preflight: ignore[too-large]")


def test_directive_gets_it_above(project: Write, check: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine(monkeypatch, AboutTheRequest)
    script = "#!/bin/bash\n#SBATCH --mem=1G\npython train.py\n"
    root = project({"run.sh": script, "train.py": PROGRAM})
    run = check("run.sh", *GPU, "--add-ignore")
    assert run.status == 0
    assert (root / "run.sh").read_text() == script.replace("#SBATCH", "# preflight: ignore[about-the-request]\n#SBATCH")


def test_finding_about_a_whole_script_is_ignored_below_its_first_line(
    project: Write, check: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch, AboutTheFile)
    script = "#!/bin/bash\npython train.py\n"
    root = project({"run.sh": script, "train.py": PROGRAM})
    assert check("run.sh", *GPU, "--add-ignore").status == 0
    expected = script.replace("bash\n", "bash\n# preflight: ignore-file[about-the-file]\n")
    assert (root / "run.sh").read_text() == expected


def test_what_a_comment_cannot_ignore_alone_is_left_and_the_rest_is_ignored(
    project: Write, check: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that sees its own comment: nothing is written into that file, and the other file gets its comment."""
    fake_engine(monkeypatch, TooLarge, AgainstComments)
    sweep = SWEEP.replace("  # as in the paper", "")
    root = project({"a.yaml": sweep, "b.yaml": sweep + "run_cap: 1\n", "train.py": PROGRAM})
    run = check(".", *GPU, "--add-ignore")
    assert run.status == 1
    assert "no comment can be proved to ignore only what is found at b.yaml:4 (too-large)" in run.out
    assert "preflight: ignore[too-large]" in (root / "a.yaml").read_text()
    assert (root / "b.yaml").read_text() == sweep + "run_cap: 1\n"


def test_file_without_comments_stays_and_is_named(project: Write, check: Command) -> None:
    import json as text_of

    sweep = {
        "program": "train.py", "method": "grid",
        "parameters": {"batch_size": {"value": 64}, "max_length": {"value": 512}},
    }  # fmt: skip
    root = project({"sweep.json": text_of.dumps(sweep, indent=1), "train.py": PROGRAM})
    run = check("sweep.json", *GPU, "--add-ignore")
    assert run.status == 1
    assert "no comment can be proved to ignore only what is found at sweep.json:6 (too-large)" in run.out
    assert (root / "sweep.json").read_text() == text_of.dumps(sweep, indent=1)


def test_findings_of_a_baseline_need_no_comment(project: Write, check: Command) -> None:
    root = project(FILES)
    check(".", *GPU, "--write-baseline", "old.json")
    check(".", *GPU, "--baseline", "old.json", "--add-ignore")
    assert (root / "sweep.yaml").read_text() == SWEEP
