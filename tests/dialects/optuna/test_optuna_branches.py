"""Optuna's branches as boxes of a conditional space."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from optuna_programs import TRAIN, Read, field, plain

from preflight.vocabulary.values import Choices, Range, Ref

# --- branches ---------------------------------------------------------------------------------------------------------

HEAVY = """
MODELS = ["bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large"]
def objective(trial):
    name = trial.suggest_categorical("model", MODELS)
    heavy = any(k in name for k in ["-large", "xlm"])
    if heavy:
        bs = trial.suggest_categorical("bs", [8, 16])
    else:
        bs = trial.suggest_categorical("bs", [8, 16, 32, 64])
    train(name, bs)
optuna.create_study().optimize(objective)
"""


def test_a_box_for_each_group_of_choices_that_decide_alike(read: Read) -> None:
    reading = read(HEAVY)
    assert not reading.axes
    boxes = [{axis.name: axis.domain.values for axis in branch.axes} for branch in reading.branches]  # type: ignore[union-attr]
    assert boxes == [
        {"model": ("bert-base-uncased", "roberta-base"), "bs": (8, 16, 32, 64)},
        {"model": ("bert-large-uncased", "roberta-large"), "bs": (8, 16)},
    ]
    for branch in reading.branches:
        (expr,) = [binding.expr for binding in branch.bindings if binding.field == "model.name"]
        assert expr == Ref("model")


def test_the_choices_of_a_merged_box_keep_their_places(read: Read, tmp_path: Path) -> None:
    reading = read(HEAVY)
    text = (tmp_path / "tune.py").read_text()
    domain = reading.branches[1].axes[0].domain
    assert isinstance(domain, Choices)
    assert [text[o.span.start : o.span.end] for o in domain.origins if o] == ['"bert-large-uncased"', '"roberta-large"']


def test_a_choice_of_its_own_is_fixed(read: Read) -> None:
    reading = read(
        """
        def objective(trial):
            kind = trial.suggest_categorical("kind", ["small", "big"])
            length = trial.suggest_int("length", 64, 512) if kind == "small" else 128
            name = "bert-large-uncased" if kind == "big" else "bert-base-uncased"
            train(name, trial.suggest_int("bs", 1, 64), length)
        optuna.create_study().optimize(objective)
        """
    )
    found = [(dict(branch.fixed), [axis.name for axis in branch.axes]) for branch in reading.branches]
    assert found == [({"kind": "small"}, ["length", "bs"]), ({"kind": "big"}, ["bs"])]


def test_axes_that_exist_in_one_branch_only(read: Read) -> None:
    reading = read(
        """
        def objective(trial):
            if trial.suggest_categorical("long", [True, False]):
                bs = trial.suggest_int("bs_long", 1, 4)
            else:
                bs = trial.suggest_int("bs_short", 1, 64)
            train("bert-base-uncased", bs)
        optuna.create_study().optimize(objective)
        """
    )
    found = [
        (dict(b.fixed), [a.name for a in b.axes], [x.expr for x in b.bindings if x.field == "train.batch_size"][-1])
        for b in reading.branches
    ]
    assert found == [({"long": True}, ["bs_long"], Ref("bs_long")), ({"long": False}, ["bs_short"], Ref("bs_short"))]


def test_a_choice_that_changes_nothing_is_an_axis_like_others(read: Read) -> None:
    reading = read(
        """
        def objective(trial):
            schedule = trial.suggest_categorical("schedule", ["linear", "cosine"])
            if schedule == "linear":
                print("linear")
            train("bert-base-uncased", trial.suggest_int("bs", 1, 4))
        optuna.create_study().optimize(objective)
        """
    )
    assert not reading.branches
    assert [axis.name for axis in reading.axes] == ["schedule", "bs"]


def test_the_command_line_decides_before_choices_do(read: Read) -> None:
    text = """
        import argparse
        p = argparse.ArgumentParser()
        p.add_argument("--long", action="store_true")
        p.add_argument("--jobs", type=int, default=1)
        args = p.parse_args()
        def objective(trial):
            bs = trial.suggest_int("bs", 1, 4) if args.long else trial.suggest_int("bs", 1, 64)
            train("bert-base-uncased", bs)
        optuna.create_study().optimize(objective, n_jobs=args.jobs)
        """
    assert plain(read(text).axes[0].domain) == Range(1, 64, 1)
    reading = read(text, words="--long --jobs=3")
    assert plain(reading.axes[0].domain) == Range(1, 4, 1)
    assert field(reading, "parallel.trials_per_gpu") == Ref("jobs")
    assert [parameter.name for parameter in reading.parameters] == ["long", "jobs"]


def test_an_objective_in_another_file(read: Read) -> None:
    reading = read(
        """
        import optuna
        from work import objective
        optuna.create_study().optimize(objective, n_trials=5)
        """,
        {"work.py": TRAIN + "def objective(trial):\n    train('m', trial.suggest_int('bs', 1, 8))\n"},
        prefix="",
    )
    assert [axis.name for axis in reading.axes] == ["bs"]
    assert reading.reads == ("work.py",)


DECIDED = {
    "bound in a table": (
        'LIMIT = {"a": 64, "b": 16}\n'
            'bs = trial.suggest_int("bs", 8, LIMIT[name], step=8)', [Range(8, 64, 8), Range(8, 16, 8)],
    ),
    "choices in a table": (
        'SIZES = {"a": [8, 64], "b": [8]}\n'
            'bs = trial.suggest_categorical("bs", SIZES[name])', [Choices((8, 64)), Choices((8,))],
    ),
    "set": ('bs = trial.suggest_int("bs", 1, 8 if name in {"b", "c"} else 64)', [Range(1, 64, 1), Range(1, 8, 1)]),
    "filter": (
        'bs = trial.suggest_categorical("bs", [s for s in (8, 64) if s < 10 or name == "a"])',
        [Choices((8, 64)), Choices((8,))],
    ),
    "match": (
        'match name:\n    case "a":\n        bs = trial.suggest_int("bs", 1, 64)\n'
        '    case _:\n        bs = trial.suggest_int("bs", 1, 8)',
        [Range(1, 64, 1), Range(1, 8, 1)],
    ),
    "class": (
        'class A:\n    top = 64\nclass B:\n    top = 8\nbs = trial.suggest_int("bs", 1, {"a": A, "b": B}[name].top)',
        [Range(1, 64, 1), Range(1, 8, 1)],
    ),
    "function": (
        'def limit(n):\n    if n.startswith("a"):\n        return 64\n    return 8\n'
        'bs = trial.suggest_int("bs", 1, limit(name))',
        [Range(1, 64, 1), Range(1, 8, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_what_a_choice_decides(name: str, read: Read) -> None:
    text, domains = DECIDED[name]
    body = text.replace("\n", "\n    ")
    reading = read(
        f"""
