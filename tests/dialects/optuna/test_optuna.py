"""Optuna studies: suggestions as axes, and the fields that they reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna_programs import Read, field, plain

from preflight.dialects.optuna import reader as optuna
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Choices, Const, Op, Range, Ref, Unbounded, evaluate

SILENT = {
    "no optuna": "x = 1\n",
    "commented out": "import optuna\n# trial.suggest_int('a', 1, 2)\n",
    "a text": "import optuna\nprint('study.optimize(f)')\n",
    "another optimize": "optimizer.optimize(f)\n",
    "suggestions of words": "x = suggest_int\n",
    "broken": "import optuna\nstudy.optimize(f\n",
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_no_study(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(SILENT[name])
    project = Project(tmp_path, Settings())
    assert not optuna.recognises(project.source("x.py"), project)


def test_a_study_that_trains_no_model_is_silent(read: Read) -> None:
    reading = read(
        """
        import lightgbm as lgb
        import optuna
        def objective(trial):
            leaves = trial.suggest_int("num_leaves", 2, 256)
            return lgb.train({"num_leaves": leaves}, lgb.Dataset([]))
        optuna.create_study().optimize(objective, n_trials=10, n_jobs=4)
        """,
        prefix="",
    )
    assert not reading.trains
    assert not reading.axes


SUGGESTIONS = {
    "categorical": ('trial.suggest_categorical("bs", [8, 16])', "bs", Choices((8, 16))),
    "categorical by keyword": ('trial.suggest_categorical(name="bs", choices=(8, 16))', "bs", Choices((8, 16))),
    "constant": ('trial.suggest_categorical("bs", SIZES)', "bs", Choices((4, 32))),
    "class attribute": ('trial.suggest_categorical("bs", Space.sizes)', "bs", Choices((2, 64))),
    "dataclass attribute": ('trial.suggest_categorical("bs", Config().sizes)', "bs", Choices((1, 3))),
    "comprehension": ('trial.suggest_categorical("bs", [2 ** i for i in range(3, 6)])', "bs", Choices((8, 16, 32))),
    "keys": ('trial.suggest_categorical("bs", list({8: "a", 9: "b"}))', "bs", Choices((8, 9))),
    "int": ('trial.suggest_int("bs", 8, 64)', "bs", Range(8, 64, 1)),
    "int with a step": ('trial.suggest_int("bs", low=8, high=64, step=8)', "bs", Range(8, 64, 8)),
    "int in logarithms": ('trial.suggest_int("bs", 8, 64, log=True)', "bs", Range(8, 64, 1, True, True)),
    "float": ('trial.suggest_float("x", 0.1, 0.5)', "x", Range(0.1, 0.5, None, False)),
    "float with a step": ('trial.suggest_float("x", 0, 1, step=0.25)', "x", Range(0, 1, 0.25, False)),
    "uniform": ('trial.suggest_uniform("x", 0, 1)', "x", Range(0, 1, None, False)),
    "loguniform": ('trial.suggest_loguniform("x", 1, 9)', "x", Range(1, 9, None, False, True)),
    "discrete uniform": ('trial.suggest_discrete_uniform("x", 8, 64, 8)', "x", Range(8, 64, 8, False)),
    "bound by name": ('trial.suggest_int("bs", LOW, LOW * 4)', "bs", Range(8, 32, 1)),
    "slashes": ('trial.suggest_int("train/bs", 8, 64)', "train/bs", Range(8, 64, 1)),
    "f-string": ('trial.suggest_int(f"bs{LOW}", 8, 64)', "bs8", Range(8, 64, 1)),
    "bounds from outside": ('trial.suggest_int("bs", 8, int(input()))', "bs", Unbounded("bounds that are not known")),
    "choices from outside": (
        'trial.suggest_categorical("bs", sys.argv)',
        "bs",
        Unbounded("choices that are not known"),
    ),
}


@pytest.mark.parametrize("name", SUGGESTIONS)
def test_a_suggestion(name: str, read: Read) -> None:
    text, axis, domain = SUGGESTIONS[name]
    reading = read(
        f"""
        import sys
        from dataclasses import dataclass
        SIZES, LOW = [4, 32], 8
        class Space:
            sizes = [2, 64]
        @dataclass
        class Config:
            sizes: tuple = (1, 3)
        def objective(trial):
            value = {text}
            train("bert-base-uncased", value)
        optuna.create_study().optimize(objective, n_trials=3)
        """
    )
    (found,) = reading.axes
    assert (found.name, plain(found.domain)) == (axis, domain)


def test_each_choice_and_bound_has_its_place(read: Read, tmp_path: Path) -> None:
    reading = read(
        """
        def objective(trial):
            train("bert-base-uncased", trial.suggest_categorical("bs", [8, 16]), trial.suggest_int("len", 128, 512))
        optuna.create_study().optimize(objective)
        """
    )
    text = (tmp_path / "tune.py").read_text()
    choices, length = reading.axes
    assert isinstance(choices.domain, Choices)
    assert isinstance(length.domain, Range)
    places = [*choices.domain.origins, length.domain.low_origin, length.domain.high_origin]
    assert [text[p.span.start : p.span.end] for p in places if p is not None] == ["8", "16", "128", "512"]


USES = {
    "local variable": 'bs = trial.suggest_int("bs", 1, 8)\ntrain("m", bs)',
    "argument": 'train("m", batch_size=trial.suggest_int("bs", 1, 8))',
    "returned dict": 'p = params(trial)\ntrain("m", p["train"]["bs"])',
    "spread dict": 'train("m", **{"batch_size": trial.suggest_int("bs", 1, 8)})',
    "namespace copy": 'a = copy.deepcopy(args)\na.bs = trial.suggest_int("bs", 1, 8)\ntrain("m", a.bs)',
    "updated dict": 'c = dict(DEFAULTS)\nc.update(bs=trial.suggest_int("bs", 1, 8))\ntrain("m", c["bs"])',
}


@pytest.mark.parametrize("name", USES)
def test_a_suggestion_reaches_the_loader(name: str, read: Read) -> None:
    body = USES[name].replace("\n", "\n    ")
    reading = read(
        f"""
