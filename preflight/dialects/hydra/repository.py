"""Configuration files of one Hydra application, in the form that hydra-core's defaults-list algorithm needs.

Files come from the project (with unsaved texts) and not from Hydra's loaders, so nothing is imported and nothing
outside the root is read. `hydra/...` groups of plugins are empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from preflight.dialects.hydra.programs import python_files
from preflight.dialects.hydra.tree import ConfigFile, Entry, embedded, from_document, keys
from preflight.documents.document import TreeDocument
from preflight.documents.tree import TreeNode, entries
from preflight.documents.yaml import YamlDocument, yaml_of
from preflight.vocabulary.budgets import COMPOSED_FILES, TREE_FILES
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile, without_dots
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Origin, Span

if TYPE_CHECKING:
    from hydra.core.default_element import InputDefault


MAX_OPTIONS = 2000
"""Options of one group whose keys are looked at, before a key counts as one that none has."""

HYDRA_DEFAULTS = (
    ("output", "default"), ("launcher", "basic"), ("sweeper", "basic"), ("help", "default"), ("hydra_help", "default"),
    ("hydra_logging", "default"), ("job_logging", "default"), ("callbacks", None), ("env", "default"),
)  # fmt: skip
"""Groups of Hydra's own configuration (hydra.conf.HydraConf.defaults, 1.3)."""

_STORED: CacheKind[Mapping[str, ConfigFile]] = CacheKind("configurations that programs register", of_many=True)
_OPTION_KEYS: CacheKind[frozenset[str]] = CacheKind("keys that options of an application set", of_many=True)
_OPTIONS: CacheKind[Sequence[str]] = CacheKind("options of a group of an application", of_many=True)
_FOLDERS: CacheKind[bool] = CacheKind("whether an application has a group", of_many=True)
_FILES: CacheKind[ConfigFile] = CacheKind("a configuration's entries and values")
_HEADER = re.compile(r"\s*#\s*@\s*package\s+(\S+)\s*")


class TooLarge(Exception):
    """The defaults lists grow without limit."""


class Loaded(Struct, frozen=True):
    """A configuration as Hydra's algorithm needs it (`hydra.plugins.config_source.ConfigResult`)."""

    header: dict[str, str | None]
    defaults_list: list[InputDefault] | None
    config: None = None