def objective(trial):
    name = trial.suggest_categorical("name", ["a", "b"])
    {body}
    train(name, bs)
optuna.create_study().optimize(objective)
"""
    )
    assert [dict(branch.fixed) for branch in reading.branches] == [{"name": "a"}, {"name": "b"}]
    assert [plain(branch.axes[0].domain) for branch in reading.branches] == domains


def test_a_bound_that_depends_on_a_range_is_as_wide_as_it_gets(read: Read) -> None:
    reading = read(
        """
        def objective(trial):
            length = trial.suggest_int("length", 128, 512, step=32)
            bs = trial.suggest_int("bs", 1, 8192 // length)
            accum = trial.suggest_categorical("accum", [a for a in (1, 2, 4) if a * bs < 64])
            train("m", bs * accum, length)
        optuna.create_study().optimize(objective)
        """
    )
    domains = {axis.name: plain(axis.domain) for axis in reading.axes}
    assert domains["bs"] == Range(1, 64, 1)
    assert domains["accum"] == Choices((1, 2, 4))


def test_a_trial_keeps_what_it_suggested(read: Read) -> None:
    reading = read(
        """
        def size(trial):
            return trial.suggest_int("bs", 1, {"a": 64}.get(trial.params["name"], 8))
        def objective(trial):
            trial.suggest_categorical("name", ["a", "b"])
            train(trial.params["name"], size(trial))
        optuna.create_study().optimize(objective)
        """
    )
    assert [plain(branch.axes[0].domain) for branch in reading.branches] == [Range(1, 64, 1), Range(1, 8, 1)]


SAME = HEAVY.replace("[8, 16])", "[8, 16, 32, 64])")
TABLE = """
SIZES = {"a": [8, 64], "b": [8]}
def objective(trial):
    name = trial.suggest_categorical("model", ["a", "b"])
    train(name, trial.suggest_categorical("bs", SIZES[name]))
optuna.create_study().optimize(objective)
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (HEAVY, ["bs"]),
        (TABLE, ["bs"]),
        (SAME, []),
        (HEAVY.replace('"bs", [8, 16])', '"bs_heavy", [8, 16])'), []),
        (re.sub(r'categorical\("bs", \[8, .*?(\d+)\]', r'int("bs", 8, \1', HEAVY), []),
    ],
    ids=["two calls", "one call", "the same", "another name", "bounds may differ"],
)
def test_optuna_refuses_other_choices_under_one_name(text: str, names: list[str], read: Read) -> None:
    optuna = pytest.importorskip("optuna")
    problems = read(text).problems
    assert [problem.message.partition(" ")[0] for problem in problems] == names
    study, space = optuna.create_study(), {"optuna": optuna, "train": lambda *given: None}
    exec(text.partition("optuna.create_study")[0], space)
    models = ["b", "a"] if "SIZES" in text else ["bert-large-uncased", "bert-base-uncased"]
    for name in models:
        study.enqueue_trial({"model": name})
    if names:
        with pytest.raises(ValueError, match="dynamic value space"):
            study.optimize(lambda trial: space["objective"](trial) or 0.0, n_trials=2)
