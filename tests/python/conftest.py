"""A project in a temporary directory, and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from preflight.python.interpreter import Interpreter
from preflight.python.position import ProgramStart
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Environment, Expr

Run = Callable[..., Interpreter]


@pytest.fixture
def project(tmp_path: Path) -> Callable[[Mapping[str, str]], Project]:
    def make(files: Mapping[str, str]) -> Project:
        for name, text in files.items():
            target = tmp_path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(dedent(text), encoding="utf-8")
        return Project(tmp_path, Settings())

    return make


@pytest.fixture
def run(project: Callable[[Mapping[str, str]], Project]) -> Run:
    def evaluate(
        text: str,
        files: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, Expr] | None = None,
        assume: Environment | None = None,
        path: str = "main.py",
    ) -> Interpreter:
        evaluator = Interpreter(
            project({path: text, **(files or {})}), start=ProgramStart(environment or {}), assume=assume
        )
        evaluator.run(path)
        return evaluator

    return evaluate
