"""Programs whose branches and calls multiply: the work grows with their length, not with the number of ways through.

Work is counted as calls of Python functions, so that a busy machine changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from preflight.engine.ask import check
from preflight.vocabulary import budgets
from preflight.vocabulary.budgets import PROGRAM_DEPTH, PROGRAM_STEPS, Budget
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.outcome import Outcome

START = """import argparse
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
{flags}
a = p.parse_args()

class A:
    size = 1
    def run(self, other): return other

class B:
    size = 2
    def run(self, other): return self

x0, x1, n0, n1 = A(), B(), 4, 8
"""
END = """
model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments(per_device_train_batch_size={batch}, output_dir="x")
loader = DataLoader([1, 2], batch_size={batch})
trainer = Trainer(model=model, args=arguments, train_dataset=x0)
trainer.train()
"""


def program(body: str, flags: int, batch: str) -> str:
    added = "\n".join(f'p.add_argument("--c{at}", action="store_true")' for at in range(flags))
    return START.format(flags=added) + body + END.format(batch=batch)


def nested_branches(length: int) -> str:
    """An `if` in each side of an `if`, on the way that is longest."""
    lines = ["x, n = x0, n0"]
    for at in range(length):
        pad = "    " * at
        lines += [f"{pad}if a.c{at}:", f"{pad}    x, n = A(), n + {at}", f"{pad}    x.size = n", f"{pad}else:"]
    lines += ["    " * length + "x, n = x1, n1", "x.size = n", "x.run(x).run(x)"]
    return program("\n".join(lines), length, "n")


def chained_choices(length: int) -> str:
    """Values that are chosen from the two before: as many ways as the numbers of Fibonacci."""
    lines = []
    for at in range(2, length + 2):
        for name in ("x", "n"):
            lines.append(f"{name}{at} = {name}{at - 1} if a.c{at - 2} else {name}{at - 2}")
        lines.append(f"x{at}.size = n{at}")
    lines += [f"x{length + 1}.run(x{length})", f"if x{length + 1}: n0 = x{length + 1}.size"]
    return program("\n".join(lines), length, f"n{length + 1}")


def calls_of_alternatives(length: int) -> str:
    """Functions that are one of the two before, called with what they return."""
    lines = ["def f0(y): return y", "def f1(y): return x1"]
    for at in range(2, length + 2):
        lines.append(f"f{at} = f{at - 1} if a.c{at - 2} else f{at - 2}")
        lines.append(f"x0 = f{at}(f{at}(x0))")
        lines.append("x0.size = n0 = x0.size")
    return program("\n".join(lines), length, "n0")


def functions_that_call_each_other(length: int) -> str:
    """Each calls the next one twice."""
    lines = []
    for at in range(length):
        following = f"f{(at + 1) % length}"
        lines.append(f"def f{at}(y, c):")
        lines.append(f"    return {following}(y, {following}(y, c + {at})) if a.c0 else {following}(c, y)")
    lines.append("n0 = f0(n0, n1)")
    return program("\n".join(lines), 1, "n0")


def work_of(root: Path, text: str) -> tuple[int, Outcome]:
    """The calls of Python functions that the check of a program makes, and what it found."""
    root.mkdir()
    (root / "train.py").write_text(text)
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        outcome = check([root], cwd=root)
    finally:
        sys.setprofile(before)
    return count, outcome


MOST = 3_000_000
"""Of the checks of these programs; what is loaded once takes 300,000."""


@pytest.mark.parametrize(
    ("written", "length"),
    [
        (nested_branches, 8),
        (chained_choices, 15),
        (calls_of_alternatives, 8),
    ],
)
def test_twice_the_length_is_no_square_of_the_work(tmp_path: Path, written: Callable[[int], str], length: int) -> None:
    work_of(tmp_path / "first", written(2))  # what is loaded once
    short, _ = work_of(tmp_path / "short", written(length))
    long, outcome = work_of(tmp_path / "long", written(2 * length))
    assert long < 6 * short
    assert long < MOST
    assert list(outcome.studies())
    assert not [one for _, one in outcome.findings() if one.rule == "internal-error"]


@pytest.mark.parametrize(("length", "budget"), [(200, PROGRAM_DEPTH), (15, PROGRAM_STEPS)])
def test_functions_that_call_each_other_end_alike_on_every_machine(tmp_path: Path, length: int, budget: Budget) -> None:
    (tmp_path / "train.py").write_text(functions_that_call_each_other(length))
    outcome = check([tmp_path], cwd=tmp_path)
    said = f"it is {budget.over}: the program is not judged"
    assert [(one.severity, one.message) for _, one in outcome.findings()] == [(Severity.info, said)]
    assert [result.unjudged is not None for _, result in outcome.studies()] == [True]


def test_files_that_take_too_long_have_one_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left for a file depends on the machine and on the files before it: the words name what is the same."""
    monkeypatch.setattr(budgets, "READING_SECONDS", Budget(1, budgets.READING_SECONDS.of))
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text(functions_that_call_each_other(15))
    found = [one for _, one in check([tmp_path], cwd=tmp_path).findings()]
    assert [one.message for one in found] == [f"it is {budgets.READING_SECONDS.over}: the program is not judged"] * 2


def test_a_program_that_is_cut_off_by_steps_is_not_judged(tmp_path: Path) -> None:
    """What comes behind the end of the budget may set anything: defaults do not stand for it."""
    rounds = "for i in range(50):\n    print(i)\n" * 9000
    (tmp_path / "train.py").write_text(START.format(flags="") + rounds + END.format(batch=4))
    outcome = check([tmp_path], cwd=tmp_path)
    said = "it is over the budget of 150,000 steps of a program: the program is not judged"
    assert [one.severity for _, one in outcome.findings() if one.message == said] == [Severity.info]
    assert [result.unjudged is not None for _, result in outcome.studies()] == [True]
