"""Recognition of training programs: Python files with an entry point that train, or import a module that trains."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from preflight.dialects.program.followed import Followed
from preflight.vocabulary.caches import CacheKind, regex
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.text import Source

_NAMED = (
    "torch", "transformers", "trl", "ultralytics", "lightning", "pytorch_lightning", "accelerate", "timm", "deepspeed",
    "diffusers", "peft", "unsloth", "open_clip", "sentence_transformers", "bitsandbytes",
)  # fmt: skip
_NAMES = "|".join(_NAMED)
_LIBRARIES = regex(rf"^\s*(?:from\s+(?:{_NAMES})\b|import\s(?:[\w., ]*[ ,])?(?:{_NAMES})\b)", re.MULTILINE)
_TRAINS = regex(
    r"\.(?:manual_)?backward\(|\b(?:NativeScaler|ApexScaler)\("
    r"|\b(?:\w*Trainer|(?:Seq2Seq)?TrainingArguments|SFTConfig|DPOConfig|GRPOConfig)\("
    r"|\b(?:TrainingArguments|SFTConfig|DPOConfig|GRPOConfig)\b.*(?:parse|Parser)|HfArgumentParser\("
    r"|\.fit\(\s*train_objectives\b"
    r"|\b(?:YOLO|RTDETR)\(.*?\.train\(|\b(?:LightningCLI|Fabric)\(|\bLightningCLI\)",
    re.DOTALL,
)
_ENTRY = regex(
    r"^if\s+__name__\s*==|^@hydra\.main|^(?:app|typer)\.|^wandb\.agent\("
    r"|^@\w+\.(?:local_entrypoint|function|cls)\("
    r"|^(?:\w+\s*=\s*)?(?:\w+\.fit|(?:ray\.)?tune\.(?:run|Tuner)|ray\.get)\(",
    re.MULTILINE,
)
"""What starts something at the top of a file, by the functions of libraries; names of variables are anyone's."""
_CALL = regex(r"^(?:[\w.]+\(|(?:for|while|with|if|try)\b.*:)", re.MULTILINE)
"""A call as a statement at the top of a file, perhaps in a block."""
_RUNS = regex(
    r"^(?!(?:def|class|async|import|from)\b|[@#\s])[^\n]*(?:\(|[\[{\\]$)|^(?:if|for|while|with|try)\b", re.MULTILINE
)
"""A statement at the top of a file that may call something. Most modules of a tree have none, and are not parsed."""
_COMPOSES = regex(r"^@hydra\.main\b", re.MULTILINE)
_FITS_WHAT_IT_IS_GIVEN = regex(r"\binstantiate\(.*\.(?:fit|train|learn|run)\(", re.DOTALL)
_OPTUNA = regex(r"\btrial\.suggest_")
_LOCAL_IMPORT = regex(
    r"^\s*(?:from\s+(\.*[\w.]*)\s+import\s*(?:\(([^()]*)\)|([\w, ]+|\*))|import\s+([\w.]+))", re.MULTILINE
)
_WHEN_STARTED: CacheKind[bool] = CacheKind("whether a program trains when it is started", of_many=True)
"""A sweep of scripts starts one program hundreds of times."""
_COMMENT = regex(r"#[^\n]*")


def recognises(source: Source, project: Project) -> bool:
    """Whether a script has an entry point, and trains itself or through a module of the project that it imports."""
    if not source.path.endswith(".py") or _is_test(source):
        return False
    starts = bool(_ENTRY.search(source.text))
    return ((starts or _acts(source, project)) and trains(source, project)) or _calls_training(source, project)


def _calls_training(source: Source, project: Project) -> bool:
    """Whether what a program calls trains, in as many files as it takes: a `train.py` that only starts a package."""
    if _RUNS.search(source.text) is None or "trial.suggest_" in source.text:
        return False
    followed = Followed(project, lambda one: bool(_TRAINS.search(one)), _imports_library)
    return followed.started_by(source)


