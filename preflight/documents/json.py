"""Parser of JSON with positions: strings are read by the standard library. Comments are errors, as JSON has none."""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder

from preflight.documents.document import Note, TreeDocument
from preflight.documents.tree import TreeItem, TreeNode
from preflight.vocabulary.budgets import TREE_DEPTH, TREE_NODES
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Span

_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_]+")
_WORDS: dict[str, bool | float | None] = {
    "true": True, "false": False, "null": None,
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),  # json.loads takes these too
}  # fmt: skip


class JsonDocument(TreeDocument, frozen=True):
    """A parsed JSON file; see TreeDocument for its methods."""

    def reparse(self, source: Source) -> JsonDocument:
        return parse_json(source)


def parse_json(source: Source) -> JsonDocument:
    """A JSON file as `json.loads` reads it. Raises DocumentError with the place of the error."""
    scanner = _Scanner(source)
    start = scanner.space(0)
    root = scanner.value(start, 1)
    end = scanner.space(root.end)
    if end != len(source.text):
        raise scanner.error("there is more text after the value", end)
    return JsonDocument(source, root, "json", "1.2", tuple(scanner.notes))


class _Scanner:
    def __init__(self, source: Source) -> None:
        self.source, self.text = source, source.text
        self.notes: list[Note] = []
        self.count = 0

    def error(self, message: str, at: int, mistake: bool = True) -> DocumentError:
        return DocumentError(message, Span(min(at, len(self.text)), min(at + 1, len(self.text))), mistake)

    def space(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        assert match is not None
        return match.end()

    def value(self, at: int, depth: int) -> TreeNode:
        self.count += 1
        if depth > TREE_DEPTH:
            raise self.error(f"it is nested more than {TREE_DEPTH} levels deep", at, mistake=False)
        if self.count > TREE_NODES:
            raise self.error(f"it holds more than {TREE_NODES:,} values", at, mistake=False)
        char = self.text[at : at + 1]
        if char == "{":
            return self.collection(at, depth, "map", "}")
        if char == "[":
            return self.collection(at, depth, "list", "]")
        return self.string(at) if char == '"' else self.word(at)

    def string(self, at: int) -> TreeNode:
        try:
            value, end = _DECODER.raw_decode(self.text, at)
        except JSONDecodeError as error:
            raise self.error(error.msg, error.pos) from None
        return TreeNode("scalar", at, end, at, '"', value, value)

    def word(self, at: int) -> TreeNode:
        match = _NUMBER.match(self.text, at)
        if match is not None:
            text = match.group()
            try:
                number = float(text) if match[1] or match[2] else int(text)
            except ValueError:
                raise self.error("the number is too long", at) from None
            return TreeNode("scalar", at, match.end(), at, "", number, text)
        sign = self.text.startswith("-", at)
        match = _WORD.match(self.text, at + sign)
        text = self.text[at : match.end()] if match else ""
        if text not in _WORDS:
            found = repr(text or self.text[at : at + 1]) if at < len(self.text) else "the end of the file"
            raise self.error(f"a value was expected, found {found}", at)
        return TreeNode("scalar", at, at + len(text), at, "", _WORDS[text], text)

    def collection(self, at: int, depth: int, kind: str, closing: str) -> TreeNode:
        node = TreeNode("map" if kind == "map" else "list", at, at, at, "flow")
        seen: dict[object, TreeNode] = {}
        here = self.space(at + 1)
        if self.text[here : here + 1] == closing:
            node.end = here + 1
            return node
        while True:
            item, end = self.item(here, depth, kind)
            node.items.append(item)
            if item.key is not None:
                self.check_key(item.key, seen)
            here = self.space(end)
            char = self.text[here : here + 1]
            if char == closing:
                node.end = here + 1
                return node
            if char != ",":
                raise self.error(f"',' or '{closing}' was expected", here)
            here = self.space(here + 1)

    def item(self, at: int, depth: int, kind: str) -> tuple[TreeItem, int]:
        key = None
        if kind == "map":
            if self.text[at : at + 1] != '"':
                raise self.error("a key in double quotes was expected", at)
            key = self.string(at)
            colon = self.space(key.end)
            if self.text[colon : colon + 1] != ":":
                raise self.error("':' was expected", colon)
            at = self.space(colon + 1)
        value = self.value(at, depth + 1)
        return TreeItem(value, key), value.end

    def check_key(self, key: TreeNode, seen: dict[object, TreeNode]) -> None:
        first = seen.setdefault(key.value, key)
        if first is not key:
            line = self.source.line_column(first.start)[0]
            message = f"the key {key.value!r} is given twice; the first is on line {line}"
            self.notes.append(Note("duplicate-key", message, key.span, first.span))
