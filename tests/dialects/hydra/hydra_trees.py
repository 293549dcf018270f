"""Hydra trees as dictionaries of files, and readings of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from preflight.dialects.hydra import reader as hydra
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Launch, Problem, Reading, Word, word
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Expr, Origin, Span, Value, evaluate

CONFIG = """\
defaults:
  - model: small
  - data: text
  - optional local: mine
  - _self_

lr: 1e-5
length: ${model.length}
heads: ${eval:'${model.width} // 32'}
name: run-${model.length}-${data.workers}
"""


TREE = {
    "conf/config.yaml": CONFIG,
    "conf/model/small.yaml": "_target_: os.system\nlength: 128\nwidth: 64\n",
    "conf/model/large.yaml": "defaults: [small]\nwidth: 1024\ndropout: 0.1\n",
    "conf/data/text.yaml": "batch_size: 4\nmax_length: ${length}\nworkers: ${.per_gpu}\nper_gpu: 3\n",
}


def tree(root: Path, files: Mapping[str, str]) -> Project:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Project(root, Settings())


def launched(project: Project, *words: str, path: str = "conf/config.yaml", **launch: object) -> Reading:
    """The reading of a configuration that a script launches with these words."""
    text = " ".join(words)
    project.overlay["job.sh"] = text
    placed, at = [], 0
    for one in words:
        placed.append(word(one, Origin("job.sh", Span(at, at + len(one)))))
        at += len(one) + 1
    call = Call("train.py", tuple(placed), {}, Launch(**launch))  # type: ignore[arg-type]
    return hydra.read(project.source(path), call, project)


def alone(project: Project, path: str = "conf/config.yaml") -> Reading:
    return hydra.read(project.source(path), None, project)


def values(reading: Reading) -> dict[str, Value]:
    return {setting.key: evaluate(setting.expr) for setting in reading.settings}


def expr(reading: Reading, key: str) -> Expr:
    [found] = [setting.expr for setting in reading.settings if setting.key == key]
    return found


def at(project: Project, origin: Origin | None) -> str:
    """Where an origin is, and its text: "conf/a.yaml:3 128"."""
    assert origin is not None
    source = project.source(origin.path)
    line, _ = source.line_column(origin.span.start)
    return f"{origin.path}:{line} {source.text[origin.span.start : origin.span.end]}"


def problems(reading: Reading, severity: str | None = None) -> list[Problem]:
    return [one for one in reading.problems if severity in (None, one.severity)]


MAIN = 'import hydra\n\n@hydra.main(config_path="conf", config_name="config", version_base=None)\ndef main(cfg): ...\n'


def one_word(prefix: str, value: Expr) -> Word:
    return Word(prefix, value)
