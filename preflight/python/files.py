"""Paths that a program makes, and YAML and JSON files that it loads; values of files have the place in their file."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from fnmatch import fnmatch

from preflight.python.evaluator import Evaluator
from preflight.python.known_kinds import of_file_names
from preflight.python.objects import (
    Abstract,
    Attribute,
    CallRecord,
    Config,
    Container,
    Instance,
    Key,
    is_expr,
    to_expr,
)
from preflight.vocabulary.budgets import LOADED_CHARACTERS, LOADED_DEPTH, LOADED_NODES
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Origin, Ref, Route, Scalar, Span, unknown

PATH = "pathlib.Path"

# Limits of a YAML or JSON file. Configurations that people write are far smaller.


def make_path(path: object, record: CallRecord | None = None) -> Instance:
    """A pathlib.Path; `path` is its text where that is known."""
    text = posixpath.normpath(path) if isinstance(path, str) and path else path
    return Instance(PATH, record=record, state={"path": text})


def path_text(ev: Evaluator, value: Abstract | None) -> str | None:
    """The text of a path object or string; None if it is not known."""
    if isinstance(value, Instance):
        found = value.state.get("path")
        return found if isinstance(found, str) else None
    if value is None:
        return None
    expr = Ref(value.prefix) if isinstance(value, Config) else to_expr(value) if is_expr(value) else None
    found = ev.value_of(expr) if expr is not None else None
    return found if isinstance(found, str) else None


def join_path(ev: Evaluator, left: Instance, right: Abstract) -> Abstract:
    """`path / name`."""
    one, other = path_text(ev, left), path_text(ev, right)
    return make_path(posixpath.join(one, other) if one is not None and other is not None else None)


def path_parent(path: Instance) -> Instance:
    """`path.parent`."""
    text = path.state.get("path")
    return make_path((posixpath.dirname(text) or ".") if isinstance(text, str) else None)


def find_file(ev: Evaluator, path: str, record: CallRecord | None = None, folder: bool = False) -> str | None:
    """A path named in a program, from the project's root: where the program starts, else there or in its own folder.
    `folder`: of a directory.

    A program that nobody is seen to start is started in its own folder if the file lies there.
    """
    own = [posixpath.dirname(p) or "." for p in (*ev.reads[:1], *([record.path] if record else []))]
    bases = [*own[:1], ".", *own] if ev.directory is None else [ev.directory, ".", *own]
    for base in dict.fromkeys(bases):
        found = posixpath.normpath(posixpath.join(base, path))
        if not found.startswith(("..", "/")) and (ev.project.is_dir(found) if folder else ev.project.exists(found)):
            return found
    return None


_LOOKED_AT = 16
"""Files of a folder that are read, spread over all of it."""


def names_given(value: Abstract | None) -> Instance | None:
    """The list of names that a value is an item of: `os.listdir(folder)` of `sorted(os.listdir(folder))[index]`."""
    while isinstance(value, Attribute) and (value.name.startswith("[") or value.name in ("path", "name")):
        value = value.receiver
    return value if isinstance(value, Instance) and of_file_names(value) else None


FILTERED = "filtered"
"""The key of a list of names that has only some of those of its folder."""


def some_files(ev: Evaluator, value: Abstract | None) -> Sequence[str]:
    """A few of the files that an item of a list of names may be, from the project's root; none if that is not known."""
    listed = names_given(value) if isinstance(value, Attribute) else None
    names = _listed(ev, listed) if listed is not None else None
    return names[:: max(1, len(names) // _LOOKED_AT)] if names else ()


def number_of_files(ev: Evaluator, value: Abstract) -> int | None:
    """How many names a list of a folder's has; None where the folder is not there, or a filter leaves some out."""
    listed = names_given(value) if isinstance(value, Instance) else None
    names = _listed(ev, listed) if listed is not None and FILTERED not in listed.state else None
    return len(names) if names else None


def _listed(ev: Evaluator, listed: Instance) -> list[str] | None:
    record = listed.record
    if record is None or record.method in ("rglob", "scandir"):
        return None
    pattern, folder = "*", path_text(ev, record.receiver_object)
    if record.method == "listdir":
        folder = path_text(ev, record.object("path", 0))
    elif record.method != "iterdir":
        given = path_text(ev, record.object("pattern", 0) or record.object("pathname", 0))
        if (
            given is None
            or "**" in given
            or "*" in posixpath.dirname(given)
            or (folder is None and record.receiver_object)
        ):
            return None
        pattern = posixpath.basename(given)
        folder = posixpath.join(folder or "", posixpath.dirname(given)) or "."
    found = find_file(ev, folder, record, folder=True) if folder is not None else None
    if found is None:
        return None
    return [posixpath.join(found, name) for name in ev.project.listdir(found) if fnmatch(name, pattern)]


def read_yaml(ev: Evaluator, source: Abstract, kind: str = "dict", record: CallRecord | None = None) -> Abstract | None:
    """The values of a YAML or JSON file of the project, as `load_data` gives them; None for an unknown path."""
    text = path_text(ev, source)
    path = find_file(ev, text, record) if text is not None else None
    if path is None:
        return None
    ev.texts.add(path)
    found = load_data(ev.project, path, kind)
    if found is not None and path not in ev.reads:
        ev.reads.append(path)
    return found


def load_data(project: Project, path: str, kind: str = "dict") -> Abstract | None:
    """The file's values as `yaml.safe_load` gives them (JSON is YAML); mappings are containers of `kind`.

    None where the file cannot be read or parsed, or is larger than a configuration is.
    """
    import yaml

    try:
        source = project.source(path)
    except UnreadableFile:
        return None
    if len(source.text) > LOADED_CHARACTERS:
        return None
    loader_type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(source.text, Loader=loader_type)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if root is None:
        return Const(None)
    return _Builder(source, kind).build(root, (), 0)


class _Builder:
    """Builds abstract values from the nodes of a YAML file."""

    def __init__(self, source: Source, kind: str) -> None:
        self.source, self.kind = source, kind
        self.nodes_left: int = LOADED_NODES

    def build(self, node: object, route: Route, depth: int) -> Abstract:
        import yaml

        self.nodes_left -= 1
        origin = self._origin(node, route)
        if depth > LOADED_DEPTH or self.nodes_left < 0:  # nested aliases grow without end
            return unknown(
                f"the file is {(LOADED_DEPTH if depth > LOADED_DEPTH else LOADED_NODES).over}", origin, Cause.budget
            )
        if isinstance(node, yaml.MappingNode):
            items: dict[Key, Abstract] = {}
            for key_node, value_node in node.value:
                if isinstance(key_node, yaml.ScalarNode):
                    key = self._scalar(key_node)
                    if key_node.tag == "tag:yaml.org,2002:merge":
                        merged = self.build(value_node, route, depth + 1)
                        if isinstance(merged, Container):
                            items = {**merged.items, **items}
                        continue
                    items[key] = self.build(value_node, (*route, key if isinstance(key, int) else str(key)), depth + 1)
            return Container(self.kind, items, origin)
        if isinstance(node, yaml.SequenceNode):
            listed: dict[Key, Abstract] = {
                i: self.build(item, (*route, i), depth + 1) for i, item in enumerate(node.value)
            }
            return Container("list", listed, origin)
        return Const(self._scalar(node), origin)

    def _scalar(self, node: object) -> Scalar:
        import yaml

        if not isinstance(node, yaml.ScalarNode):
            return None
        try:
            value = (
                yaml.SafeLoader("").construct_object(node) if node.tag.startswith("tag:yaml.org,2002:") else node.value
            )
        except (yaml.YAMLError, ValueError):
            return str(node.value)
        return value if isinstance(value, (str, int, float, bool, type(None))) else str(node.value)

    def _origin(self, node: object, route: Route) -> Origin:
        import yaml

        if not isinstance(node, yaml.Node):
            return Origin(self.source.path, Span(0, 0), route)
        start, end = node.start_mark.index, node.end_mark.index
        return Origin(self.source.path, Span(start, end), route)
