"""Limits for each model in the calls of an Optuna program: the text, what a trial gets, and what is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.engine.rounds import fixed
from preflight.fixes.edits import edits_in
from preflight.study.build import build
from preflight.vocabulary.findings import Change, KeptBy
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import splice

HEAD = """\
import optuna
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data import texts

BASE, LARGE = "bert-base-uncased", "bert-large-uncased"


def train(name, batch_size, length):
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSequenceClassification.from_pretrained(name, torch_dtype=torch.float32).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    dataset = tokenizer(texts, padding="max_length", truncation=True, max_length=length)
    for batch in DataLoader(dataset, batch_size=batch_size):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


"""
PLAIN = """\
def objective(trial):
    model = trial.suggest_categorical("model", ["bert-base-uncased", "bert-large-uncased"])
    batch_size = trial.suggest_int("batch_size", 4, 24, step=4)
    return train(model, batch_size, 512)


study = optuna.create_study()
study.optimize(objective, n_trials=20)
"""
APART = """\
NAMES = ["bert-base-uncased", "bert-large-uncased", "roberta-large"]


def sizes(trial):
    return {
        "batch": trial.suggest_categorical("batch", [4, 8, 24]),
        "length": trial.suggest_int("length", 128, 512, step=128),
    }


def objective(trial):
    name = trial.suggest_categorical("name", NAMES)
    chosen = sizes(trial)
    return train(name, chosen["batch"], chosen["length"])


study = optuna.create_study()
study.optimize(objective, n_trials=20)
"""


def after_fixes(text: str, root: Path) -> tuple[str, engine.Report]:
    """The program after all fixes, and what is found in it then."""
    (root / "tune.py").write_text(HEAD + text)
    batch = Batch(root, Settings(gpu="T4"), None, ("tune.py",), ())
    result = fixed(*engine.setup(batch, engine.CheckOptions(), root), True, lambda report: report)
    return result.texts.get("tune.py", HEAD + text).removeprefix(HEAD), result.after


def suggested(text: str, params: Mapping[str, object]) -> tuple[object, ...]:
    """What the objective trains with, in a trial of these parameters."""
    optuna = pytest.importorskip("optuna")
    names: dict[str, object] = {"optuna": optuna, "train": lambda *given: given}
    exec(compile(text.partition("study = ")[0], "tune.py", "exec"), names)
    return names["objective"](optuna.trial.FixedTrial(params))  # type: ignore[operator]


def test_a_bound_for_each_model(tmp_path: Path) -> None:
    text, after = after_fixes(PLAIN, tmp_path)
    assert text == PLAIN.replace("4, 24,", '4, 8 if model == "bert-large-uncased" else 24,')
    assert not after.findings
    assert after.studies[0].space.counts.unsafe == 0
    large = "bert-large-uncased"
    assert suggested(text, {"model": large, "batch_size": 8}) == (large, 8, 512)
    assert suggested(text, {"model": "bert-base-uncased", "batch_size": 24})[1] == 24
    with pytest.warns(UserWarning, match="out of the range"):
        suggested(text, {"model": large, "batch_size": 24})


def test_choices_for_each_model_have_names_of_their_own(tmp_path: Path) -> None:
    text, after = after_fixes(APART, tmp_path)
    assert not after.findings
    assert 'trial.suggest_categorical("batch_to_8", [4, 8])' in text
    assert 'if trial.params["name"] in ("bert-large-uncased", "roberta-large")' in text
    large = "roberta-large"
    assert suggested(text, {"name": large, "batch_to_8": 8, "length": 512}) == (large, 8, 512)
    assert suggested(text, {"name": "bert-base-uncased", "batch": 24, "length": 512})[1:] == (24, 512)


def test_a_real_study_runs_after_the_fix(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    text, _ = after_fixes(APART, tmp_path)
    seen: list[tuple[object, ...]] = []
    names: dict[str, object] = {"optuna": optuna, "train": lambda *given: seen.append(given) or 1.0}
    exec(compile(text.partition("study = ")[0], "tune.py", "exec"), names)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    study.optimize(names["objective"], n_trials=30)
    assert {batch for name, batch, _ in seen if "large" in str(name)} <= {4, 8}
    assert 24 in {batch for _, batch, _ in seen}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("create_study()", 'create_study(sampler=optuna.samplers.GridSampler({"batch_size": [4, 24]}))'),
        ("study.optimize", 'study.enqueue_trial({"batch_size": 24})\nstudy.optimize'),
    ],
)
def test_a_study_that_is_given_values_is_left_alone(old: str, new: str, tmp_path: Path) -> None:
    text, _ = after_fixes(PLAIN.replace(old, new), tmp_path)
    assert 'suggest_int("batch_size", 4, 24, step=4)' in text


BRANCHES = """\
def objective(trial):
    model = trial.suggest_categorical("model", ["bert-base-uncased", "bert-large-uncased"])
    if model == "bert-large-uncased":
        return train(model, trial.suggest_categorical("batch", [4, 8, 24]), 512)
    return train(model, trial.suggest_categorical("batch", [4, 8, 24]), 128)


