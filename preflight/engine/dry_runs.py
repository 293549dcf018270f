"""Saved dry runs: which of them speaks of a study, and the study's estimate where the files say "unknown".

A run speaks of a study if the study starts the same program with the same words, and if every file that the program
imported is still what it was. Words that only decide batch or length may differ where the run has a law over them. Runs
are kept in the user's own directory. Those in a checked tree may be a stranger's: their values are assumed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.memory.device.saved_run import BYTES as MOST_BYTES
from preflight.memory.device.saved_run import NotSaved, SavedRun, read
from preflight.reports.not_known import dry_run_of
from preflight.system import kept_files, observed
from preflight.system.files import UnreadableFile, read_bytes
from preflight.vocabulary.caches import regex
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.reading import Link, Word
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.study import Bound, Box, Source, Study
from preflight.vocabulary.values import Const, Unknown, Value, evaluate, names

IN_TREE = os.path.join(".preflight", "dry-runs")
"""Where a project keeps dry runs for its readers."""
MOST = 200
"""Saved runs that are read of one directory."""
SOURCE_BYTES = 8 * 2**20
FREE = ("train.batch_size", "train.seq_len", "validation.batch_size")
"""Fields over which a run may have a law; a validation batch, where it was the training batch in the run as well."""
WITHOUT_EFFECT = ("lr", "learning-rate", "seed", "random-seed", "warmup-steps", "warmup-ratio")
"""Arguments whose value no tensor's size depends on: a run with another value is the same. Weight decay is not among
them: where it is not 0, Adam and SGD add it to copies of the gradients (torch/optim/adam.py, _multi_tensor_adam)."""
OF_THE_RUN = ("model", "task", "train", "validation", "parallel")
"""Groups of Job fields that decide the memory of a GPU: a run of the program has seen what they do."""
STANDS = ("train.batch_size", "train.seq_len")


class Kept(Struct, frozen=True):
    """A saved run. `trusted`: it lies in the user's own directory, or the user trusts its file by name."""

    run: SavedRun
    path: str
    trusted: bool

    @property
    def named(self) -> str:
        return shlex.join(self.run.command)


class Found(Struct, frozen=True):
    """The run that speaks of a study, the study with what it saw, and notes for the user."""

    study: Study
    kept: Kept | None = None
    notes: tuple[str, ...] = ()
    outdated: bool = False
    """Files of the run have changed: the first note names the command that runs it again."""

    def notes_on(self, worst: Job, found: Estimates) -> tuple[str, ...]:
        """The notes, after its worst job was estimated."""
        why = self.kept.run.why_not(worst) if self.kept is not None else ""
        if self.kept is None or not why or (found.device is not None and not found.device.lower_bound):
            return self.notes
        return (f"{self.study.paths[0]}: the dry run of `{self.kept.named}` does not say: {why}",)


