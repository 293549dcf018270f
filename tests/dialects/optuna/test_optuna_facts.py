"""Optuna's trials: how many share a GPU, what one does that runs out of memory, programs started for each."""

from __future__ import annotations

import pytest
from optuna_programs import Read, facts, field

from preflight.vocabulary.reading import Parameter
from preflight.vocabulary.values import Const, evaluate

# --- facts ------------------------------------------------------------------------------------------------------------


def test_jobs_share_the_gpu(read: Read) -> None:
    text = (
        "def objective(trial):\n    train('m', trial.suggest_int('bs', 1, 8))\n"
        "optuna.create_study().optimize(objective, n_jobs=4)\n"
    )
    assert field(read(text), "parallel.trials_per_gpu") == field(read(text), "parallel.trials_per_gpu")
    assert evaluate(field(read(text), "parallel.trials_per_gpu")) == 4  # type: ignore[arg-type]


def test_one_job_says_nothing(read: Read) -> None:
    reading = read(
        "def objective(trial):\n    train('m', trial.suggest_int('bs', 1, 8))\n"
        "optuna.create_study().optimize(objective)\n"
    )
    assert not [binding for binding in reading.bindings if binding.field == "parallel.trials_per_gpu"]
    assert facts(reading)["search"] == "optuna"


HANDLED = {
    "pruned": "try:\n    train('m', bs)\nexcept torch.cuda.OutOfMemoryError:\n    raise optuna.TrialPruned()",
    "new name": "try:\n    train('m', bs)\nexcept torch.OutOfMemoryError:\n    raise optuna.exceptions.TrialPruned()",
    "returned": "try:\n    return train('m', bs)\nexcept RuntimeError as e:\n    return float('inf')",
    "tested": (
        "try:\n    train('m', bs)\nexcept RuntimeError as e:\n    if 'out of memory' in str(e):\n"
        "        raise optuna.TrialPruned()\n    raise"
    ),
    "within": "guarded(bs)",
    "everything": "try:\n    train('m', bs)\nexcept Exception:\n    return 0.0",
}
NOT_HANDLED = {
    "nothing": "train('m', bs)",
    "another exception": "try:\n    train('m', bs)\nexcept ValueError:\n    raise optuna.TrialPruned()",
    "raised again": "try:\n    train('m', bs)\nexcept RuntimeError as e:\n    print(e)\n    raise",
    "cleaned up": "try:\n    train('m', bs)\nfinally:\n    torch.cuda.empty_cache()",
    "elsewhere": "try:\n    print('x')\nexcept RuntimeError:\n    return 0.0\ntrain('m', bs)",
    "a more specific one first": (
        "try:\n    train('m', bs)\nexcept torch.OutOfMemoryError:\n    raise\nexcept Exception:\n    return 0.0"
    ),
}


def _objective(body: str) -> str:
    lines = body.replace("\n", "\n    ")
    guarded = (
        "def guarded(bs):\n    try:\n        train('m', bs)\n    except torch.OutOfMemoryError:\n        return 0.0\n"
    )
    return (
        f"{guarded}def objective(trial):\n    bs = trial.suggest_int('bs', 1, 8)\n    {lines}\n"
        "optuna.create_study().optimize(objective)\n"
    )


@pytest.mark.parametrize("name", NOT_HANDLED)
def test_out_of_memory_ends_the_search(name: str, read: Read) -> None:
    assert facts(read(_objective(NOT_HANDLED[name])))["handles_oom"] is False


@pytest.mark.parametrize("name", HANDLED)
def test_out_of_memory_ends_the_trial(name: str, read: Read) -> None:
    assert facts(read(_objective(HANDLED[name])))["handles_oom"] is True


def test_exceptions_that_the_study_catches(read: Read) -> None:
    text = _objective("train('m', bs)").replace(
        "optimize(objective)", "optimize(objective, catch=(torch.OutOfMemoryError,))"
    )
    assert facts(read(text))["handles_oom"] is True


# --- studies that start a program for each trial ----------------------------------------------------------------------

STARTS = {
    "list": 'subprocess.run([sys.executable, "train.py", "--bs", str(bs), "--name=m"])',
    "glued": 'subprocess.run(["python", "train.py", f"--bs={bs}", "--name=m"])',
    "text": 'os.system(f"python train.py --bs {bs} --name=m")',
    "launcher": 'subprocess.run(["torchrun", "--nproc_per_node=2", "train.py", "--bs", f"{bs}", "--name=m"])',
}


@pytest.mark.parametrize("name", STARTS)
def test_a_program_started_for_each_trial(name: str, read: Read) -> None:
    reading = read(
        f"""
        import optuna, os, subprocess, sys
        def objective(trial):
            bs = trial.suggest_int("bs", 1, 8)
            {STARTS[name]}
            return 0.0
        optuna.create_study().optimize(objective, n_trials=5)
        """,
        {"train.py": "import argparse\n"},
        prefix="",
    )
    (link,) = reading.links
    assert (link.kind, link.target) == ("program", "train.py")
    from preflight.vocabulary.argv import bind_words

    given = bind_words(
        [Parameter("bs", Const(1), ("--bs",), type="int"), Parameter("name", Const(""), ("--name",))], link.words
    )
    assert evaluate(given["bs"], {"bs": Const(6)}) == 6
    assert evaluate(given["name"]) == "m"
    assert link.launch.launcher == ("torchrun" if name == "launcher" else "python")
    assert not reading.trains
    assert [axis.name for axis in reading.axes] == ["bs"]
    assert facts(reading)["handles_oom"] is True


PRUNING = """
def objective(trial):
    batch = trial.suggest_categorical("batch", [8, 16])
    length = trial.suggest_int("length", 128, 384, step=128)
    if 110e6 * batch * length * 10 / 1e9 > 22:
        raise optuna.TrialPruned()
    train("m", batch, length)
optuna.create_study().optimize(objective)
"""


def test_a_formula_that_prunes_every_trial(read: Read) -> None:
    [problem] = read(PRUNING).problems
    assert problem.message.endswith("its formula gives 1,126.4 for the nearest, and the limit is 22")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("> 22", "> 2000"),
        ("> 22", "> trial.number"),
        ('int("length", 128, 384, step=128)', 'float("length", 128, 384)'),
        ("110e6 *", "random() *"),
        ("    if 110e6", "    for _ in seen:\n      if 110e6"),
        ("    if 110e6", "    try:\n        train('m', batch)\n    except RuntimeError:\n     if 110e6"),
    ],
)
def test_a_formula_that_may_let_a_trial_pass(read: Read, old: str, new: str) -> None:
    text = PRUNING.replace(old, new)
    if "      if" in text or "     if" in text:
        text = text.replace("        raise", "          raise")
    assert not [one for one in read(text).problems if "pruned" in one.message]
