"""From files to studies: `build` reads files, follows links in both directions, and makes one study of each launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from preflight.study.assemble import assemble
from preflight.study.follow import INSIDE, Chain, Follower, crashed
from preflight.study.launchers import Launchers
from preflight.study.same_job import CONFIGURATION, merged
from preflight.vocabulary.errors import PreflightError, SettingsError, UsageError, suggestion
from preflight.vocabulary.extensions import ExtensionError
from preflight.vocabulary.job import fields
from preflight.vocabulary.progress import QUIET, Progress, TimeOver
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Link, Reading
from preflight.vocabulary.spelling import Invalid, kind_of, normal
from preflight.vocabulary.study import Skipped, Study
from preflight.vocabulary.values import Value


def build(
    paths: Sequence[str],
    project: Project,
    overrides: Mapping[str, Value] | None = None,
    progress: Progress = QUIET,
) -> tuple[tuple[Study, ...], tuple[Skipped, ...]]:
    """Every study that the given files are part of, and the files that are part of none.

    `paths` are relative to the project's root. `overrides` (Job field -> value, from --set) beat everything else.
    Raises SettingsError or UsageError for names that are no Job field, and for values that a field cannot have.

    Studies are in the order of the paths that lead to them. One that several paths lead to is there once. What
    `progress` leaves no time for is skipped.
    """
    _known_fields(project, overrides or {})
    follower = Follower(project, progress)
    launchers = Launchers(project, follower, paths)
    chains: dict[object, Chain] = {}
    skipped: dict[str, Skipped] = {}
    distinct = list(dict.fromkeys(paths))
    for number, path in enumerate(distinct, 1):
        try:
            progress.check()
            with progress.shown(f"reading {number} of {len(distinct)} files ({path})"):
                found = launchers.chains_to(path)
        except TimeOver:
            skipped.update((left, _late(left)) for left in distinct[number - 1 :])
            break
        for chain in found:
            chains.setdefault(_key(chain), chain)
        if not found:
            skipped[path] = _why_not(path, follower)
            alone = follower.read(path, None) if skipped[path].kind == "no-training" else None
            skipped.update(_broken(alone.links if alone is not None else (), follower))
    kept, studies = [], []
    for chain in _longest(chains.values()):
        if progress.over():
            skipped.setdefault(chain[0].reading.path, _late(chain[0].reading.path))
            continue
        try:
            studies.append(assemble(chain, project, overrides or {}))
            kept.append(chain)
        except ExtensionError:
            raise
        except Exception as error:  # an internal error in one study must not hide the others
            skipped[chain[0].reading.path] = crashed(chain[0].reading.path, error)
    launches = kept
    kept, studies = _jobs(kept, studies, project)
    used = {path for study in studies for path in study.paths}
    skipped.update(_broken(_links(kept), follower))
    skipped.update((path, one) for path, one in follower.skipped.items() if one.kind == "crashed")
    left = tuple(one for path, one in skipped.items() if path not in used or one.kind in ("malformed", "crashed"))
    return _concurrent(kept, _with_unread(kept, studies, launches)), left


def rebuild(
    studies: Sequence[Study], project: Project, overrides: Mapping[str, Value]
) -> tuple[tuple[Study, ...], tuple[Skipped, ...]] | None:
    """The same launches, read from a project in which some texts differ, and the files of theirs that cannot be read.

    `studies` holds all studies of each file that starts one of them. Only what these files lead to is read, and nothing
    is searched: the cost does not depend on the size of the project. None if the launches are other ones now.
    """
    follower = Follower(project)
    every = [launch for study in studies for launch in (study, *study.same)]
    launches: dict[tuple[str, ...], list[Chain]] = {}
    for root in dict.fromkeys(launch.paths[0] for launch in every):
        for chain in follower.chains(root):
            launches.setdefault(_files(reading for step in chain for reading in step.readings), []).append(chain)
    chains = []
    for launch in every:
        same = launches.get(_files(launch.readings))
        if not same:
            return None
        chains.append(same.pop(0))
    try:
        found = [assemble(chain, project, overrides) for chain in chains]
    except ExtensionError:
        raise
    except Exception:  # `build` says of which file, and goes on with the others
        return None
    launched = [chain for several in launches.values() for chain in several] + chains
    chains, found = _jobs(chains, found, project)
    if [_files(study.readings) for study in found] != [_files(study.readings) for study in studies]:
        return None
    return _concurrent(chains, _with_unread(chains, found, launched)), tuple(_broken(_links(chains), follower).values())


def _jobs(chains: list[Chain], studies: list[Study], project: Project) -> tuple[list[Chain], list[Study]]:
    """The launches that are studies of their own, and their studies."""
    if project.settings.constraints:  # a constraint may speak of any setting
        return chains, studies
    indices, kept = merged(studies)
    return [chains[index] for index in indices], kept


def _files(readings: Iterable[Reading]) -> tuple[str, ...]:
    """The files of a launch, the one that starts it first."""
    return tuple(reading.path for reading in readings)


def _known_fields(project: Project, overrides: Mapping[str, Value]) -> None:
    settings = project.settings
    if not (settings.map or settings.set or overrides):
        return
    given: list[tuple[str, type[PreflightError], str, Value]] = [
        *((f"[tool.preflight.map] {name}", SettingsError, target, None) for name, target in settings.map.items()),
        *(("[tool.preflight.set]", SettingsError, name, value) for name, value in settings.set.items()),
        *(("--set", UsageError, name, value) for name, value in overrides.items()),
    ]
    for where, error, name, value in given:
        if kind_of(name) is None:
            raise error(f"{where}: there is no Job field {name}{suggestion(name, fields())}")
        try:
            normal(name, value)
        except Invalid as problem:
            raise error(f"{where}: {problem}") from None


def _key(chain: Chain) -> object:
    """The identity of a launch: its files and the places of its links."""
    return tuple((step.reading.path, step.link.origin if step.link is not None else None) for step in chain)


def _longest(chains: Iterable[Chain]) -> list[Chain]:
    """The chains that are no part of another: not a program that a given script launches.

    A configuration launches nothing: the program with its defaults is one launch, the one with another option a second.
    """
    found = list(chains)
    launched = {
        step.reading.path
        for chain in found
        if chain[0].reading.dialect != CONFIGURATION
        for step in chain[1:]
        if not _is_command(step.link) and step.reading.path != chain[0].reading.path  # a program that it writes itself
    }
    return [chain for chain in found if chain[0].reading.path not in launched]


def _is_command(link: Link | None) -> bool:
    """Whether a link leads to a command or a job in the same script, not to another file."""
    return link is not None and link.kind in INSIDE


def _why_not(path: str, follower: Follower) -> Skipped:
    if path in follower.skipped:
        return follower.skipped[path]
    reading = follower.read(path, None)
    if reading is None:
        return follower.skipped.get(path, Skipped(path, "unrecognised", "its format is not recognised"))
    return Skipped(path, "no-training", f"{reading.dialect}: nothing in it trains a model", reading.problems)


def _late(path: str) -> Skipped:
    return Skipped(path, "time-limit", "the time limit was over")


def _broken(links: Iterable[Link], follower: Follower) -> dict[str, Skipped]:
    """Files that links lead to and that cannot be read: what they say is missing in the study, or the study is."""
    met = {link.target: follower.skipped.get(link.target) for link in links}
    return {path: one for path, one in met.items() if one is not None and one.kind in ("malformed", "crashed")}


def _links(chains: Iterable[Chain]) -> Iterator[Link]:
    for chain in chains:
        for step in chain:
            for reading in step.readings:
                yield from reading.links


def _with_unread(chains: Sequence[Chain], studies: Sequence[Study], launches: Iterable[Chain]) -> list[Study]:
    """Studies with the programs of their scripts that no launch is: `launches` are all that were followed."""
    followed = {step.link.origin for chain in launches for step in chain if step.link is not None}
    found = []
    for chain, study in zip(chains, studies, strict=True):
        unread, beside = [], []
        for step, following in zip(chain, [*chain[1:], None], strict=True):
            own = following.link if following is not None else None
            for program in step.reading.started:
                if followed.isdisjoint(program.links):
                    unread.append(program.name)
                    beside += [program.name] if own is not None and program.group == own.group else []
        names = tuple(dict.fromkeys(unread)), tuple(dict.fromkeys(beside))
        found.append(replace(study, unread_programs=names[0], unread_beside=names[1]) if unread else study)
    return found


def _concurrent(chains: list[Chain], studies: list[Study]) -> tuple[Study, ...]:
    """Mark launches of one file that run at the same time: those with the same group number."""
    groups: dict[object, list[int]] = {}
    for index, chain in enumerate(chains):
        if len(chain) > 1 and chain[1].link is not None:
            groups.setdefault((chain[0].reading.path, chain[1].link.group), []).append(index)
    same_time = {index: tuple(i for i in group if i != index) for group in groups.values() for index in group}
    return tuple(replace(study, concurrent_with=same_time.get(index, ())) for index, study in enumerate(studies))
