"""Composition with Hydra's defaults-list algorithm and OmegaConf's merging. Every value keeps its place.

Missing or broken parts are recorded and left out, and the rest is composed. hydra-core is pinned below 1.4 because the
defaults list is made by a private module of it (hydra._internal.defaults_list).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from preflight.dialects.hydra.merge_order import keep_order, kept_order, order_alike
from preflight.dialects.hydra.overrides import GivenOverride, plain
from preflight.dialects.hydra.repository import HYDRA_DEFAULTS, Repository, TooLarge
from preflight.dialects.hydra.tree import (
    Clash,
    ConfigFile,
    ConfigTable,
    Entry,
    Item,
    Leaf,
    Listing,
    assign,
    embedded,
    from_value,
    leaves,
    merge,
    remove,
    select,
    split_key,
)
from preflight.documents.schema_errors import nearest
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.reading import Problem, ProblemSeverity
from preflight.vocabulary.values import Cause, Const, Origin, Unknown

if TYPE_CHECKING:
    from hydra._internal.defaults_list import Overrides
    from hydra.core.default_element import InputDefault, ResultDefault

COMMAND_LINE = 1
"""Rank of a value from the command line; the rank of files is 0."""
MAX_GAPS = 50
"""Missing files of one composition that are left out before composition stops."""


class Composition(Struct):
    """One composed configuration."""

    root: ConfigTable = field(default_factory=ConfigTable)
    choices: dict[str, str] = field(default_factory=dict)
    """Group -> its chosen option, also of Hydra's groups such as `hydra/launcher`."""
    groups: frozenset[str] = frozenset()
    """Groups of the defaults list, also groups without an option."""
    problems: list[Problem] = field(default_factory=list)
    broken: list[Problem] = field(default_factory=list)
    """Problems of single files, whatever composes them."""
    files: list[str] = field(default_factory=list)
    parts: list[tuple[str, str]] = field(default_factory=list)
    """(configuration, package) in the order of merging."""
    whole: bool = False
    """Hydra composes it, and no file of it is missing or broken."""


_COMPOSED: CacheKind[Composition] = CacheKind("compositions of an application", of_many=True)


def compose(repository: Repository, name: str, overrides: Sequence[GivenOverride]) -> Composition:
    """The configuration `name` with overrides that sweep over nothing. It is shared: nothing may change it."""
    project, folders = repository.project, repository.folders
    words = tuple(_words(given) for given in overrides)
    if not all(words):
        return _compose(repository, name, overrides)
    # where an option is chosen is said by problems alone: the file of an option and its launch share a composition
    texts = tuple(one[:1] if _chooses(given, repository) else one for given, one in zip(overrides, words, strict=True))
    shared = project.remembered.known(_COMPOSED, folders, name, texts)
    if shared is not None:
        return shared
    found = project.remembered.get(
        _COMPOSED, lambda: _compose(Repository(project, folders), name, overrides), folders, name, words
    )
    if not found.problems:
        project.remembered.put(_COMPOSED, found, folders, name, texts)
    return found


def _chooses(given: GivenOverride, repository: Repository) -> bool:
    """Whether an override chooses an option of a group, and gives no value."""
    value = given.override._value if given.override is not None else {}
    return not isinstance(value, dict) and repository.group_exists(given.key)


def _words(given: GivenOverride) -> tuple[Hashable, ...]:
    """The text of an override and its places; empty if its value is not only this text."""
    text = given.override.input_line if given.override is not None else None
    return (text, given.origin, given.value_origin) if text is not None and given.expr is None else ()


def _compose(repository: Repository, name: str, overrides: Sequence[GivenOverride]) -> Composition:
    found = Composition()
    primary = repository.file(name)
    if primary is None:
        found.broken += [Problem("invalid-config", message, origin) for message, origin in repository.broken.values()]
        return found
    found.parts = (
        _with_options(repository, name, overrides, found)
        or _as_before(repository, name, overrides, found)
        or _defaults(repository, name, primary, overrides, found)
    )
    for config_path, package in found.parts:
        _add(repository, config_path, package, found)
    found.whole &= repository.complete
    _report(repository, found)
    found.problems += [_gap(repository, path, parent, primary) for path, parent in repository.stubs.items()]
    for given in overrides:
        _apply(given, repository, found)
    return found