class SavedRuns(Struct, frozen=True, eq=False):
    """All saved runs that a check may use. `root`: of the project. `given`: a run that was just made."""

    root: Path
    accepts: Callable[[Path], bool] | None = None
    given: tuple[Kept, ...] = ()

    _files: dict[str, Kept | NotSaved] = field(default_factory=dict)
    """What was read of each file."""
    _listed: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    """Program -> the files that may hold a run of it, and whether each is the user's own."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with files that were read."""
        found = self._files.items()
        return tuple(f"the saved dry run {path} is not used: {one}" for path, one in found if isinstance(one, NotSaved))

    def _of_program(self, program: str) -> list[Kept]:
        """The runs that may be of a program, by its path. Those of the user are named by it; others have any name."""
        if self.given:
            return list(self.given)
        if program not in self._listed:
            self._listed[program] = list(self._may_be_of(program))
        for path, is_own in self._listed[program]:
            if path not in self._files:
                try:
                    self._files[path] = self._read(path, is_own)
                except NotSaved as error:
                    self._files[path] = error
        return [one for one in self._files.values() if isinstance(one, Kept)]

    def _may_be_of(self, program: str) -> Iterator[tuple[str, bool]]:
        own = kept_files.dry_runs()
        top, home = observed.real(self.root), observed.real(os.path.expanduser("~"))
        in_tree = own is not None and top != home and observed.real(own).startswith(top + os.sep)
        for name in (name_of(program), name_of(_main_of(program))):
            yield from ((path, not in_tree) for path in _files(own or "", name))
        yield from ((path, False) for path in _files(str(self.root / IN_TREE)))

    def _read(self, path: str, is_own: bool) -> Kept:
        """Raises NotSaved."""
        if is_own:
            _refuse_of_others(path)
        try:
            run = read(read_bytes(Path(path), MOST_BYTES))
        except UnreadableFile as error:
            raise NotSaved(str(error)) from error
        if not is_own:
            run = replace(run, directory=_inside(self.root, run.directory))
        return Kept(run, path, is_own or (self.accepts is not None and self.accepts(Path(path))))

    def of(self, study: Study, overlay: Mapping[str, str] | None = None) -> Found:
        """The run that speaks of a study. Notes say why one of its program does not. `overlay`: texts of files of the
        project that are not written, such as those of a fix."""
        left_out: list[Found] = []
        found: list[Kept] = []
        for kept in self._of_program(program_of(study, self.root)):
            if _starts(kept.run, study, self.root):
                other = _of_another(kept.run, study)
                changed = "" if other else self._outdated(kept, study, overlay or {})
                if other or changed:
                    note = f"{study.paths[0]}: the dry run of `{kept.named}` does not say: {other or changed}"
                    left_out.append(Found(study, None, (note,), bool(changed)))
                else:
                    found.append(kept)
        if not found:
            return next(iter(left_out), Found(study))
        batch = study.boxes[0].fields.get("train.batch_size")
        own = evaluate(batch.expr) if batch is not None else None
        best = next((kept for kept in found if kept.run.batch == own), found[0])
        return Found(_with_facts(study, best), best, (f"{study.paths[0]}: {_used(best)}",))

    def _outdated(self, kept: Kept, study: Study, overlay: Mapping[str, str]) -> str:
        """Which file has changed since the run, and the command that runs it again; "" where none has."""
        run = kept.run
        texts = {observed.real(self.root / name): text for name, text in overlay.items()}
        changed = "" if kept in self.given else next(_changed(run, None if kept.trusted else self.root, texts), "")
        if not changed:
            return ""
        again = (
            shlex.join(("preflight", "dry-run", "--save", "--", *run.command)) if kept.trusted else dry_run_of(study)
        )
        return f"{changed}; run again: {again}"


def _of_another(run: SavedRun, study: Study) -> str:
    """Why a run is of another command, or of other settings, than a study; "" where it is of this one."""
    if len(study.boxes) != 1:
        return "the study has several branches"
    return _other_words(run, study.boxes[0], _words(study), _launch(study)) or _stated(run, study.boxes[0])


def _used(kept: Kept) -> str:
    law = kept.run.law
    reach = " and its law over batch" + (" and length" if law and law.lengths else "") if law is not None else ""
    return f"what its files do not say is of the dry run{reach} of `{kept.named}`"


def name_of(program: str) -> str:
    """How the names of a program's runs begin, by the path of its file."""
    return sha256(os.fsencode(program)).hexdigest()[:24]


def _main_of(program: str) -> str:
    """The path of a package's program, where the path of a module of its name is given."""
    return os.path.join(program.removesuffix(".py"), "__main__.py")


def program_of(study: Study, root: Path) -> str:
    """The path of a study's program, without links."""
    link = link_of(study)
    target = link.target if link is not None else study.program or study.paths[0]
    return observed.real(root / (target if target.endswith(".py") else target.replace(".", "/") + ".py"))


def _files(folder: str, start: str = "") -> list[str]:
    try:
        entries = observed.entries(folder) if folder else []
        found = [name for name, kind in entries if name.startswith(start) and name.endswith(".json") and kind == "file"]
    except OSError:
        return []
    return [os.path.join(folder, name) for name in found[:MOST]]


