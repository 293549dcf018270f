"""Optuna studies: suggestions as axes, branches as boxes, what a trial that runs out of memory does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from preflight.dialects import optuna
from preflight.dialects.reading import Call, Parameter, Reading, word
from preflight.project import Project
from preflight.settings import Settings
from preflight.values import Choices, Const, Op, Range, Ref, Unbounded, evaluate

Read = Callable[..., Reading]

TRAIN = """
import optuna
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification


def train(name, batch_size, length=128):
    model = AutoModelForSequenceClassification.from_pretrained(name).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader([], batch_size=batch_size):
        model(**batch).loss.backward()
        optimizer.step()
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def make(text: str, files: dict[str, str] | None = None, words: str = "", prefix: str = TRAIN) -> Reading:
        for name, content in {"tune.py": prefix + dedent(text), **(files or {})}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
        project = Project(tmp_path, Settings())
        source = project.source("tune.py")
        assert optuna.recognises(source, project)
        call = Call("job.sh", tuple(word(item) for item in words.split())) if words else None
        return optuna.read(source, call, project)

    return make


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


def _plain(domain: object) -> object:
    if isinstance(domain, Choices):
        return Choices(domain.values)
    if isinstance(domain, Range):
        return Range(domain.low, domain.high, domain.step, domain.integer, domain.log)
    return domain


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
    assert (found.name, _plain(found.domain)) == (axis, domain)


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


def field(reading: Reading, name: str) -> object:
    return [binding.expr for binding in reading.bindings if binding.field == name][-1]


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
    assert [(axis.name, _plain(axis.domain)) for axis in reading.axes] == [
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
    assert _plain(read(text).axes[0].domain) == Range(1, 64, 1)
    reading = read(text, words="--long --jobs=3")
    assert _plain(reading.axes[0].domain) == Range(1, 4, 1)
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
    assert [_plain(branch.axes[0].domain) for branch in reading.branches] == domains


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
    domains = {axis.name: _plain(axis.domain) for axis in reading.axes}
    assert domains["bs"] == Range(1, 64, 1)
    assert domains["accum"] == Choices((1, 2, 4))


# --- facts ------------------------------------------------------------------------------------------------------------


def facts(reading: Reading) -> dict[str, object]:
    return {fact.name: fact.value for fact in reading.facts}


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
    from preflight.study.bind import bind_words

    given = bind_words(
        [Parameter("bs", Const(1), ("--bs",), type="int"), Parameter("name", Const(""), ("--name",))], link.words
    )
    assert evaluate(given["bs"], {"bs": Const(6)}) == 6
    assert evaluate(given["name"]) == "m"
    assert link.launch.launcher == ("torchrun" if name == "launcher" else "python")
    assert not reading.trains
    assert [axis.name for axis in reading.axes] == ["bs"]
    assert facts(reading)["handles_oom"] is True