def _with_options(
    repository: Repository, name: str, overrides: Sequence[GivenOverride], found: Composition
) -> list[tuple[str, str]]:
    """The order of merging with other options of some groups: the order of the defaults, a file of each replaced.

    Nothing where more than that may change: one of the files has a defaults list or another package, an entry depends
    on what is chosen, or something is missing. Hydra's own algorithm takes a hundred times as long.
    """
    options: dict[str, str] = {}
    for given in overrides:
        option = given.override.value() if given.override is not None else None
        if given.sign or given.package is not None or given.expr is not None or not isinstance(option, str):
            return []
        if given.key in options:
            return []
        options[given.key] = option
    plain = compose(repository, name, ()) if options else Composition()
    if not plain.whole or not options.keys() <= plain.choices.keys():
        return []
    parts = list(plain.parts)
    for group, option in options.items():
        before = f"{group}/{plain.choices[group]}"
        old, new = repository.file(before), repository.file(f"{group}/{option}")
        places = [index for index, (path, _) in enumerate(plain.parts) if path == before]
        if old is None or new is None or old.entries or new.entries or old.package != new.package or len(places) != 1:
            return []
        parts[places[0]] = (f"{group}/{option}", parts[places[0]][1])
    if any("${" in str(entry.option) for path, _ in plain.parts for entry in repository.entries(path)):
        return []
    found.choices, found.groups = {**plain.choices, **options}, plain.groups
    found.problems += _unchosen(repository, dict(found.choices))
    return parts


def _add(repository: Repository, config_path: str, package: str, found: Composition) -> None:
    file = repository.file(config_path)
    if file is None:
        return
    table = embedded(file.item, package)
    if table is None:
        found.problems.append(Problem("invalid-config", "a configuration must be a mapping", file.origin))
        return
    clashes: list[Clash] = []
    merge(found.root, table, clashes)
    for key, before, after in clashes:
        here, there = ("list", "mapping") if isinstance(after, Listing) else ("mapping", "list")
        said = f"{key} is a {here} here and a {there} before: Hydra refuses to merge them"
        related = ((before.origin, f"a {there} here"),) if before.origin is not None else ()
        found.problems.append(Problem("invalid-config", said, after.origin or file.origin, related=related))
    if file.path not in found.files:
        found.files.append(file.path)


def _report(repository: Repository, found: Composition) -> None:
    """Problems of the files that were read."""
    for file in repository.files.values():
        found.problems += [Problem("invalid-config", message, origin) for message, origin in file.complaints]
        for note in file.notes:
            severity: ProblemSeverity = "error" if note.kind in ("duplicate-key", "several-documents") else "warning"
            origin = Origin(file.path, note.span, None, (), False)
            found.broken.append(Problem("invalid-config", note.message, origin, severity))
    found.broken += [Problem("invalid-config", message, origin) for message, origin in repository.broken.values()]


def _as_before(
    repository: Repository, name: str, overrides: Sequence[GivenOverride], found: Composition
) -> list[tuple[str, str]]:
    """The order of merging that Hydra's algorithm found for other texts or options with the same defaults lists."""
    before = kept_order(repository, name, overrides) or order_alike(repository, name, overrides)
    if before is None:
        return []
    found.choices, found.groups, found.whole = dict(before.choices), before.groups, True
    return list(before.parts)


# --- the defaults list -----------------------------------------------------------------------------------------------


@contextmanager
def _quiet_hydra() -> Iterator[None]:
    """Hydra with version_base 1.1 (the most lenient), without warnings. Its global state is restored afterwards.

    At every entry of every list, Hydra makes a container of all choices so far, for interpolations to be looked up in.
    It takes most of the time, and almost no list has one.
    """
    from hydra import version
    from hydra._internal import defaults_list as hydra_defaults

    before, create = version.VersionBase.instance().getbase(), hydra_defaults._create_interpolation_map
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        version.setbase("1.1")
        hydra_defaults._create_interpolation_map = partial(_choices_to_look_up, create)
        try:
            yield
        finally:
            hydra_defaults._create_interpolation_map = create
            version.VersionBase.instance().version_base = before