def trains(source: Source, project: Project) -> bool:
    """Whether a program trains, itself or through a module of the project. One that suggests values of trials is left
    to the reader of Optuna's studies."""
    text = source.text
    if "trial.suggest_" in text and _OPTUNA.search(text):
        return False
    composes = bool(_COMPOSES.search(text))  # the configuration has trainer and model
    return any(
        (composes and _FITS_WHAT_IT_IS_GIVEN.search(one)) or _trains_here(one)
        for one in chain((text,), (other.text for other in _imported(source, project)))
    ) and not _asks_a_trainer_alone(source, project)


def trains_when_started(source: Source, project: Project) -> bool:
    """Whether a program that a command starts trains: also through what the modules that it imports import, as a script
    that submits the program of another file does."""
    return project.remembered.get(_WHEN_STARTED, lambda: _trains_when_started(source, project), source.path)


def _trains_when_started(source: Source, project: Project) -> bool:
    return trains(source, project) or any(trains(other, project) for other in _imported(source, project))


_INFERS = regex(r"\bno_grad\b|\binference_mode\b|\.eval\(\)|\.generate\(|\bpipeline\(|\bLLM\(")
"""What a program does that uses a trained model."""
_OF_ITS_OWN = regex(r"backward|optim|\btrain\w*\(|[Tt]rainer|subprocess|os\.system|submitit|runpy|\bexec\(")
"""Words of a program that may train after all: in a way that was not read, or by another program."""
_ASKS = regex(r"\.(?:predict|evaluate|test|validate)\(")
"""Methods of trainers that take a trained model, and make no step."""
_MAY_STEP = regex(
    r"backward|\btrain(?!ing_step)\w*\(|\.(?:fit|learn|run|launch|start)\w*\(|\bgetattr\(|\bexec\(|\binstantiate\(|Scaler\("
    r"|\b(?:LightningCLI|Fabric)\b"
)
"""What a program may do with a trainer that makes steps."""


def _asks_a_trainer_alone(source: Source, project: Project) -> bool:
    """Whether a program gives a model to a trainer to evaluate it, and nothing in it or in what it imports may step."""
    if _ASKS.search(source.text) is None or "Trainer(" not in source.text:
        return False
    return not any(_MAY_STEP.search(one) for one in chain((source.text,), (o.text for o in _imported(source, project))))


_OTHER_FRAMEWORK = regex(
    r"^\s*(?:from|import)\s+(?:jax|flax|tensorflow|keras|paddle|mxnet|sklearn|xgboost)\b|\.fit\(", re.MULTILINE
)


def only_evaluates(source: Source, project: Project) -> bool:
    """Whether a program uses a model, and nothing in it or in what it imports may train one."""
    if not source.path.endswith(".py"):
        return False
    if _asks_a_trainer_alone(source, project) and not trains_when_started(source, project):
        return True
    if _OF_ITS_OWN.search(source.text) or trains_when_started(source, project):
        return False
    texts = [source.text, *(one.text for one in _imported(source, project))]
    return any(map(_INFERS.search, texts)) and not any(map(_OTHER_FRAMEWORK.search, texts))


def _trains_here(text: str) -> bool:
    return _imports_library(text) and bool(_TRAINS.search(text))


def _imports_library(text: str) -> bool:
    """Most modules of a tree have none of the names, which is found in less time than that no line imports one."""
    return any(name in text for name in _NAMED) and bool(_LIBRARIES.search(text))


_RUNS_TESTS = regex(r"^\s*(?:unittest|pytest)\.main\(|\(unittest\.TestCase\)|\(TestCase\)", re.MULTILINE)
_HAS_TESTS = regex(
    r"^\s*(?:async\s+)?def\s+test_|^\s*(?:import|from)\s+(?:pytest|unittest)\b|\bMagicMock\(", re.MULTILINE
)


def _is_test(source: Source) -> bool:
    """Whether a file is a test: tests train small models and are not submitted. What lies among tests is one if it has
    functions of tests, whatever its name is."""
    folder, name = posixpath.split(source.path)
    if name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py":
        return True
    among = {"test", "tests", "unit_tests", "testing"} & set(folder.split("/"))
    text = source.text
    runs = ("test.main(" in text or "TestCase)" in text) and bool(_RUNS_TESTS.search(text))
    return runs or bool(among and _HAS_TESTS.search(text))


