"""Job scripts: words, assignments, commands and what they stand inside."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.documents.bash import BashDocument, parse_bash, reparse
from preflight.documents.render import render
from preflight.documents.shell_reader import ShellCommand
from preflight.documents.shell_words import apply_defaults
from preflight.vocabulary.budgets import Budget
from preflight.vocabulary.text import DocumentError, Edit, Source, splice
from preflight.vocabulary.values import Const, Expr, Op, Origin, Ref, Unknown, evaluate, substitute


def parse(text: str) -> BashDocument:
    return parse_bash(Source("job.sh", text))


def written(document: BashDocument, origin: Origin | None) -> str:
    assert origin is not None
    return document.source.text[origin.span.start : origin.span.end]


def environment(document: BashDocument) -> dict[str, Expr]:
    """A plain reading of a script: the last assignment of a name counts, `${X:-d}` decided by what came before."""
    env: dict[str, Expr] = {}
    for assignment in document.assignments:
        env[assignment.name] = substitute(apply_defaults(assignment.expr, env), env)
    return env


VALUES: list[tuple[str, object]] = [
    ("X=16", "16"),
    ("X='a b'", "a b"),
    ('X="a  b "', "a  b "),
    ("X=a\\ b", "a b"),
    ("X=$'a\\tb'", "a\tb"),
    ("X=", ""),
    ("Y=3; X=$Y", "3"),
    ("Y=3; X=${Y}0", "30"),
    ("Y=3; X=\" $Y  '${Y}' \"", " 3  '3' "),
    ("Y=3; X='$Y'", "$Y"),
    ("Y=3; X=\\$Y", "$Y"),
    ('X="a\\"b\\\\c\\$d\\n"', 'a"b\\c$d\\n'),
    ('X="a\\\nb"', "ab"),
    ("X=${Z:-8}", "8"),
    ("Z=4; X=${Z:-8}", "4"),
    ("Z=; X=${Z:-8}", "8"),
    ("X=${Z-8}", "8"),
    (': "${X:=8}"', "8"),
    ("X=${Z:+8}", ""),
    ("Z=1; X=${Z:+8}", "8"),
    ("Z=1; X=${Y:-${Z:-2}/x}", "1/x"),
    ("X=${Z:-}", ""),
    ("Z=1; X=${Z:?not set}", "1"),
    ("A=3; X=$((A * (2 + 1) - 10 / 4 % 2))", 9),
    ("A=3; X=$(( $A > 2 ? ${A} ** 2 : 0x10 ))", 9),
    ("X=$((010 + -1))", 7),
    ("X=$[1+2]", 3),
    ("A=(1 '2 3' x); X=${A[1]}", "2 3"),
    ("A=(1 2 4); i=2; X=${A[i]}", "4"),
    ("A=(1 2 4); i=2; X=${A[$i]}", "4"),
    ("A=(1 2 4); i=2; X=${A[$((i-1))]}", "2"),
    ("A=(1 2 4); X=${#A[@]}", 3),
    ("export X=5", "5"),
    ("declare -x X=5", "5"),
    ("Y=1 X=5\n", "5"),
    ("Y=1 X=5\nZ=1 W=2\nexport Q", "5"),
    ("X=é😀", "é😀"),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values_are_what_the_shell_makes_of_them(text: str, value: object) -> None:
    assert evaluate(environment(parse(text))["X"]) == value


@pytest.mark.parametrize(
    "text",
    ["X=$(nproc)", "X=`nproc`", "X=${Y%.*}", "X=${!Y}", "X=${Y:0:2}", "X=${Y/a/b}", "X=a$(b)c", "read -r X",
     "X=$((Y++))", "for X in 1 2; do :; done", "X=($(ls))", "X=(a $B)", "X=<(ls)"],
)  # fmt: skip
def test_what_would_have_to_run_is_unknown(text: str) -> None:
    assert isinstance(evaluate(environment(parse(text))["X"]), Unknown)


def words(command: ShellCommand) -> list[str | None]:
    return [word.literal for word in command.words]


def test_a_launch_with_prefixes_redirections_continuations_and_a_comment() -> None:
    document = parse("A=1 B='x' srun --mem=4G \\\n  python train.py lr=0.1 'a b' \"$A\" > log 2>&1 &  # c\nwait\n")
    first, second = document.commands
    assert words(first) == ["srun", "--mem=4G", "python", "train.py", "lr=0.1", "a b", None]
    assert [a.name for a in first.environment] == ["A", "B"]
    assert first.background
    assert words(second) == ["wait"]
    assert document.assignments == ()


def test_what_a_command_stands_inside() -> None:
    document = parse(
        "for s in 1 2; do python a.py; done\nif [ -f x ]; then python b.py; else python c.py; fi\n"
        "f() { python d.py; }\n(cd x; python e.py) &\n[ -f x ] && python f.py\ncd x && python g.py || exit 1\n"
        "case $A in 1) python h.py;; esac\nwhile true; do python i.py; done\npython j.py | tee log\n"
    )
    found = {c.words[1].literal: c for c in document.commands if c.name == "python"}
    kinds = {name: [block.kind for block in command.blocks] for name, command in found.items()}
    assert kinds == {
        "a.py": ["loop"],
        "b.py": ["conditional", "branch"],
        "c.py": ["conditional", "branch"],
        "d.py": ["function"],
        "e.py": ["subshell"],
        "f.py": ["conditional"],
        "g.py": [],
        "h.py": ["conditional", "branch"],
        "i.py": ["loop"],
        "j.py": [],
    }
    (loop,) = found["a.py"].blocks
    assert (loop.name, [word.literal for word in loop.words]) == ("s", ["1", "2"])
    assert found["d.py"].blocks[0].name == "f"
    assert found["e.py"].background
    exits = next(c for c in document.commands if c.name == "exit")
    assert [block.kind for block in exits.blocks] == ["conditional"]


def test_a_loop_over_one_value_has_that_value() -> None:
    assert evaluate(environment(parse("for s in 7; do :; done"))["s"]) == "7"


def test_assignments_append_index_export() -> None:
    document = parse("A=(1)\nA+=(2)\nA[1]=3\nB=1\nexport B\nC=2\n")
    _, appended, element, exported, plain = document.assignments
    assert appended.append
    assert element.index == Const(1, element.index.origin if element.index else None)
    assert exported.exported
    assert not plain.exported


PARTS: list[tuple[str, str, str | None]] = [  # word, prefix, text of the value
    ("--bs=16", "--bs=", "16"),
    ('--bs="16"', "--bs=", '"16"'),
    ("'--bs=16'", "--bs=", "16"),
    ("lr='1,2'", "lr=", "'1,2'"),
    ("--x=a=b", "--x=", "a=b"),
    ("--x=", "--x=", ""),
    ("--x", "--x", None),
    ("'a b'", "a b", None),
    ("😀=1", "😀=", "1"),
]


@pytest.mark.parametrize(("word", "prefix", "value"), PARTS)
def test_the_value_of_a_word_has_a_place_of_its_own(word: str, prefix: str, value: str | None) -> None:
    document = parse(f"python é.py {word} x\n")
    head, expr = document.commands[0].words[2].partition()
    assert head == prefix
    if value is None:
        assert expr is None
        return
    assert expr is not None
    assert written(document, expr.origin) == value
    assert expr.origin is not None
    assert expr.origin.editable
    edit = Edit("job.sh", expr.origin.span, render(written(document, expr.origin), "z1", "bash"))
    edited = splice(document.source.text, [edit])
    assert parse(edited).commands[0].words[2].literal == f"{prefix}z1"


def test_an_escaped_value_is_not_editable_in_part() -> None:
    document = parse("python a.py x=a\\ b\n")
    _, expr = document.commands[0].words[2].partition()
    assert isinstance(expr, Const)
    assert expr.value == "a b"
    assert expr.origin is not None
    assert not expr.origin.editable


def test_expansions_are_references_with_literal_parts_in_place() -> None:
    document = parse('python a.py --o="$A/c" --n=$B --all="${C[@]}" $D\n')
    _, _, out, number, every, split = document.commands[0].words
    head, expr = out.partition()
    assert head == "--o="
    assert isinstance(expr, Op)
    assert [written(document, operand.origin) for operand in expr.operands] == ["$A", "/c"]
    assert isinstance(number.partition()[1], Ref)
    assert every.splits
    assert split.splits
    assert not out.splits


def test_strings_that_a_shell_would_run_are_read_with_places_in_the_file() -> None:
    document = parse('N=4\nCMD="python t.py --bs=$N \'x y\' --lr 0.1"\nsrun bash -c "$CMD"\n')
    inner = reparse(document.source, document.assignments[1].expr)
    (command,) = inner.commands
    assert words(command) == ["python", "t.py", None, "x y", "--lr", "0.1"]
    value = command.words[2].partition()[1]
    assert isinstance(value, Ref)
    assert value.name == "N"
    assert written(document, command.words[5].origin) == "0.1"
    assert command.words[5].origin.editable


def test_heredocs_are_kept_apart() -> None:
    document = parse("cat <<EOF > job.sh\n#SBATCH -N 2\npython $A\nEOF\nbash <<'E'\npython b.py 1\nE\npython c.py\n")
    assert [c.words[0].literal for c in document.commands] == ["cat", "bash", "python"]
    bodies = [document.source.text[span.start : span.end] for span in document.heredocs]
    assert bodies == ["#SBATCH -N 2\npython $A\n", "python b.py 1\n"]
    assert document.directives == ()


def test_windows_line_endings_do_not_reach_the_words() -> None:
    document = parse("#!/bin/bash\r\nA=1\r\npython a.py \\\r\n  --x 1\r\n")
    assert evaluate(document.assignments[0].expr) == "1"
    assert [word.literal for word in document.commands[0].words] == ["python", "a.py", "--x", "1"]


def test_windows_line_endings_move_no_word() -> None:
    text = "#!/bin/bash\r\npython a.py \\\r\n  --x 16\r\ncat > b <<EOF\r\nx: 1\r\nEOF\r\npython c.py\r\n"
    document = parse(text)
    assert [text[one.span.start : one.span.end] for one in document.commands[0].words] == [
        "python",
        "a.py",
        "--x",
        "16",
    ]
    assert [command.words[0].literal for command in document.commands] == ["python", "cat", "python"]


@pytest.mark.parametrize("text", ["if then\n", "a (\n", "'", '"$(', "}", "case", "<<E\n", "((", "${", "a" * 100_000])
def test_broken_scripts_are_still_read(text: str) -> None:
    document = parse("A=1\n" + text)
    assert document.assignments[0].name == "A"


@pytest.mark.parametrize(
    "opening", ["(", "$(", "${", "a && ", '"$(', "{ ", "if a; then ", "$((", "case x in x) ", "x | "]
)
def test_deep_nesting_ends_soon(opening: str) -> None:
    started = time.process_time()
    parse(opening * 5_000)
    assert time.process_time() - started < 5


def test_a_script_that_sbatch_would_refuse_for_its_size_is_refused() -> None:
    with pytest.raises(DocumentError, match="4 MiB"):
        parse("#" * (4 * 2**20 + 1))


@given(st.text(st.sampled_from("aA1 ='\"\\$(){}[]#;&|<>\n\té😀:-+@*"), max_size=60))
@settings(max_examples=examples(300))
def test_any_text_is_read_and_every_place_lies_in_it(text: str) -> None:
    document = parse(text)
    for command in document.commands:
        for word in command.words:
            assert 0 <= word.span.start <= word.span.end <= len(text)
            word.partition()
    for assignment in document.assignments:
        assert 0 <= assignment.span.start <= assignment.span.end <= len(text)


def test_what_the_grammar_takes_too_long_for_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DocumentError, match="pipes"):
        parse("a|" * 20_000)
    monkeypatch.setattr("preflight.documents.bash.PARSING_SECONDS", Budget(0, "seconds of CPU time"))
    with pytest.raises(DocumentError, match="over the budget of 0 seconds of CPU time"):
        parse("a=(" * 10_000)
    monkeypatch.undo()
    assert parse("A=1\n").assignments[0].name == "A"