def _choices_to_look_up(
    create: Callable[..., object], overrides: Overrides, entries: list[InputDefault], self_added: bool
) -> object:
    """Hydra's container of all choices where something is interpolated; nothing where nothing is."""
    texts = [*overrides.known_choices.values(), *(getattr(entry, "value", None) for entry in entries)]
    texts += [getattr(entry, "path", None) for entry in entries]
    return create(overrides, entries, self_added) if any("${" in str(text) for text in texts) else None


def _defaults(
    repository: Repository, name: str, primary: ConfigFile, overrides: Sequence[GivenOverride], found: Composition
) -> list[tuple[str, str]]:
    """(configuration, package) in the order of merging."""
    place = primary.defaults_origin
    for _ in range(MAX_GAPS):
        try:
            with _quiet_hydra():
                return _by_hydra(repository, name, overrides, found)
        except _Missing as gap:
            if gap.path in repository.stubs:
                break
            repository.stubs[gap.path] = gap.parent
        except RecursionError:
            found.problems.append(_cycle(repository, name, primary))
            break
        except TooLarge as error:
            found.problems.append(Problem("invalid-config", f"it is not composed: it is {error}", place))
            return [(name, "")]
        except _Refused as error:
            doubt: ProblemSeverity = "error" if repository.complete else "info"
            found.problems.append(Problem("invalid-config", f"Hydra does not compose it: {error}", place, doubt))
            break
    return list(_plainly(repository, name, "", set()))


class _Missing(Exception):
    def __init__(self, path: str, parent: str | None) -> None:
        super().__init__(path)
        self.path, self.parent = path, parent


class _Refused(Exception):
    pass


def _by_hydra(
    repository: Repository, name: str, overrides: Sequence[GivenOverride], found: Composition
) -> list[tuple[str, str]]:
    from hydra._internal import defaults_list as hydra_defaults
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    parsed = [given.override for given in overrides if given.override is not None]
    try:
        state = hydra_defaults.Overrides(repo=repository, overrides_list=parsed)
        results = _expanded(repository, name, state, repository.has_hydra)
        if not repository.has_hydra and _names_hydra(state):
            state = hydra_defaults.Overrides(repo=repository, overrides_list=parsed)
            results = _expanded(repository, name, state, True)
    except MissingConfigException as error:
        parent = re.match(r"In '([^']+)'", str(error))
        raise _Missing(str(error.missing_cfg_file), parent.group(1) if parent else None) from None
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError, TypeError) as error:
        raise _Refused(_line(error)) from None
    for key, override in state.override_metadata.items():
        override.used |= key.startswith("hydra/")  # a plugin registers its groups when it is imported
    for check in (state.ensure_overrides_used, state.ensure_deletions_used) if repository.complete else ():
        try:
            check()
        except HydraException as error:
            found.problems.append(_unused(error, overrides, repository, name))
    found.whole = True
    known = {**{f"hydra/{group}": option for group, option in HYDRA_DEFAULTS}, **state.known_choices}
    found.choices.update({key: str(value) for key, value in known.items() if value is not None})
    found.groups = frozenset(known)
    found.problems += _unchosen(repository, state.known_choices)
    parts = [(str(result.config_path), result.package or "") for result in results]
    if not found.problems:
        keep_order(repository, name, overrides, parts, found.choices, found.groups)
    return parts


def _expanded(repository: Repository, name: str, state: Overrides, with_hydra: bool) -> list[ResultDefault]:
    """The defaults list, with Hydra's own groups or without them."""
    from hydra._internal import defaults_list as hydra_defaults

    results: list[ResultDefault]
    results, _ = hydra_defaults._create_defaults_list(
        repository, name, state, prepend_hydra=with_hydra, skip_missing=True
    )
    return results