study = optuna.create_study()
study.optimize(objective, n_trials=20)
"""


def test_one_branch_of_a_name_is_not_narrowed(tmp_path: Path) -> None:
    text, _ = after_fixes(BRANCHES, tmp_path)
    assert text.count('"batch", [4, 8, 24]') == 2  # Optuna would refuse the other list
    narrowed = BRANCHES.replace('"batch", [4, 8, 24]), 512', '"batch_large", [4, 8, 24]), 512')
    text, _ = after_fixes(narrowed, tmp_path)
    assert '"batch_large", [4, 8])' in text


LIMIT = KeptBy("model", (("bert-base-uncased", (4, 24)), ("bert-large-uncased", (4, 8))))
LISTED = PLAIN.replace('suggest_int("batch_size", 4, 24, step=4)', 'suggest_categorical("batch_size", [4, 8, 24])')
OF_LIST = KeptBy("model", (("bert-base-uncased", (4, 8, 24)), ("bert-large-uncased", (4, 8))))


def edited(text: str, by: KeptBy, root: Path) -> str | None:
    (root / "tune.py").write_text(HEAD + text)
    project = Project(root, Settings())
    (study,), _ = build(["tune.py"], project)
    found = edits_in(Change("batch_size", keep=(4, 24), by=by), study, project)
    return None if found is None else splice(HEAD + text, list(found)).removeprefix(HEAD)


def test_a_list_for_each_model(tmp_path: Path) -> None:
    assert edited(LISTED, OF_LIST, tmp_path) == LISTED.replace(
        'trial.suggest_categorical("batch_size", [4, 8, 24])',
        """(
        trial.suggest_categorical("batch_size_to_8", [4, 8])
        if model == "bert-large-uncased"
        else trial.suggest_categorical("batch_size", [4, 8, 24])
    )""",
    )


@pytest.mark.parametrize(
    ("old", "new", "limit"),
    [
        ("4, 24,", "4, top,", '4, 8 if model == "bert-large-uncased" else top,'),
        ("4, 24,", "low=4, high=24,", 'high=8 if model == "bert-large-uncased" else 24,'),
        (
            "    batch_size = trial",
            "    model = model.lower()\n    batch_size = trial",
            '8 if trial.params["model"] == "bert-large-uncased" else 24',  # the variable is not what was suggested
        ),
        (
            "    model = trial",
            "    if True:\n        model = trial",
            '8 if trial.params["model"] == "bert-large-uncased" else 24',  # a block that may be left out
        ),
    ],
    ids=["a name", "keywords", "changed", "another block"],
)
def test_where_the_model_is_known(old: str, new: str, limit: str, tmp_path: Path) -> None:
    text = PLAIN.replace(old, new).replace("def objective", "top = 24\n\n\ndef objective")
    found = edited(text, LIMIT, tmp_path)
    assert found is not None
    assert limit in found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("4, 24,", "4, 12 * 2,"),
        ("4, 24,", "*[4, 24],"),
        ("trial.suggest_int", "(trial or None).suggest_int"),
        ('["bert-base-uncased", "bert-large-uncased"]', "[AutoTokenizer, DataLoader]"),
    ],
    ids=["computed", "spread", "no name of the trial", "choices that are no texts"],
)
def test_bounds_that_are_left_alone(old: str, new: str, tmp_path: Path) -> None:
    text = PLAIN.replace(old, new)
    if "trial or None" in new:
        text = text.replace("    model = trial", "    if True:\n        model = trial")
    assert edited(text, LIMIT, tmp_path) is None


@pytest.mark.parametrize(
    "more",
    [
        'train("m", study.best_params["batch_size"], 8)\n',
        'train("m", **study.best_params)\n',
        'study.trials_dataframe()["params_batch_size"].hist()\n',
        'optuna.visualization.plot_slice(study, params=["batch_size"])\n',
        'print("batch_size_to_8")\n',
    ],
)
def test_choices_that_are_looked_up_by_name_are_left_alone(more: str, tmp_path: Path) -> None:
    assert edited(LISTED + more, OF_LIST, tmp_path) is None


@pytest.mark.parametrize("more", ["print(study.best_params)\n", 'print(study.best_trial.params["model"])\n'])
def test_choices_that_are_shown_are_limited(more: str, tmp_path: Path) -> None:
    assert edited(LISTED + more, OF_LIST, tmp_path) is not None