def _acts(source: Source, project: Project) -> bool:
    """Whether the top level of the file starts something: it has a loop, a `with`, or a call as a statement. Where only
    an imported module trains, it is the call of a function of the file, `main()`."""
    here = _trains_here(source.text)
    if not here and _CALL.search(source.text) is None:
        return False
    body = _body(source.text)
    if body is None:
        return here  # `read` reports broken scripts
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    if not here:
        return any(_statement(node) in {one.name for one in functions} for node in body)
    if any(map(_starts, body)):
        return True
    kept = {one.func.id for one in map(_kept_call, body) if one is not None and isinstance(one.func, ast.Name)}
    return any(one.name in kept and _TRAINS.search(ast.unparse(one)) for one in functions)


def _kept_call(node: ast.stmt) -> ast.Call | None:
    """The call whose result a statement keeps."""
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    return value if isinstance(value, ast.Call) else None


def _body(text: str) -> list[ast.stmt] | None:
    """The statements of a file; None where it cannot be parsed."""
    try:
        return parse_module(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _starts(node: ast.stmt) -> bool:
    """Whether a statement starts something, also in a branch (`if SWEEP: wandb.agent(...)`)."""
    if isinstance(node, (ast.If, ast.Try)):
        return any(_starts(inner) for inner in [*node.body, *node.orelse])
    return isinstance(node, (ast.For, ast.While, ast.With)) or _is_call(node) or _keeps_result(node)


def _is_call(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Call) and not ast.unparse(value.func).startswith(
        ("sys.", "os.", "warnings.", "logging.")
    )


_TRAINING_METHODS = frozenset({"train", "fit", "learn", "train_model"})


def _keeps_result(node: ast.stmt) -> bool:
    """Whether a statement keeps what a training gives: `results = model.train(data="x.yaml")`, `out = trainer.train()`.
    A module's `train()` without arguments only changes its mode."""
    call = _kept_call(node)
    if call is None or not isinstance(call.func, ast.Attribute):
        return False
    made = call.func.value.func if isinstance(call.func.value, ast.Call) else call.func.value
    of = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    if call.func.attr == "train" and "train" not in of.lower():
        return bool(call.keywords or [one for one in call.args if not isinstance(one, ast.Constant)])
    return call.func.attr in _TRAINING_METHODS


def _statement(node: ast.stmt) -> str | None:
    """The name of the function that a statement calls."""
    call = node.value if isinstance(node, ast.Expr) else None
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None


def _imported(source: Source, project: Project) -> Iterator[Source]:
    """The project's modules that a file imports directly, or by names that a package takes from one of its modules."""
    here = posixpath.dirname(source.path)
    for module, names in _imports(source.text):
        stem = module.lstrip(".").replace(".", "/")
        for candidate in [stem, *(f"{stem}/{name}" for name in names), f"{stem}/__init__"]:
            for base in dict.fromkeys((here, "", "src", posixpath.dirname(here))):
                path = posixpath.normpath(posixpath.join(base, f"{candidate.strip('/')}.py"))
                found = _module(path, source, project)
                if found is not None:
                    yield found
                    if candidate.endswith("/__init__"):
                        yield from _taken_on(found, names, project)
                    break


def _imports(text: str) -> Iterator[tuple[str, list[str]]]:
    """Modules of import statements, each with the names that are imported from it."""
    for match in list(_LOCAL_IMPORT.finditer(text))[:60]:
        module, several, named, plain = match.groups()
        names = _COMMENT.sub("", several if several is not None else named or "").split(",")
        yield (module if module is not None else plain), [name.split()[0] for name in names if name.strip()]


def _taken_on(package: Source, names: list[str], project: Project) -> Iterator[Source]:
    """The modules from which a package's `__init__.py` takes some names."""
    for module, taken in _imports(package.text):
        if module.startswith(".") and ({"*", *names} & set(taken) if "*" not in names else True):
            inner = module[1:].replace(".", "/")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(package.path), f"{inner}.py"))
            found = _module(path, package, project) if inner else None
            if found is not None:
                yield found


def _module(path: str, of: Source, project: Project) -> Source | None:
    if path.startswith("..") or path == of.path or not project.exists(path):
        return None
    with suppress(UnreadableFile):  # the check of that file reports it
        return project.source(path)
    return None
