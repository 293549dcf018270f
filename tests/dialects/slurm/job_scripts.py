"""Job scripts in projects of their own."""

from __future__ import annotations

from pathlib import Path

from preflight.dialects.slurm import reader as slurm
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Link, Reading, Word
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Origin, Unknown, Value, evaluate

FILES = ("train.py", "src/pkg/train.py", "scripts/inner.sh", "sweep.yaml", "env.sh", "config.yaml")


HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n"


class Script:
    """A script in a project of its own, read."""

    def __init__(self, root: Path, text: str, name: str = "job.sbatch", call: Call | None = None, **files: str) -> None:
        for path in FILES:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(files.get(path.replace("/", "_").replace(".", "_"), "pass\n"))
        (root / name).write_text(text)
        self.text, self.project = text, Project(root, Settings())
        self.source = self.project.source(name)
        self.reading: Reading = slurm.read(self.source, call, self.project)

    @property
    def recognised(self) -> bool:
        return slurm.recognises(self.source, self.project)

    @property
    def link(self) -> Link:
        [link] = self.reading.links
        return link

    def words(self, link: Link | None = None) -> list[str]:
        """The words of a link, unknown parts as `?`."""
        return [shown(word) for word in (link or self.link).words]

    def at(self, origin: Origin | None) -> str:
        assert origin is not None
        return self.text[origin.span.start : origin.span.end]

    def count(self, name: str) -> Value:
        expr = getattr(self.link.launch, name)
        return None if expr is None else evaluate(expr)


def shown(word: Word) -> str:
    if word.value is None:
        return word.prefix
    value = evaluate(word.value)
    return word.prefix + ("?" if isinstance(value, Unknown) else str(value))
