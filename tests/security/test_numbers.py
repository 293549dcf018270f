"""Every number of a Job at values that nobody means: an answer or one line of error, in bounded time."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import pytest
from command_line import PROGRAM, SWEEP
from folders import Write
from pydantic import BaseModel
from thorough import sample

from preflight.cli import run
from preflight.commands.options import parse_bytes
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.job import MOST, Job
from preflight.vocabulary.spelling import Invalid, normal

CPU_SECONDS = 10
"""Of this process for one command: a hundred times what it takes. CPU time, so that a busy machine does not count."""
VALUES = ("0", "-1", "nan", str(10**30))


def in_turn(names: Sequence[str], values: Sequence[str], most: int = 12) -> list[object]:
    """At most `most` names with one of the values, another one each time; among the slow tests all with all of them."""
    fast = [pytest.param(name, (values[at % len(values)],), id=name) for at, name in enumerate(names)]
    slow = [pytest.param(name, values, id=f"{name}: all", marks=pytest.mark.slow) for name in names]
    return [*sample(fast, most), *slow]


def numeric(part: type[BaseModel] = Job, prefix: str = "") -> Iterator[str]:
    """The dotted names of all fields that hold a number."""
    for name, info in part.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from numeric(kind, f"{prefix}{name}.")
        elif _holds_number(kind):
            yield prefix + name


def _holds_number(kind: Any) -> bool:
    return kind in (int, float) or any(_holds_number(one) for one in get_args(kind) if not isinstance(one, str))


NUMBERS = tuple(numeric())


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    def late(*_: object) -> None:
        raise KeyboardInterrupt(f"more than {CPU_SECONDS} s of CPU")

    before = signal.signal(signal.SIGVTALRM, late)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def test_the_walk_finds_them() -> None:
    assert {"train.batch_size", "train.copies.ema", "data.sample_bytes", "parallel.nodes"} <= {*NUMBERS}
    assert len(NUMBERS) > 40


def settled(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    status = run(arguments)
    shown = capsys.readouterr()
    assert status in (0, 1, 2)
    assert "internal" not in shown.out + shown.err, shown.out + shown.err
    assert "Traceback" not in shown.out + shown.err
    assert shown.err.count("\n") == (status == 2), shown.err
    assert len(shown.err) < 400


JOB = {"train.batch_size": "2", "train.seq_len": "64"}
SHARDED = {
    "parallel.strategy": "fsdp", "parallel.gpus_per_node": "4", "parallel.ranks_per_node": "4",
    "train.peft.method": "lora",
}  # fmt: skip


def stated(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@pytest.mark.parametrize("name", sample(NUMBERS, 12))
def test_estimate(project: Write, capsys: pytest.CaptureFixture[str], name: str) -> None:
    project({})
    for value in VALUES:
        settled(["estimate", "gpt2", *stated({**JOB, name: value}), "--gpu", "RTX 4090"], capsys)
    settled(["estimate", "gpt2", *stated({**JOB, **SHARDED, name: VALUES[-1]})], capsys)


@pytest.mark.parametrize("name", sample(NUMBERS, 12))
def test_a_job_in_a_file(project: Write, capsys: pytest.CaptureFixture[str], name: str) -> None:
    head = '{"model.name": "gpt2", "train.batch_size": 1, "train.seq_len": 64, '
    values = ("0", "-1", str(10**30), "1e999", "NaN", "-0.5")
    project({f"{at}.json": f'{head}"{name}": {value}}}' for at, value in enumerate(values)})
    for at in range(6):
        settled(["estimate", f"{at}.json", "--output-format", "json"], capsys)


@pytest.mark.parametrize(("name", "values"), in_turn(NUMBERS, VALUES))
def test_check(project: Write, capsys: pytest.CaptureFixture[str], name: str, values: tuple[str, ...]) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    for value in values:
        settled(["check", "sweep.yaml", *stated({name: value}), "--gpu", "RTX 4090"], capsys)


@pytest.mark.parametrize("name", sample(NUMBERS, 12))
def test_check_with_settings(project: Write, capsys: pytest.CaptureFixture[str], name: str) -> None:
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    for value in (*VALUES, "inf"):
        (root / "preflight.toml").write_text(f"set.{name} = {value}\n")
        from preflight.engine import settings

        settings._in_folder.cache_clear()
        settled(["check", "sweep.yaml"], capsys)


DOMAINS = {
    "a choice": "parameters:\n  batch_size: {values: [%s]}\n",
    "a range": "parameters:\n  batch_size: {distribution: int_uniform, min: %s, max: %s}\n",
    "steps": "parameters:\n  batch_size: {distribution: q_uniform, min: 1, max: 8, q: %s}\n",
    "logarithms": "parameters:\n  batch_size: {distribution: log_uniform_values, min: %s, max: %s}\n",
    "a normal": "parameters:\n  batch_size: {distribution: normal, mu: %s, sigma: %s}\n",
    "a range of lengths": "parameters:\n  batch_size: {value: 4}\n  max_length: {min: 1, max: %s}\n",
    "runs": "run_cap: %s\nparameters:\n  batch_size: {value: 4}\n",
}


@pytest.mark.parametrize(("domain", "values"), in_turn([*DOMAINS], (*VALUES, ".nan", ".inf", "-.inf"), 3))
def test_domains_of_a_sweep(
    project: Write, capsys: pytest.CaptureFixture[str], domain: str, values: tuple[str, ...]
) -> None:
    root = project({"train.py": PROGRAM})
    for value in values:
        body = DOMAINS[domain].replace("%s", value)
        length = "" if "max_length" in body else "  max_length: {value: 64}\n"
        (root / "sweep.yaml").write_text(f"program: train.py\nmethod: grid\n{body}{length}")
        settled(["check", "sweep.yaml", "--gpu", "RTX 4090"], capsys)


SUGGESTED = ["suggest_int('b', {0}, {0})", "suggest_int('b', 1, 8, step={0})", "suggest_int('b', {0}, 8, log=True)",
             "suggest_float('b', {0}, {0}, step={0})", "suggest_categorical('b', [{0}])"]  # fmt: skip


@pytest.mark.parametrize("call", sample(SUGGESTED, 2))
def test_domains_of_a_study(project: Write, capsys: pytest.CaptureFixture[str], call: str) -> None:
    root = project({})
    for value in ("0", "-1", str(10**30), "float('nan')", "float('inf')", "1e999"):
        body = PROGRAM.replace("args = parser.parse_args()", "")
        body = body.replace("args.batch_size", f"trial.{call.format(value)}")
        lines = "".join(f"    {line}\n" for line in body.splitlines() if not line.startswith(("import", "from")))
        head = "".join(f"{line}\n" for line in body.splitlines() if line.startswith(("import", "from")))
        (root / "study.py").write_text(
            f"import optuna\n{head}\ndef objective(trial):\n{lines}    return 0\n\n"
            "optuna.create_study().optimize(objective, n_trials=3)\n"
        )
        settled(["check", "study.py"], capsys)


DIRECTIVES = ("-N {}", "-N {}-{}", "-n {}", "-c {}", "--mem={}", "--mem={}T", "--mem-per-gpu={}", "--gres=gpu:{}",
              "--gpus={}", "--gpus-per-node={}", "--ntasks-per-node={}", "--cpus-per-gpu={}", "--array=0-{}",
              "--array=0-10:{}", "--array=0-5%{}", "-t {}")  # fmt: skip


@pytest.mark.parametrize(("directive", "values"), in_turn(DIRECTIVES, (*VALUES, "inf", "1e999")))
def test_directives(
    project: Write, capsys: pytest.CaptureFixture[str], directive: str, values: tuple[str, ...]
) -> None:
    root = project({"train.py": PROGRAM})
    for value in values:
        script = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH {directive.replace('{}', value)}\nsrun python train.py\n"
        (root / "job.sh").write_text(script)
        settled(["check", "job.sh", "--gpu", "A100 80GB", "--set", "train.seq_len=8"], capsys)


@pytest.mark.parametrize("text", ["0x", "-1", "nan", "inf", "1e5", "1.2.3", ".", "", "9" * 400 + "G", "9" * 5000])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text)


@pytest.mark.parametrize("case", ["inf", "-inf", "nan", "large", "negative", "power", "digits"])
def test_what_is_no_number_of_a_job(case: str) -> None:
    large = {"large": MOST * 2, "negative": -MOST * 2, "power": 10**5000, "digits": "9" * 5000}
    value = large[case] if case in large else float(case)
    with pytest.raises(Invalid) as refused:
        normal("train.batch_size", value)
    assert len(str(refused.value)) < 200


def test_what_stands_for_no_limit_is_a_number() -> None:
    assert normal("train.seq_len", int(1e30)) == int(1e30)
