"""Finds the files that launch a program or use a configuration.

A link is known only after the file that has it is read. So candidates are found by name first: a file that does not
contain the name of another cannot launch it. The search is limited to the settings' roots, the given files, and
scripts, sweeps and programs in the usual directories.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from functools import cached_property

from msgspec.structs import replace

from preflight.study.follow import Chain, Follower
from preflight.vocabulary.budgets import LAUNCHER_CHARACTERS, LAUNCHER_FILES, Budget
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import NOT_SEARCHED, Fact, Reading
from preflight.vocabulary.values import Origin, Span

USUAL = (
    "", "scripts", "script", "sweeps", "sweep", "slurm", "jobs", "job", "launch", "bash", "sbatch", "bin", "tools",
    "configs", "config", "configs/sweeps", "config/sweeps", "wandb", "experiments", "examples", "src", "hpc", "run",
)  # fmt: skip
"""Directories in which projects keep the files that start their programs."""


LAUNCHERS = (".yaml", ".yml", ".sh", ".bash", ".zsh", ".sbatch", ".slurm", ".sl", ".job", ".py")
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_BLANKED = bytes(byte if byte in _LETTERS else 32 for byte in range(256))
"""What every byte of a text in UTF-8 becomes, so that its words stand between blanks."""
_SKIPPED = frozenset({"setup.py", "conftest.py"})


class Index:
    """The files that contain a word, in their order. Words that were expected are found by one look at each text; any
    other is searched for when it is asked for the first time."""

    def __init__(self, expected: frozenset[bytes]) -> None:
        self._expected = expected
        self._files: dict[str, list[str]] = {}
        self._texts: list[tuple[str, str]] = []

    def add(self, path: str, text: str) -> None:
        self._texts.append((path, text))
        words = text.encode("utf-8", "replace").translate(_BLANKED).split()
        for word in self._expected.intersection(words):
            self._files.setdefault(word.decode("ascii"), []).append(path)

    def files(self, word: str) -> list[str]:
        if word not in self._files:
            asked = [] if _of_word(word) in self._expected else self._texts
            self._files[word] = [path for path, text in asked if _has_word(word, text)]
        return self._files[word]

    def leave(self, word: str, files: list[str]) -> None:
        """Of the files that contain a word, those that are given the next time."""
        self._files[word] = files


def _of_word(word: str) -> bytes:
    return word.encode("utf-8", "replace")


def _has_word(word: str, text: str) -> bool:
    """Whether a text has a word as one of its words; a name with other characters than a word's is none."""
    if word not in text or not _LETTERS.issuperset(_of_word(word)):
        return False
    return _of_word(word) in _of_word(text).translate(_BLANKED).split()


