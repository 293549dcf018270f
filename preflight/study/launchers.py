"""Finds the files that launch a program or use a configuration.

A link is known only after the file that has it is read. So candidates are found by name first: a file that does not
contain the name of another cannot launch it. The search is limited to the settings' roots, the given files, and
scripts, sweeps and programs in the usual directories.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cached_property

from preflight.study.follow import Chain, Follower
from preflight.vocabulary.project import Project, UnreadableFile

USUAL = (
    "", "scripts", "script", "sweeps", "sweep", "slurm", "jobs", "job", "launch", "bash", "sbatch", "bin", "tools",
    "configs", "config", "configs/sweeps", "config/sweeps", "wandb", "experiments", "examples", "src", "hpc", "run",
)  # fmt: skip
"""Directories in which projects keep the files that start their programs."""

MAX_CANDIDATES = 400
"""Files of one directory that are searched."""
MAX_LENGTH = 200_000
"""Characters of a candidate that are searched for names. Files that launch programs are small."""

LAUNCHERS = (".yaml", ".yml", ".sh", ".bash", ".sbatch", ".slurm", ".sl", ".job", ".py")
_WORD = re.compile(r"[A-Za-z0-9_\-]+")
_SKIPPED = frozenset({"setup.py", "conftest.py"})

Index = Mapping[str, Sequence[str]]


class Launchers:
    """The files of a project that may launch others, by the words in their text. Directories are read when needed."""

    def __init__(self, project: Project, follower: Follower, given: Sequence[str]) -> None:
        self.project, self.follower, self.given = project, follower, tuple(given)
        self._chains: dict[str, list[Chain]] = {}
        self._words: dict[str, Index] = {}

    def chains_to(self, path: str) -> list[Chain]:
        """The launches that a file is part of; those that start with itself if no file launches it."""
        found = [chain for root in self._roots(path, frozenset()) for chain in self._own(root) if _has(chain, path)]
        if found:
            return found
        own = [chain for chain in self._own(path) if _trains(chain)]
        return [again for chain in own for again in self._from_program(chain, path)]

    def _from_program(self, chain: Chain, path: str) -> list[Chain]:
        """The launches of the program that composes a configuration, which itself starts nothing.

        A file of a group that no launch chooses is read with the program all the same.
        """
        if len(chain) < 2 or chain[0].reading.dialect != "hydra":
            return [chain]
        program = chain[1].reading.path
        started = [one for one in self.chains_to(program) if _has(one, path)]
        return started or [chain]

    def _own(self, path: str) -> list[Chain]:
        if path not in self._chains:
            self._chains[path] = self.follower.chains(path)
        return self._chains[path]

    def _roots(self, path: str, seen: frozenset[str]) -> list[str]:
        """The files at which the chains that lead to `path` start, without itself; short chains first."""
        if len(seen) > 3 or path in seen:
            return []
        roots: dict[str, None] = {}
        below = {step.reading.path for chain in self._own(path) for step in chain}  # two scripts may start each other
        for candidate in self._candidates(path):
            if candidate in seen or candidate in below:
                continue
            started = (chain for chain in self._own(candidate) if chain[0].reading.dialect != "hydra")
            if any(_has(chain, path) and _trains(chain) for chain in started):
                further = self._roots(candidate, seen | {path})
                roots.update(dict.fromkeys(further or [candidate]))
        return list(roots)

    def _candidates(self, path: str) -> Iterator[str]:
        """Files that mention `path` by its name, the closest first."""
        folder, name = posixpath.split(path)
        stem, suffix = posixpath.splitext(name)
        words = [posixpath.basename(folder) if stem == "__main__" else stem]
        is_config = suffix in (".yaml", ".yml", ".json")
        is_module = suffix == ".py" and self.follower.dialect(path) is None
        seen: set[str] = set()
        for index in self._indices(folder):
            for candidate in (one for word in words for one in index.get(word, ())):
                # scripts and sweeps start programs; Python that starts a program has links by its own reader
                if candidate not in seen and (is_config or is_module or not candidate.endswith(".py")):
                    seen.add(candidate)
                    yield candidate
            # a program does not contain the names of the files that it composes
            for candidate in index.get("hydra", ()) if is_config else ():
                if candidate not in seen and candidate.endswith(".py"):
                    seen.add(candidate)
                    yield candidate

    def _indices(self, folder: str) -> Iterator[Index]:
        """The words of the settings' roots, the given files, the directory and its parents, the usual directories."""
        yield self._index("\0roots", self._configured)
        yield self._index("\0given", [path for path in self.given if path.endswith(LAUNCHERS)])
        places = [folder]
        while places[-1]:
            places.append(posixpath.dirname(places[-1]))
        for place in dict.fromkeys([*places, *USUAL]):
            yield self._index(place, None)

    def _index(self, place: str, paths: Iterable[str] | None) -> Index:
        """The words of the candidates in a directory (`place`), each with the files that contain it."""
        if place not in self._words:
            index: dict[str, list[str]] = {}
            for path in self._in(place) if paths is None else paths:
                try:
                    text = self.project.source(path).text[:MAX_LENGTH]
                except UnreadableFile:
                    continue  # its own check says why
                for word in set(_WORD.findall(text)):
                    index.setdefault(word, []).append(path)
            self._words[place] = index
        return self._words[place]

    def _in(self, directory: str) -> Iterator[str]:
        names = [name for name in self.project.listdir(directory) if _may_launch(name)]
        for name in names[:MAX_CANDIDATES]:
            path = f"{directory}/{name}" if directory else name
            if self.project.exists(path):
                yield path

    @cached_property
    def _configured(self) -> tuple[str, ...]:
        """Files that the settings' roots name."""
        found: dict[str, None] = {}
        for pattern in self.project.settings.roots:
            if not any(mark in pattern for mark in "*?["):
                found.update({pattern: None} if self.project.exists(pattern) else {})
                continue
            base = posixpath.dirname(pattern)
            found.update(dict.fromkeys(path for path in self._in(base) if fnmatch(path, pattern)))
        return tuple(found)


def _may_launch(name: str) -> bool:
    return name.endswith(LAUNCHERS) and name not in _SKIPPED and not name.startswith(".")


def _has(chain: Chain, path: str) -> bool:
    return any(path == reading.path or path in reading.reads for step in chain for reading in step.readings)


def _trains(chain: Chain) -> bool:
    """Whether a file of the chain trains a model."""
    return any(reading.trains for step in chain for reading in step.readings)