def _names_hydra(state: Overrides) -> bool:
    """Whether an option of Hydra's own groups is chosen. Else these groups add nothing, and are half of the work."""
    return any(key.startswith("hydra/") for key in (*state.override_metadata, *state.known_choices, *state.deletions))


def _line(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())[:300]


def _unused(error: Exception, overrides: Sequence[GivenOverride], repository: Repository, name: str) -> Problem:
    """The problem of an override of a group that is not in the defaults list, at the place of the override."""
    text = _line(error)
    match = re.search(r"'([^']+)'", text.partition(": Could")[2] or text)
    key = match.group(1).lstrip("+~") if match else ""
    for given in overrides:
        if given.origin is not None and key.split("=")[0] in (given.key, f"{given.key}@{given.package}"):
            return Problem("invalid-config", text, given.origin)
    for file in repository.files.values():
        for entry in file.entries:
            if entry.override and entry.group is not None and key.split("@")[0].endswith(entry.group.lstrip("/")):
                return Problem("invalid-config", text, entry.origin)
    primary = repository.files[name.removesuffix(".yaml")]
    return Problem("invalid-config", text, primary.defaults_origin)


def _unchosen(repository: Repository, choices: dict[str, object]) -> Iterator[Problem]:
    """Groups whose option is `???` and was not chosen."""
    for group, option in choices.items():
        if option != "???":
            continue
        options = repository.get_group_options(group.split("@")[0])
        said = f"{group} has to be chosen on the command line" + (f" ({', '.join(options[:8])})" if options else "")
        for file in repository.files.values():
            for entry in file.entries:
                if entry.option == "???" and entry.group is not None and group.split("@")[0].endswith(entry.group):
                    yield Problem("invalid-config", said, entry.origin, "info")
                    return


def _gap(repository: Repository, path: str, above: str | None, primary: ConfigFile) -> Problem:
    """The problem of a configuration that a defaults list names but no file has. It is left out."""
    group, _, option = path.rpartition("/")
    options = repository.get_group_options(group) if group else []
    guess = nearest(option, options)
    said = f"{path}.yaml is not among the project's files, so what it sets is unknown"
    said += f"; did you mean {guess!r}?" if guess else ""
    parent = repository.files.get(above or "", primary)
    for entry in parent.entries:
        if _names(entry, path):
            return Problem("invalid-config", said, entry.origin, "info")
    return Problem("invalid-config", said, parent.defaults_origin, "info")


def _names(entry: Entry, path: str) -> bool:
    options = entry.option if isinstance(entry.option, tuple) else (entry.option,)
    last = path.rpartition("/")[2]
    return any(str(option).rpartition("/")[2] == last for option in options)


def _cycle(repository: Repository, name: str, primary: ConfigFile) -> Problem:
    """The problem of defaults lists that form a cycle, at the entry that closes it."""
    found = _circle(repository, name.removesuffix(".yaml"), ())
    if found is None:
        place = primary.defaults_origin
        return Problem("invalid-config", "its defaults lists are nested too deeply to be composed", place)
    chain, entry = found
    return Problem("invalid-config", "the defaults lists form a cycle: " + " -> ".join(chain), entry.origin)


def _circle(repository: Repository, name: str, above: tuple[str, ...]) -> tuple[tuple[str, ...], Entry] | None:
    trail = (*above, name)
    file = repository.file(name)
    if file is None or len(trail) > 100:
        return None
    for entry in file.entries:
        for child in _children(entry, name):
            if child in trail:
                return (*trail[trail.index(child) :], child), entry
            deeper = _circle(repository, child, trail)
            if deeper is not None:
                return deeper
    return None


def _children(entry: Entry, parent: str) -> Iterator[str]:
    """The configurations that an entry of a file names. Names with interpolations are left out."""
    if entry.override or entry.option in (None, "_self_", "???"):
        return
    folder = parent.rpartition("/")[0]
    for option in entry.option if isinstance(entry.option, tuple) else (str(entry.option),):
        path = f"{entry.group}/{option}" if entry.group else option
        if "${" not in path:
            yield path[1:] if path.startswith("/") else f"{folder}/{path}" if folder else path