class Launchers:
    """The files of a project that may launch others, by the words in their text. Directories are read when needed."""

    def __init__(self, project: Project, follower: Follower, given: Sequence[str]) -> None:
        self.project, self.follower, self.given = project, follower, tuple(given)
        self._chains: dict[str, list[Chain]] = {}
        self._words: dict[str, Index] = {}
        self._reached: dict[str, frozenset[str]] = {}
        self._cut: Budget | None = None
        """The budget that ended a search."""

    def chains_to(self, path: str) -> list[Chain]:
        """The launches that a file is part of; those that start with itself if no file launches it, or if it is just
        being submitted: another script may submit it with other words."""
        roots = self._roots(path, frozenset()) if path not in self.follower.project.submissions else ()
        found = [chain for root in roots for chain in self._own(root) if _has(chain, path)]
        if found:
            return found
        own = [chain for chain in self._own(path) if _trains(chain)]
        return [self._with_gap(again) for chain in own for again in self._from_program(chain, path)]

    def _with_gap(self, chain: Chain) -> Chain:
        """A chain that nothing starts as far as was searched, with a fact if a budget ended the search."""
        if self._cut is None:
            return chain
        first = chain[0]
        fact = Fact(
            NOT_SEARCHED, f"what starts it was not searched to the end: {self._cut.over}", _start(first.reading)
        )
        told = replace(first.reading, facts=(*first.reading.facts, fact))
        return (replace(first, reading=told), *chain[1:])

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
            if path in self._reach(candidate):
                further = self._roots(candidate, seen | {path})
                roots.update(dict.fromkeys(further or [candidate]))
        return list(roots)

    def _reach(self, path: str) -> frozenset[str]:
        """The files that have a say in the training that a file starts; a configuration starts none."""
        if path not in self._reached:
            started = (chain for chain in self._own(path) if chain[0].reading.dialect != "hydra" and _trains(chain))
            readings = (reading for chain in started for step in chain for reading in step.readings)
            self._reached[path] = frozenset(one for reading in readings for one in (reading.path, *reading.reads))
        return self._reached[path]

    def _candidates(self, path: str) -> Iterator[str]:
        """Files that mention `path` by its name, the closest first."""
        folder, name = posixpath.split(path)
        suffix = posixpath.splitext(name)[1]
        word = _called(path)
        is_config = suffix in (".yaml", ".yml", ".json")
        is_module = suffix == ".py" and self.follower.dialect(path) is None
        seen: set[str] = set()
        for index in self._indices(folder):
            for candidate in self._mentioning(word, index):
                # scripts and sweeps start programs; Python that starts a program has links by its own reader
                if candidate not in seen and (is_config or is_module or not candidate.endswith(".py")):
                    seen.add(candidate)
                    yield candidate
            # a program does not contain the names of the files that it composes
            for candidate in index.files("hydra") if is_config else ():
                if candidate not in seen and candidate.endswith(".py"):
                    seen.add(candidate)
                    yield candidate

    def _mentioning(self, word: str, index: Index) -> list[str]:
        """The files with a word, without those that are known to start nothing: half a project may have `__init__`."""
        found = index.files(word)
        if found:
            found = [path for path in found if self._reached.get(path) != frozenset()]
            index.leave(word, found)
        return found

    def _indices(self, folder: str) -> Iterator[Index]:
        """The words of the settings' roots, the given files, the directory and its parents, the usual directories."""
        yield self._configured
        yield self._given
        places = [folder]
        while places[-1]:
            places.append(posixpath.dirname(places[-1]))
        for place in places:
            yield self._below(place)
        yield from (self._below(place) for place in self._usual if place not in places)

    def _below(self, folder: str) -> Index:
        if folder not in self._words:
            self._words[folder] = self._index(self._in(folder, self._known))
        return self._words[folder]

    @cached_property
    def _known(self) -> frozenset[str]:
        """Files whose words are looked at before those of any directory."""
        return frozenset(self.given)

    @cached_property
    def _usual(self) -> tuple[str, ...]:
        return tuple(place for place in USUAL if self._below(place))

    @cached_property
    def _configured(self) -> Index:
        return self._index(self._roots_of_settings())

    @cached_property
    def _given(self) -> Index:
        return self._index(path for path in self.given if path.endswith(LAUNCHERS))

    def _index(self, paths: Iterable[str]) -> Index:
        """The words of some candidates, each with the files that contain it."""
        index = Index(self._expected)
        for path in paths:
            try:
                text = self.project.source(path).text
            except UnreadableFile:
                continue  # its own check says why
            if len(text) > LAUNCHER_CHARACTERS:
                self._cut = LAUNCHER_CHARACTERS
            index.add(path, text[:LAUNCHER_CHARACTERS])
        return index

    @cached_property
    def _expected(self) -> frozenset[bytes]:
        """The words that are asked for: what the given files are called. A program is asked for as well."""
        return frozenset(_of_word(_called(path)) for path in self.given) | {b"hydra"}

    def _in(self, directory: str, without: frozenset[str] = frozenset()) -> Iterator[str]:
        """The files of a directory that may launch others. Those of `without` are searched elsewhere."""
        start = f"{directory}/" if directory else ""
        paths = [start + name for name in self.project.listdir(directory) if _may_launch(name)]
        paths = [path for path in paths if path not in without]
        if len(paths) > LAUNCHER_FILES:
            self._cut = LAUNCHER_FILES
        yield from (path for path in paths[:LAUNCHER_FILES] if self.project.exists(path))

    def _roots_of_settings(self) -> Iterable[str]:
        """Files that the settings' roots name."""
        found: dict[str, None] = {}
        for pattern in self.project.settings.roots:
            if not any(mark in pattern for mark in "*?["):
                found.update({pattern: None} if self.project.exists(pattern) else {})
                continue
            base = posixpath.dirname(pattern)
            found.update(dict.fromkeys(path for path in self._in(base) if fnmatch(path, pattern)))
        return found


def _called(path: str) -> str:
    """The word by which another file mentions a file."""
    folder, name = posixpath.split(path)
    stem = posixpath.splitext(name)[0]
    return posixpath.basename(folder) if stem == "__main__" else stem


def _may_launch(name: str) -> bool:
    return name.endswith(LAUNCHERS) and name not in _SKIPPED and not name.startswith(".")


def _start(reading: Reading) -> Origin:
    return Origin(reading.path, Span(0, 0))


def _has(chain: Chain, path: str) -> bool:
    return any(path == reading.path or path in reading.reads for step in chain for reading in step.readings)


def _trains(chain: Chain) -> bool:
    """Whether a file of the chain trains a model, or may: what a file starts beyond a budget is unknown."""
    return chain[-1].reading.unread is not None or any(reading.trains for step in chain for reading in step.readings)