def _refuse_of_others(path: str) -> None:
    """Raises NotSaved for a file, or its directory, that another user owns or may write."""
    if not hasattr(os, "getuid"):  # Windows: rights are no part of a mode there
        return
    for one in (path, os.path.dirname(path)):
        try:
            status = observed.status(one)
        except OSError as error:
            raise NotSaved(str(error.strerror)) from error
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise NotSaved("it belongs to another user, or others may write it")


def _inside(root: Path, directory: str) -> str:
    """The directory of a run that lies in a project: relative to its root. Raises NotSaved for one outside."""
    full = observed.real(root / directory)
    top = observed.real(root)
    if full != top and not full.startswith(top + os.sep):
        raise NotSaved("it is of a directory outside of the project")
    return full


# --- whether a run speaks of a study ----------------------------------------------------------------------------------


def link_of(study: Study) -> Link | None:
    return next((link for link in reversed(study.links) if link.kind in ("program", "module")), None)


def _starts(run: SavedRun, study: Study, root: Path) -> bool:
    """Whether a study starts the program of a run, in the same directory as far as that is known."""
    link = link_of(study)
    there = link.directory if link is not None else None
    if there is not None and observed.real(root / there) != observed.real(run.directory):
        return False
    own = run.program.target.replace(".", "/") + ".py" if run.program.module else run.program.target
    file = observed.real(os.path.join(run.directory, own))
    return program_of(study, root) in (file, observed.real(_main_of(file)))


def _words(study: Study) -> tuple[Word, ...]:
    link = link_of(study)
    return link.words if link is not None else ()


def _launch(study: Study) -> tuple[int | None, int | None, Mapping[str, str]]:
    """Nodes, ranks of a node, and variables of the launch; None where they are not known."""
    launch = study.launch
    ranks = [1 if one is None else evaluate(one) for one in (launch.nodes, launch.ranks_per_node)]
    kept = [(name, value) for name, value in launch.environment.items() if not name.startswith("SLURM_")]
    variables = {name: str(evaluate(value)) for name, value in kept if name.isidentifier()}
    nodes, each = (one if isinstance(one, int) and not isinstance(one, bool) else None for one in ranks)
    return nodes, each, variables


def _pairs(words: list[str]) -> list[tuple[str, ...]]:
    """Arguments in one form: ("--bs", "8") for `--bs 8` and `--bs=8`; a word alone is a positional argument."""
    found: list[tuple[str, ...]] = []
    for one in words:
        flag, equals, value = one.partition("=")
        if one.startswith("-") and equals:
            found.append((flag, value))
        elif not one.startswith("-") and found and found[-1][0].startswith("-") and len(found[-1]) == 1:
            found[-1] = (found[-1][0], one)
        else:
            found.append((one,))
    return found


