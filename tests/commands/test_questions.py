"""What a report asks, and what becomes of an answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO

import pytest
from command_line import PROGRAM, SWEEP, Command, Run, preflight
from folders import Write

from preflight.engine.questions import MOST
from preflight.engine.settings import _in_folder
from preflight.memory.device.law import catalogue
from preflight.vocabulary.outcome import Question

OPEN = """\
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained({model})
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(data, batch_size={batch}):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""


def program(model: str = '"gpt2"', batch: str = "4") -> str:
    return OPEN.format(model=model, batch=batch)


@pytest.fixture
def real(project: Write, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line with real laws."""

    def run(*words: str) -> Run:
        _in_folder.cache_clear()  # a process reads settings once
        return preflight(capsys, "check", "--no-cache", *words)

    return run


def lines(out: str) -> list[str]:
    """The lines of settings that a report asks for."""
    asked = out.partition("What no file says")[2].splitlines()
    return [line.strip().partition("  #")[0] for line in asked if line.startswith("       ") and " = " in line]


ONE_LINE = [(("-q",), True), (("-f", "json"), True), (("-f", "concise"), True), ((), False)]


@pytest.mark.parametrize(("more", "gone"), ONE_LINE)
def test_questions_are_for_people_alone(project: Write, real: Command, more: tuple[str, ...], gone: bool) -> None:
    project({"train.py": program()})
    assert ("What no file says" not in real(*more).out) == gone


def test_nothing_is_asked_where_everything_is_known(project: Write, real: Command) -> None:
    project({"train.py": program(), "preflight.toml": 'gpu = "H100"\nset.train.seq_len = 128\n'})
    assert "What no file says" not in real().out


@pytest.mark.parametrize(
    ("text", "line", "answer", "unknown"),
    [
        (program(), "set.train.seq_len = NUMBER", "128", "the length is unknown"),
        (program(), 'gpu = "..."', '"H100"', 'gpu = "..."'),
        (program(batch="int(input())"), "set.train.batch_size = NUMBER", "8", "set.train.batch_size"),
        (program(model="input()"), 'set.model.name = "..."', '"gpt2"', "input() is not evaluated statically"),
        (program(model='"gpt2-larg"'), 'set.model.name = "..."', '"gpt2-large"', "no model is known as gpt2-larg"),
    ],
)
def test_the_line_answers_the_question(
    project: Write, real: Command, text: str, line: str, answer: str, unknown: str
) -> None:
    root = project({"train.py": text})
    before = real().out
    assert line in lines(before)
    assert unknown in " ".join(before.split())
    (root / "preflight.toml").write_text(line.partition("=")[0] + "= " + answer + "\n")
    after = real().out
    assert line not in lines(after)
    assert unknown not in " ".join(after.split())


def test_all_lines_stand_together_in_one_file(project: Write, real: Command) -> None:
    root = project({"train.py": program(model="input()", batch="int(input())")})
    found = lines(real().out)
    assert 1 < len(found) <= MOST
    values = {"gpu": '"H100"', "set.model.name": '"gpt2"'}
    texts = [f"{key.strip()} = {values.get(key.strip(), '8')}" for key, _, _ in (line.partition("=") for line in found)]
    (root / "preflight.toml").write_text("\n".join(texts) + "\n")
    run = real()
    assert "fits" in run.out
    assert "What no file says" not in run.out


def test_the_question_that_more_studies_need_comes_first(project: Write, real: Command) -> None:
    open_batch = program(batch="int(input())")
    large = program(batch="64")
    project({"a.py": large, "b.py": large, "c.py": open_batch, "preflight.toml": 'gpu = "H100"\n'})
    out = real(".").out
    assert lines(out) == ["set.train.seq_len = NUMBER"]  # a batch size would replace those of the other two
    assert "[3 of 3 studies]" in out


IMAGES = """\
import torch, elsewhere
model = elsewhere.Network().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for images, labels in torch.utils.data.DataLoader(elsewhere.images, batch_size=4):
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
"""


def test_a_model_that_nobody_knows_is_not_asked_for_its_tokens(project: Write, real: Command) -> None:
    project({"train.py": IMAGES})
    assert "set.train.seq_len" not in " ".join(lines(real().out))


def test_a_model_that_nobody_knows_is_not_asked_for_its_sequences(project: Write, real: Command) -> None:
    text = program("name").replace("model(**batch).loss", "sum(model(part).loss for part in pieces(batch))")
    project({"train.py": text.replace("transformers", "somewhere")})
    out = real("train.py", "--gpu", "T4").out
    assert lines(out) == ['set.model.name = "..."']
    assert "sequences_per_sample" not in out


def test_one_model_is_not_asked_for_several_programs(project: Write, real: Command) -> None:
    project({"a.py": IMAGES, "b.py": IMAGES.replace("Network", "Other")})
    assert "set.model.name" not in " ".join(lines(real(".").out))


def test_what_an_answer_would_replace_is_said(project: Write, real: Command) -> None:
    open_batch = program(batch="int(input())")
    project({"a.py": program(), "b.py": open_batch, "c.py": open_batch, "preflight.toml": 'gpu = "H100"\n'})
    out = " ".join(real(".").out.replace("# ", "").split())
    assert "replaces the value of the other study, too; for one file alone: --set train.batch_size=VALUE" in out


# --- --ask ------------------------------------------------------------------------------------------------------------


def test_without_a_terminal_it_is_one_clear_line(project: Write, real: Command) -> None:
    root = project({"train.py": program()})
    run = real("--ask")
    assert (run.status, run.out, run.err.count("\n")) == (2, "", 1)
    assert "there is no terminal to ask at" in run.err
    assert [path.name for path in root.iterdir()] == ["train.py"]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Standard input and output as a terminal at which a text is typed."""
    from preflight.reports import streams

    def types(text: str) -> None:
        monkeypatch.setattr(streams, "terminal", lambda stream: True)
        monkeypatch.setattr(sys, "stdin", StringIO(text))

    return types


def test_answers_are_written_and_wrong_ones_asked_again(
    project: Write, real: Command, typed: Callable[[str], None]
) -> None:
    root = project({"train.py": program(), "preflight.toml": "# ours\n"})
    typed("H10\nh100\n-3\n128\n")
    out = real("--ask").out
    assert 'no GPU is known as "H10"; did you mean' in out
    assert "greater than or equal to 1" in out
    assert (root / "preflight.toml").read_text() == '# ours\ngpu = "H100 80GB"\nset.train.seq_len = 128\n'
    assert "fits" in real().out


@pytest.mark.parametrize("text", ["", "\n\n\n\n\n"])
def test_no_answer_writes_nothing(project: Write, real: Command, typed: Callable[[str], None], text: str) -> None:
    root = project({"train.py": program()})
    typed(text)
    assert "Nothing was written." in real("--ask").out
    assert [path.name for path in root.iterdir()] == ["train.py"]


def test_a_mistyped_model_is_asked_for_again(project: Write, real: Command, typed: Callable[[str], None]) -> None:
    root = project({"train.py": program(model="input()"), "preflight.toml": 'gpu = "H100"\n'})
    typed("gpt2-larg\ngpt2\n128\n")
    out = real("--ask").out
    assert "no model is known as gpt2-larg; did you mean" in out
    assert 'set.model.name = "gpt2"\n' in (root / "preflight.toml").read_text()


def test_a_question_has_a_line_for_each_kind() -> None:
    kinds = [Question("machine.gpu", "", "text", 1), Question("train.tf32", "", "truth", 1)]
    assert [one.line for one in kinds] == ['gpu = "..."', "set.train.tf32 = true"]


def test_the_other_commands_line_up(project: Write, check: Command) -> None:
    """-v and -q ask for opposites."""
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = check("-v", "-q")
    assert (run.status, run.out) == (2, "")
    assert "-v and -q" in run.err


# --- names that are not known -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words", "said"),
    [
        ("", ("--set", "model.name=gpt2-larg"), "--set model.name: no model is known as gpt2-larg; did you mean"),
        ("", ("--set", "machine.gpu=H10"), '--set machine.gpu: no GPU is known as "H10"; did you mean'),
        ("", ("--gpu", "H10"), '--gpu: no GPU is known as "H10"; did you mean'),
        ('set.model.name = "gpt2-larg"', (), "tool.preflight.set: no model is known as gpt2-larg; did you mean"),
        ('set.machine.gpu = "H10"', (), 'tool.preflight.set.machine.gpu: no GPU is known as "H10"; did you mean'),
        ('gpu = "H10"', (), 'tool.preflight.gpu: no GPU is known as "H10"; did you mean'),
    ],
)
def test_a_mistyped_name_of_the_user_is_an_error(
    project: Write, real: Command, settings: str, words: tuple[str, ...], said: str
) -> None:
    project({"train.py": program(), **({"preflight.toml": settings} if settings else {})})
    run = real(*words)
    assert (run.status, run.out) == (2, "")
    assert f"preflight: error: {said}" in run.err