import argparse, copy
DEFAULTS = {{"bs": 4}}
args = argparse.Namespace(bs=4)
def params(t):
    return {{"train": {{"bs": t.suggest_int("bs", 1, 8)}}}}
def objective(trial):
    {body}
optuna.create_study(direction="maximize").optimize(objective, n_trials=2)
"""
    )
    assert field(reading, "train.batch_size") == Ref("bs")


def test_a_power_is_an_operation_on_the_axis(read: Read) -> None:
    reading = read(
        """
        def objective(trial):
            train("m", 2 ** trial.suggest_int("exponent", 3, 7))
        optuna.create_study().optimize(objective)
        """
    )
    expr = field(reading, "train.batch_size")
    assert isinstance(expr, Op)
    assert evaluate(expr, {"exponent": Const(5)}) == 32


OBJECTIVES = {
    "lambda": "study.optimize(lambda t: objective(t), n_trials=2)",
    "partial": "from functools import partial\nstudy.optimize(partial(objective), n_trials=2)",
    "class": (
        "class Objective:\n    def __init__(self, n):\n        self.n = n\n    def __call__(self, trial):\n"
        "        return objective(trial)\nstudy.optimize(Objective(3), n_trials=2)"
    ),
    "factory": "def build():\n    def inner(trial):\n        return objective(trial)\n    return inner\n"
    "study.optimize(build(), n_trials=2)",
    "keyword": "study.optimize(func=objective, n_trials=2)",
    "loaded study": "optuna.load_study(study_name='a', storage='b').optimize(objective)",
    "main": "def main():\n    study.optimize(objective)\nif __name__ == '__main__':\n    main()",
    "asked": "for _ in range(10):\n    trial = study.ask()\n    study.tell(trial, objective(trial))",
    "nothing yet": "",
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_how_an_objective_is_started(name: str, read: Read) -> None:
    start = "def objective(trial):\n    train('m', trial.suggest_int('bs', 1, 8))\nstudy = optuna.create_study()\n"
    reading = read(start + OBJECTIVES[name] + "\n")
    assert reading.trains
    assert [axis.name for axis in reading.axes] == ["bs"]
    assert field(reading, "train.batch_size") == Ref("bs")


def test_distributions_that_are_asked_for(read: Read) -> None:
    reading = read(
        """
        study = optuna.create_study()
        trial = study.ask({"bs": optuna.distributions.IntDistribution(8, 64, step=8),
                           "name": optuna.distributions.CategoricalDistribution(["a", "b"])})
        train(trial.params["name"], trial.params["bs"])
        """
    )
    assert [(axis.name, plain(axis.domain)) for axis in reading.axes] == [
        ("bs", Range(8, 64, 8)),
        ("name", Choices(("a", "b"))),
    ]
    assert field(reading, "train.batch_size") == Ref("bs")


def test_names_made_in_a_loop(read: Read) -> None:
    reading = read(
        """
        def objective(trial):
            units = [trial.suggest_int(f"n_units_l{i}", 4, 128) for i in range(2)]
            train("m", units[0])
        optuna.create_study().optimize(objective)
        """
    )
    assert [axis.name for axis in reading.axes] == ["n_units_l0", "n_units_l1"]


def test_a_trainers_search_replaces_its_arguments(read: Read) -> None:
    reading = read(
        """
        from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
        def space(trial):
            return {"per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [16, 64])}
        def model_init():
            return AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
        trainer = Trainer(args=TrainingArguments("out", per_device_train_batch_size=8), model_init=model_init)
        trainer.hyperparameter_search(hp_space=space, backend="optuna", n_trials=10)
        """,
        prefix="",
    )
    assert field(reading, "train.batch_size") == Ref("per_device_train_batch_size")
    assert evaluate(field(reading, "model.name")) == "bert-base-uncased"  # type: ignore[arg-type]
