"""What tests of several dialects share."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from optuna_programs import TRAIN, Read

from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading, word
from preflight.vocabulary.settings import Settings


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads an Optuna program given as text, behind the training that it tunes."""
    from preflight.dialects.optuna import reader as optuna

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
