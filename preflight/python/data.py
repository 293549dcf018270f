"""YAML and JSON files that a program loads by a literal path: containers whose values keep their places."""

from __future__ import annotations

from preflight.python.objects import Abstract, Container, Key
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Origin, Route, Scalar, Span, unknown

MAX_NODES = 20_000
MAX_DEPTH = 60
MAX_CHARACTERS = 2**20


def load_data(project: Project, path: str, kind: str = "dict") -> Abstract | None:
    """The file's values as `yaml.safe_load` gives them (JSON is YAML); mappings are containers of `kind`.

    None where the file cannot be read or parsed, or is larger than a configuration is.
    """
    import yaml

    try:
        source = project.source(path)
    except UnreadableFile:
        return None
    if len(source.text) > MAX_CHARACTERS:
        return None
    loader_type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(source.text, Loader=loader_type)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if root is None:
        return Const(None)
    return _Builder(source, kind, loader_type("")).build(root, (), 0)


class _Builder:
    def __init__(self, source: Source, kind: str, constructor: object) -> None:
        self.source, self.kind, self.constructor, self.left = source, kind, constructor, MAX_NODES

    def build(self, node: object, route: Route, depth: int) -> Abstract:
        import yaml

        self.left -= 1
        origin = self._origin(node, route)
        if depth > MAX_DEPTH or self.left < 0:  # nested aliases grow without end
            return unknown("the file is too large", origin, Cause.budget)
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