def _other_words(
    run: SavedRun, box: Box, words: tuple[Word, ...], launch: tuple[int | None, int | None, Mapping[str, str]]
) -> str:
    """How the command of a study differs from that of a run, in words; "" where it does not."""
    own = run.program
    nodes, ranks, variables = launch
    if (nodes, ranks) != (own.nodes, own.ranks_per_node):
        return f"it had {own.nodes} x {own.ranks_per_node} processes"
    if dict(variables) != dict(own.environment):
        return f"other variables are set: {sorted(variables.items() ^ own.environment.items())}"
    texts: list[str] = []
    open_at: dict[str, Word] = {}
    for number, each in enumerate(words):
        text, is_open = _text_of(each, box)
        if text is None:
            return f"{each.prefix or 'a word'} is not known"
        if is_open:
            mark = f"\0{number}"
            open_at[mark] = each
            text += mark
        texts.append(text)
    mine, theirs = _pairs(texts), _pairs(list(own.arguments))
    for pair in mine:
        varied = next((one for one in open_at if pair[-1].endswith(one)), None)
        match = next((one for one in theirs if one[0] == pair[0].partition("\0")[0] and len(one) == len(pair)), None)
        if len(pair) == 2 and is_without_effect(pair[0].partition("\0")[0]):
            theirs = [one for one in theirs if one != match]
            continue
        if varied is not None:
            if match is None or not _is_free(run, box, open_at[varied], match[-1]):
                return f"the search varies {pair[0].partition(chr(0))[0]}"
            theirs.remove(match)
            continue
        same = next((one for one in theirs if _same(one, pair)), None)
        if same is None and match is not None and _is_other_size(run, box, words, match[-1], pair[-1]):
            same = match
        if same is None:
            return f"it was run with other words than {' '.join(pair)}"
        theirs.remove(same)
    rest = [one for one in theirs if not (len(one) == 2 and is_without_effect(one[0]))]
    if rest:
        return f"it was run with {' '.join(rest[0])}"
    told = {name for word in open_at.values() if word.value is not None for name in names(word.value)}
    left = [axis.name for axis in box.axes if axis.name not in told and not is_without_effect(axis.name)]
    return f"the search varies {left[0]}" if left else ""


_NUMBER = regex(r"-?(0|[1-9]\d*)(\.\d*[1-9]|\.0)?(e-?\d+)?")
"""A number in a usual spelling: `1.10` may be a version."""


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    if len(one) != len(other) or one[0] != other[0]:
        return False
    if one == other:
        return True
    numbers = _NUMBER.fullmatch(one[-1]) and _NUMBER.fullmatch(other[-1])
    return bool(numbers) and float(one[-1]) == float(other[-1])


def is_without_effect(flag: str) -> bool:
    """Whether no tensor's size depends on the value of an argument of this name."""
    return flag.lstrip("-").rpartition(".")[2].replace("_", "-").lower() in WITHOUT_EFFECT


def _text_of(word: Word, box: Box) -> tuple[str | None, bool]:
    """(the text of a word, whether it has a value that a search varies); None where the value is not known."""
    if word.value is None:
        return word.hydra_prefix + word.prefix, False
    if any(name in {axis.name for axis in box.axes} for name in names(word.value)):
        return word.hydra_prefix + word.prefix, True
    value = evaluate(word.value, {name: Const(one) for name, one in box.fixed.items()})
    return (None, False) if isinstance(value, Unknown) else (f"{word.hydra_prefix}{word.prefix}{value}", False)


def _is_free(run: SavedRun, box: Box, word: Word, own: str) -> bool:
    """Whether a word of a search decides only fields over which the run has a law, and says in the run what it saw."""
    assert word.value is not None
    axes = [axis for axis in box.axes if axis.name in set(names(word.value))]
    if len(axes) != 1:
        return False
    axis = axes[0]
    if is_without_effect(axis.name):
        return True
    if not axis.fields or not _has_law(run, axis.fields):
        return False
    value: Value = int(own) if own.isdecimal() else own
    seen = {"train.batch_size": run.batch, "train.seq_len": run.length, "validation.batch_size": run.batch}
    return all(
        name in box.fields and evaluate(box.fields[name].expr, {axis.name: Const(value)}) == seen[name]
        for name in axis.fields
    )


def _has_law(run: SavedRun, fed: Collection[str]) -> bool:
    """Whether a run has a law over all of these fields."""
    alone = "train.seq_len" not in fed or len(fed) == 1
    if run.law is None or not set(fed) <= {*FREE} or not alone or ("train.seq_len" in fed and not run.law.lengths):
        return False
    return "validation.batch_size" not in fed or (
        "train.batch_size" in fed and run.values.get("validation.batch_size") in (None, run.batch)
    )


def _is_other_size(run: SavedRun, box: Box, words: tuple[Word, ...], own: str, other: str) -> bool:
    """Whether a word decides the batch or the length alone, in the run as well, and the run has a law over it."""
    at = next((w.value.origin for w in words if isinstance(w.value, Const) and str(w.value.value) == other), None)
    fed = [name for name, bound in box.fields.items() if at is not None and bound.origin == at]
    if not fed or not _has_law(run, fed):
        return False
    seen = run.length if fed == ["train.seq_len"] else run.batch
    return own == str(seen) and all(str(evaluate(box.fields[name].expr)) == other for name in fed)