def _plainly(repository: Repository, name: str, package: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """The order of merging if Hydra's algorithm fails: entry by entry, without cycles and missing files."""
    name = name.removesuffix(".yaml")
    file = repository.file(name)
    if file is None or name in seen or len(seen) > MAX_GAPS:
        return
    seen.add(name)
    own = False
    for entry in file.entries:
        if entry.option == "_self_":
            own = True
            yield name, package
        for child in _children(entry, name):
            inner_file = repository.file(child)
            if inner_file is None:
                continue
            header = inner_file.package
            group = child.rpartition("/")[0].replace("/", ".")
            inner = entry.package if entry.package is not None else header if header is not None else group
            yield from _plainly(repository, child, "" if inner == "_global_" else inner.removeprefix("_global_."), seen)
    if not own:
        yield name, package


# --- overrides of values ---------------------------------------------------------------------------------------------


def _apply(given: GivenOverride, repository: Repository, found: Composition) -> None:
    """Applies one override of a value. (The defaults list has the overrides of groups.)"""
    override = given.override
    is_value = override is None or isinstance(override._value, dict)
    is_group = repository.group_exists(given.key)
    if not is_value and is_group:
        return
    path = split_key(given.key)
    if not path or given.sweeps:
        return
    if given.sign == "~":
        if not remove(found.root, path) and given.origin is not None:
            found.problems.append(Problem("invalid-config", f"there is no {given.key} to delete", given.origin))
        return
    old = select(found.root, path)
    whole = repository.complete and "???" not in found.choices.values()
    open_ = is_group or _elsewhere(given, old, repository, found)  # an option of a group that is not known: `model=$1`
    if path[0] != "hydra" and whole and not open_:  # a missing part may have it
        found.problems += _objections(given, old, found.root)
    item: Item
    if given.expr is not None:
        value = given.expr.value if isinstance(given.expr, Const) else None
        item = Leaf(value, given.value_origin, given.expr, COMMAND_LINE)
    elif override is not None:
        item = from_value(plain(override._value), given.value_origin, COMMAND_LINE)
    else:
        item = Leaf(Unknown("this override is not read", Cause.not_read), given.origin, None, COMMAND_LINE)
    assign(found.root, path, item)


def _elsewhere(given: GivenOverride, old: Item | None, repository: Repository, found: Composition) -> bool:
    """Whether a file sweeps over a key that another option sets. The options that its launch chooses are not known."""
    by_file = given.origin is not None and given.origin.path.endswith(".yaml")
    return old is None and by_file and given.key in repository.keys_of_options(found.groups)


def _objections(given: GivenOverride, old: Item | None, root: ConfigTable) -> Iterator[Problem]:
    """Overrides at which Hydra would stop: a new key without `+`, or `+` for an existing key. A list or a mapping
    behind `+` is merged with what is there (config_loader_impl.py)."""
    if given.origin is None:
        return
    if old is None and given.sign == "":
        known = [".".join(path) for path, one in leaves(root) if path[0] != "hydra" and one.rank < COMMAND_LINE]
        guess = nearest(given.key, known)
        said = f"{given.key} is not in the configuration; Hydra stops at it (+{given.key}=... adds a key)"
        yield Problem("invalid-config", said + (f"; did you mean {guess!r}?" if guess else ""), given.origin)
    elif given.sign == "+" and _occupied(old) and not _merges(given):
        said = f"{given.key} is in the configuration already; Hydra stops at it (++ adds or overrides)"
        yield Problem("invalid-config", said, given.origin)


def _merges(given: GivenOverride) -> bool:
    """Whether the value is a list or a mapping, or may be one."""
    read = plain(given.override._value) if given.override is not None else getattr(given.expr, "value", None)
    return not isinstance(read, (bool, int, float, str))


def _occupied(old: Item | None) -> bool:
    """Whether `+key=` would replace a value. Null and tables may be added to."""
    return old is not None and not isinstance(old, ConfigTable) and not (isinstance(old, Leaf) and old.value is None)