class Repository(Struct):
    """Answers `load_config`, `group_exists`, `config_exists`, `get_group_options` for folders of a project."""

    project: Project
    folders: tuple[str, ...]
    stubs: dict[str, str | None] = field(default_factory=dict)
    """Missing configurations, which count as empty -> the configuration whose defaults list names them."""
    files: dict[str, ConfigFile] = field(default_factory=dict)
    """The files read so far, by configuration path ("model/small")."""
    broken: dict[str, tuple[str, Origin]] = field(default_factory=dict)
    loads: int = 0

    def file(self, config_path: str) -> ConfigFile | None:
        """The file of a configuration; None if it does not exist or cannot be read (then it is in `broken`)."""
        name = config_path.removesuffix(".yaml")
        if name not in self.files and name not in self.broken:
            for folder in self.folders:
                path = _under(folder, f"{name}.yaml")
                if path is not None and self.project.exists(path):
                    self._read(name, path)
                    break
            else:
                if not name.startswith("hydra/"):
                    self._registered(name)
        return self.files.get(name)

    def _registered(self, name: str) -> None:
        """A configuration without a file: the program may register a class by that name."""
        found = self.registered.get(name)
        if found is not None:
            self.files[name] = found

    @property
    def registered(self) -> Mapping[str, ConfigFile]:
        """The contents of the program's ConfigStore, looked up when a file is missing."""
        return self.project.remembered.get(_STORED, self._in_store, self.folders[0])

    def _in_store(self) -> Mapping[str, ConfigFile]:
        from preflight.dialects.hydra.structured import stored

        return stored(python_files(self.project, self.folders[0]), self.project)

    def _read(self, name: str, path: str) -> None:
        try:
            self.files[name] = self.project.remembered.get(_FILES, lambda: _config_file(path, self.project), path)
        except (DocumentError, UnreadableFile) as error:
            span = error.span if isinstance(error, DocumentError) else Span(0, 0)
            self.broken[name] = (str(error), Origin(path, span, None, (), False))

    @property
    def has_hydra(self) -> bool:
        """Whether the project has options of Hydra's own groups."""
        return self._is_folder("hydra")

    @property
    def complete(self) -> bool:
        """Whether every file that the defaults lists name was read. A missing one may add groups and keys."""
        return not self.stubs and not self.broken

    def keys_of_options(self, groups: frozenset[str]) -> frozenset[str]:
        """The keys that any option of the groups would set."""
        return self.project.remembered.get(
            _OPTION_KEYS, lambda: frozenset(self._keys_of_options(groups)), self.folders, groups
        )

    def _keys_of_options(self, groups: frozenset[str]) -> Iterator[str]:
        every = Repository(self.project, self.folders)
        for chosen in sorted(groups):
            group, _, package = chosen.partition("@")
            for option in every.options_below(group) if not group.startswith("hydra/") else ():
                file = every.file(option)
                if file is None:
                    continue
                at = package or (option.rpartition("/")[0].replace("/", ".") if file.package is None else file.package)
                table = embedded(file.item, "" if at == "_global_" else at.removeprefix("_global_."))
                yield from keys(table) if table is not None else ()

    def options_below(self, group: str) -> Iterator[str]:
        """Every configuration in the folders of a group, up to `MAX_OPTIONS`."""
        queue, found = [group], 0
        while queue and found < MAX_OPTIONS:
            inner = queue.pop()
            for option in self.get_group_options(inner):
                found += 1
                yield f"{inner}/{option}"
            for path in (path for folder in self.folders if (path := _under(folder, inner)) is not None):
                names = self.project.listdir(path)
                queue += [f"{inner}/{name}" for name in names if self.project.is_dir(f"{path}/{name}")]

    def entries(self, config_path: str) -> tuple[Entry, ...]:
        """The defaults list of a configuration; none where there is no such file."""
        found = self.file(config_path)
        return found.entries if found is not None else ()

    # --- the interface of hydra._internal.config_repository.IConfigRepository, as far as the defaults list needs it

    def load_config(self, config_path: str) -> Loaded | None:
        self.loads += 1
        spent = self.project.spent[TREE_FILES.of] = self.project.spent.get(TREE_FILES.of, 0) + 1
        if self.loads > COMPOSED_FILES or spent > TREE_FILES:
            raise TooLarge((COMPOSED_FILES if self.loads > COMPOSED_FILES else TREE_FILES).over)
        if config_path == "hydra/config":
            return Loaded({"package": "hydra"}, [_group(name, option) for name, option in HYDRA_DEFAULTS])
        found = self.file(config_path)
        if found is not None:
            return Loaded({"package": found.package}, [_element(entry) for entry in found.entries])
        if config_path.startswith("hydra/") or config_path in self.stubs or config_path in self.broken:
            return Loaded({"package": None}, None)
        return None

    def group_exists(self, config_path: str) -> bool:
        if config_path.startswith("hydra/"):
            return config_path.split("/", 1)[1] in dict(HYDRA_DEFAULTS) or self._is_folder(config_path)
        return self._is_folder(config_path)

    def config_exists(self, config_path: str) -> bool:
        return self.file(config_path) is not None or config_path == "hydra/config"

    def get_group_options(self, group_name: str, results_filter: object = None) -> Sequence[str]:
        """The options of a group, in order. Every option of a group is read with it, so it is listed once."""
        return self.project.remembered.get(_OPTIONS, lambda: self._options(group_name), self.folders, group_name)

    def _options(self, group_name: str) -> Sequence[str]:
        options: set[str] = set()
        for folder in self.folders:
            path = _under(folder, group_name)
            names = self.project.listdir(path) if path is not None else []
            options |= {name[:-5] for name in names if name.endswith(".yaml")}
        options |= {name.rpartition("/")[2] for name in self.registered if name.rpartition("/")[0] == group_name}
        return tuple(sorted(options))

    def get_sources(self) -> list[object]:
        return []

    def _is_folder(self, group: str) -> bool:
        return self.project.remembered.get(_FOLDERS, lambda: self._has_folder(group), self.folders, group)

    def _has_folder(self, group: str) -> bool:
        paths = [_under(folder, group) for folder in self.folders]
        if any(path is not None and self.project.is_dir(path) for path in paths):
            return True
        return "." not in group and any(name.startswith(f"{group}/") for name in self.registered)