def _stated(run: SavedRun, box: Box) -> str:
    """A value of the files or of the user that contradicts what the run saw; "" where there is none."""
    return next((why for name, bound in box.fields.items() if (why := _contradicted(run, name, bound))), "")


def _contradicted(run: SavedRun, name: str, bound: Bound) -> str:
    group, _, rest = name.partition(".")
    if bound.stated_by_user and group in OF_THE_RUN and name not in run.values:
        return f"{name} is stated, and the run did not show it"
    if any(True for _ in names(bound.expr)) or (bound.default and not bound.stated_by_user):
        return ""
    value, seen = evaluate(bound.expr), run.values.get(name)
    if isinstance(value, Unknown) or value is None:
        return ""
    release = run.versions.get(rest) if group == "software" else None
    if release is not None and str(value) != release.partition("+")[0]:
        return f"it ran with {rest} {release}, and {value} is stated"
    by_law = name in STANDS and run.law is not None
    if (name in STANDS or bound.stated_by_user) and seen is not None and seen != value and not by_law:
        return f"it saw {name} = {seen}, and {value} is stated"
    return ""


def _changed(run: SavedRun, root: Path | None, texts: Mapping[str, str]) -> Iterator[str]:
    """Files of the program that are not what they were. `root`: files outside of it are refused. `texts`: files that
    have another text than the disk."""
    if not run.sources:
        yield "it has no hashes of its files"
    for name, digest in run.sources.items():
        path = Path(os.path.normpath(os.path.join(run.directory, name)))
        if root is not None and not path.is_relative_to(observed.real(root)):
            yield f"{name} is outside of the project"
            return
        other = texts.get(observed.real(path))
        try:
            now = sha256(read_bytes(path, SOURCE_BYTES) if other is None else other.encode()).hexdigest()
        except UnreadableFile as error:
            yield f"{name}: {error}"
            return
        if now != digest:
            yield f"{name} has changed since"


# --- what it says -----------------------------------------------------------------------------------------------------


def _with_facts(study: Study, kept: Kept) -> Study:
    """The study with what the run saw in the fields that its files leave unknown."""
    box, run = study.boxes[0], kept.run
    known = dict(box.fields)
    for name, value in run.values.items():
        bound = known.get(name)
        if name == "software" or (bound is not None and bound.standing is not Standing.unknown):
            continue
        if name == "data.sample_bytes" and not _has_length(box, run):
            continue
        if value is not None and not isinstance(value, dict):
            where = "" if kept.trusted else kept.path
            known[name] = Bound(name, Const(value), source=Source.dry_run, where=where)  # type: ignore[arg-type]
    return replace(study, boxes=(replace(box, fields=known),))


def _has_length(box: Box, run: SavedRun) -> bool:
    """Whether samples of a study are as long as those that the run saw."""
    bound = box.fields.get("train.seq_len")
    if run.length is None or bound is None or bound.standing is Standing.unknown:
        return True  # what is not stated is as the run saw it
    return evaluate(bound.expr) == run.length


def held_with(held: Mapping[str, Held], kept: Kept, study: Study) -> dict[str, Held]:
    """How fields are known where a run decides the estimate: it has seen what they do, whatever their values are. If no
    file that was read starts the program, another command may, and what was assumed of it stays so."""
    standing = Standing.dry_run if kept.trusted else Standing.assumed
    why = "" if kept.trusted else "the dry run lies in the checked tree; --trust accepts it"
    return {
        name: Held(standing, why)
        if (one.standing is Standing.unknown or (study.links and not one.standing.holds))
        and name.partition(".")[0] in OF_THE_RUN
        and name != "model.load"
        else one
        for name, one in held.items()
    }