@pytest.mark.parametrize(
    "words", [("model.name=own", "model.parameters=7000000"), ("model.name=own", "model.law=own.json")]
)
def test_a_name_of_ones_own_is_fine_beside_dimensions(project: Write, real: Command, words: tuple[str, ...]) -> None:
    project({"train.py": program()})
    assert "no model is known" not in real(*(part for word in words for part in ("--set", word))).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpt2-larg",), "there is no file gpt2-larg, and no model is known as gpt2-larg; did you mean"),
        (("openai/gpt2-larg",), "no model is known as openai/gpt2-larg; did you mean"),
        (("gpt2", "--set", "model.name=a/gpt2-larg"), "--set model.name: no model is known as a/gpt2-larg; did you"),
        (("job.json",), "job.json: no model is known as gpt2-larg; did you mean"),
        (("gpt2", "--set", "machine.gpu=H10"), 'machine.gpu: no GPU is known as "H10"; did you mean'),
        (("train.py", "--set", "model.name=gpt2-larg"), "--set model.name: no model is known as gpt2-larg; did you"),
    ],
)
def test_estimate_refuses_it_as_well(
    project: Write, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    project({"job.json": '{"model": {"name": "gpt2-larg"}, "train": {"batch_size": 2}}', "train.py": program()})
    run = preflight(capsys, "estimate", *words)
    assert (run.status, run.out) == (2, "")
    assert said in run.err


def test_a_mistyped_model_in_a_file_is_unknown_aloud(project: Write, real: Command) -> None:
    project({"train.py": program(model='"gpt2-larg"')})
    run = real()
    assert run.status == 0
    said = (
        "unknown: the GPU memory of train.py: no model is known as gpt2-larg; did you mean openai-community/gpt2-large"
    )
    assert said in " ".join(run.out.split())


# --- the rest of the first screen -------------------------------------------------------------------------------------


def test_explain_hides_defaults_and_shows_causes(project: Write, real: Command) -> None:
    project({"train.py": program(batch="int(input())")})
    short, whole = real("--explain").out, real("-v", "--explain").out
    rows = [[line.split()[0] for line in text.splitlines() if line.startswith("  train.")] for text in (short, whole)]
    assert set(rows[0]) < set(rows[1])
    assert {"train.batch_size", "train.seq_len"} <= set(rows[0])
    assert "train.copies.ema" not in rows[0]
    assert "-v --explain shows more" in short
    for line in short.splitlines():
        if " unknown  " in line:
            assert line.split("unknown")[-1].strip()


def test_reasons_are_said_once_with_their_number(project: Write, real: Command) -> None:
    project({f"{name}.py": program(model="input()") for name in "abc"})
    out = " ".join(real(".").out.split())
    assert out.count("input() is not evaluated statically") == 1
    assert "unknown: the GPU memory of a.py and 2 more: input() is not evaluated statically" in out
    assert real(".", "-v").out.count("input() is not evaluated statically") == 3


def test_a_diff_says_what_it_leaves_out(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM, "preflight.toml": '[rules.too-large]\nfix = "unsafe"\n'})
    run = check("sweep.yaml", "--gpu", "RTX 4090", "--diff")
    assert (run.status, run.out) == (0, "")
    assert run.err == "preflight: 1 fix not shown, because it changes the run: --diff --unsafe-fixes\n"
    more = check("sweep.yaml", "--gpu", "RTX 4090", "--diff", "--unsafe-fixes")
    assert (more.status, more.err) == (1, "")
    said = check("sweep.yaml", "--gpu", "RTX 4090").out
    assert "(1 fix with --unsafe-fixes, which changes the run; add --diff to see it first)" in said


@pytest.mark.parametrize(("name", "near"), [
    ("swiss-ai/Apertus-8B-Instruct-2509", ()), ("OpenRLHF/Llama-3-8b-sft-mixture", ()),
    ("gpt2-larg", ("openai-community/gpt2-large",)), ("openai/gpt2-larg", ("openai-community/gpt2-large",)),
])  # fmt: skip
def test_only_a_name_that_looks_like_it_is_suggested(name: str, near: tuple[str, ...]) -> None:
    assert catalogue.nearest(name)[: max(len(near), 1)] == near