def parsed(path: str, project: Project) -> YamlDocument:
    """A Hydra file as OmegaConf reads it. Raises DocumentError and UnreadableFile."""
    return yaml_of(project.source(path), project, "omegaconf")


def _config_file(path: str, project: Project) -> ConfigFile:
    """A file with its defaults list and values. Raises DocumentError and UnreadableFile."""
    document = parsed(path, project)
    complaints: list[tuple[str, Origin]] = []
    found = tuple(read_entries(document, complaints))
    whole = Origin(path, document.span(), (), (), False)
    defaults = document.key_origin(("defaults",)) if document.has(("defaults",)) else whole
    header = package_header(document.source.text)
    return ConfigFile(
        path, from_document(document), found, header, tuple(complaints), document.problems, whole, defaults
    )


def package_header(text: str) -> str | None:
    """The package in a `# @package NAME` header. Only comment lines with `@` may precede the header."""
    for line in text.splitlines():
        if not line.strip():
            continue
        if not re.match(r"\s*#\s*@", line):
            return None
        match = _HEADER.fullmatch(line)
        if match is not None:
            return match.group(1)
    return None


def read_entries(document: TreeDocument, complaints: list[tuple[str, Origin]]) -> Iterator[Entry]:
    """The items of a file's defaults list. Invalid items are added to `complaints`."""
    if not document.has(("defaults",)):
        return
    node = document.find(("defaults",)).node
    if node.kind != "list":
        complaints.append(("`defaults` is not a list", document.origin(("defaults",))))
        return
    for index, item in enumerate(node.items):
        origin = document.origin(("defaults", index))
        entry = _entry(item.value, origin)
        if isinstance(entry, str):
            complaints.append((entry, origin))
        else:
            yield entry


def _entry(node: TreeNode, origin: Origin) -> Entry | str:
    """One item, or why it is invalid (as hydra._internal.config_repository checks it)."""
    if node.kind == "scalar":
        if not isinstance(node.value, str):
            return f"{node.text!r} is not an item of a defaults list"
        path, _, package = node.value.partition("@")
        return Entry(path, origin, None, package or None) if not _calls(path) else _not_read(path)
    pairs = list(entries(node)) if node.kind == "map" else []
    if len(pairs) != 1:
        return "an item of a defaults list must be one group with its option"
    key, item, _ = pairs[0]
    *keywords, group = key.split(" ") if " " in key else [key]
    group, _, package = group.partition("@")
    value = item.value
    at = Origin(origin.path, value.span, (*(origin.route or ()), key), origin.via, origin.editable)
    option: str | tuple[str, ...] | None
    if value.kind == "list":
        if not all(isinstance(inner.value.value, str) for inner in value.items):
            return f"{group}: the options of a group must be names"
        option = tuple(str(inner.value.value) for inner in value.items)
    elif value.kind == "scalar" and (value.value is None or isinstance(value.value, str)):
        option = value.value
    else:
        return f"{group}: the option of a group must be a name, a list of names, or null"
    if isinstance(option, str) and _calls(option):
        return _not_read(option)
    # a rename, `group@old:new`, is Hydra 1.0's; the first part counts
    package = package.partition(":")[0]
    return Entry(option, at, group, package or None, "optional" in keywords, "override" in keywords)


def _calls(text: str) -> bool:
    """Whether an interpolation calls a resolver, which would run when Hydra resolves it."""
    return "${" in text and ":" in text


def _not_read(text: str) -> str:
    return f"a resolver computes the option {text}, so it is unknown"


def _group(name: str, option: str | None) -> InputDefault:
    from hydra.core.default_element import GroupDefault

    return GroupDefault(group=name, value=option)


def _element(entry: Entry) -> InputDefault:
    from hydra.core.default_element import ConfigDefault, GroupDefault

    if entry.group is None:
        return ConfigDefault(path=str(entry.option), package=entry.package if entry.option != "_self_" else None)
    option = list(entry.option) if isinstance(entry.option, tuple) else entry.option
    return GroupDefault(
        group=entry.group, value=option, package=entry.package, optional=entry.optional, override=entry.override
    )


def _under(folder: str, name: str) -> str | None:
    """`folder/name` as a path of the project; None if it is outside."""
    return None if folder.startswith("/") or name.startswith("/") else without_dots(f"{folder}/{name}")
