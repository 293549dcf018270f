"""The second parser's proof of an edit: what it refuses, then what it lets pass, then documents made at random."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from preflight.documents import tree_edits
from preflight.documents.yaml import YamlDocument, parse_yaml
from preflight.fixes.yaml_round_trip import ReadAs, Unproved, prove
from preflight.vocabulary.budgets import ROUND_TRIP_CHARACTERS
from preflight.vocabulary.text import CannotEdit, DocumentError, Edit, Source, splice
from preflight.vocabulary.values import Span


def edit(text: str, old: str, new: str) -> Edit:
    """The edit of the only place where `old` stands."""
    assert text.count(old) == 1, old
    start = text.index(old)
    return Edit("job.yaml", Span(start, start + len(old)), new)


def proved(text: str, *changes: tuple[str, str], read_as: ReadAs = "1.1") -> None:
    prove(Source("job.yaml", text), [edit(text, old, new) for old, new in changes], read_as)


REFUSED = [
    ("the next key becomes part of a scalar", "a: 64\n b\nc: 1\n", "64\n", "|\n  64\n", "does not read|differently"),
    ("a list takes in what follows", "a: [1, 64]\nb: [2]\n", "64]\nb", "64, b", "does not read|differently"),
    ("a sibling becomes a child", "a:\n  b: 64\n  c: 1\n", "64\n", "\n    d: 1\n  e:\n  ", "does not read|differently"),
    ("the document ends early", "a: 64\nb: 1\n", "64", "1\n---\nc: 2", "differently"),
    ("a comment is swallowed", "a: 64 # why\nb: 1\n", "64", "64 #", "comment"),
    ("a comment becomes text", "a: 64 # why\nb: 1\n", "64 ", "64", "comment|differently"),
    ("a comment is cut", "a: 64 # why not\nb: 1\n", "64 # why", "8 #", "comment"),
    ("an anchor's value is edited", "a: &n 64\nb: *n\n", "64", "8", "alias"),
    ("an anchored mapping is edited", "a: &n {x: 64}\nb:\n  <<: *n\n", "64", "8", "alias"),
    ("an anchored mapping gets a key", "a: &n\n  x: 1\nb:\n  <<: *n\n", "x: 1\n", "x: 1\n  y: 2\n", "alias"),
    ("an anchor is named anew", "a: &n 1\nb: 64\nc: *n\n", "64", "&n 8", "alias"),
    ("an anchor is lost", "a: &n 64\nb: *n\n", "&n 64", "8", "does not read|alias"),
    ("a key is given twice", "a: 64\nb: 1\n", "64", "8\nb: 2", "twice"),
    ("a mapping is merged in", "x: &n {b: 2}\na: 64\nb: 1\n", "64", "8\n<<: *n", "an alias"),
    ("a mapping is merged in as text", "a: 64\nb: 1\n", "64", "8\n<<: {b: 2}", "no plain name"),
    ("an alias is written", "x: &n {b: 2}\na: 64\n", "64", "*n", "an alias"),
]  # fmt: skip


@pytest.mark.parametrize(("why", "text", "old", "new", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_touches_more_than_the_edit_is_refused(why: str, text: str, old: str, new: str, said: str) -> None:
    with pytest.raises(Unproved, match=said):
        proved(text, (old, new))


HELD = [
    ("a number", "a: 64  # c\nb: 1\n", ("64", "8")),
    ("a piece of a text", "- 'lr=1,batch=64'\n", ("64", "8")),
    ("the end of a text", "- run --lr 1\n- b\n", ("lr 1", "lr 1 --batch 8")),
    ("one item of a list", "a: [8, 64]  # c\nb: 1\n", (", 64", "")),
    ("one item on its own line", "a:\n  - 8 # x\n  - 64 # y\n# z\nb: 1\n", ("  - 64 # y\n", "")),
    ("the first item of a list in a list", "- - 64\n  - 8\n- 1\n", ("64\n  - ", "")),
    ("an empty value is filled", "a:\nb: 1\n", ("a:", "a: 5")),
    ("a new key", "a: 1 # c\nb: 2\n", ("b: 2", "x: 5\nb: 2")),
    ("a new key at the end", "a:\n  b: 2", ("2", "2\n  c: 3")),
    ("a renamed key", "batch: 1\nb: 2\n", ("batch", "size")),
    ("quotes", "a: \"x\" # '\nb: 'y'\n", ('"x"', "8")),
    ("an alias is replaced", "a: &n 1\nb: *n\nc: *n\n", ("*n\nc", "5\nc")),
    ("beside an anchor", "a: &n 1\nb: 64\nc: *n\n", ("64", "8")),
    ("below a merge key", "x: &n {b: 2}\na:\n  <<: *n\n  c: 64\n", ("64", "8")),
    ("keys that stand twice", "a: 1\na: 64\n", ("64", "8")),
    ("tags", "a: !!int '64'\nb: !foo {c: 64x}\n", ("64x", "8")),
    ("a second document", "a: 1\n---\nb: 64 # c\n...\n", ("64", "8")),
    ("Windows lines", "a: 64 # c\r\nb: |\r\n  x\r\n", ("64", "8")),
    ("beside a block text", "a: |- # c\n  64\n\n# d\nb: 1\n", ("1\n", "2\n")),
    ("beyond the first plane", "a: '🙂' # 🙂\nb: 64\n", ("64", "8")),
]  # fmt: skip


@pytest.mark.parametrize(("why", "text", "change"), HELD, ids=[row[0] for row in HELD])
@pytest.mark.parametrize("read_as", ["1.1", "1.2"])
def test_an_edit_of_its_own_text_alone_is_proved(why: str, text: str, change: tuple[str, str], read_as: ReadAs) -> None:
    proved(text, change, read_as=read_as)


def test_texts_that_two_versions_of_yaml_read_differently_do_not_matter_outside_the_edit() -> None:
    for read_as in ("1.1", "1.2"):
        proved("a: 64\non: off\nb: 010\nc: 1:30\nd: 1e-5\ne: 0o17\nf: 1_000\n", ("64", "8"), read_as=read_as)


def test_several_edits_are_proved_together() -> None:
    proved("a: 64\nb: 1\nc: [1, 2, 3]\n", ("64", "8"), ("b: 1", "b: 100"), ("1, 2, ", ""))


UNREAD = [
    ("a tab before a value", "a:\t64\nb: 1\n", "does not read"),
    ("too deep", "[" * 300 + "64" + "]" * 300, "does not read"),
    ("too long", "a: 64\n" + "# c\n" * (ROUND_TRIP_CHARACTERS // 4), "too long"),
]


@pytest.mark.parametrize(("why", "text", "said"), UNREAD, ids=[row[0] for row in UNREAD])
def test_what_the_second_parser_does_not_read_is_not_proved(why: str, text: str, said: str) -> None:
    with pytest.raises(Unproved, match=said):
        proved(text, ("64", "8"))


def test_aliases_are_not_expanded() -> None:
    lines = ["x0: &x0 [a, a]", *(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 60))]
    proved("\n".join([*lines, "a: 64"]), ("64", "8"))


# --- at random ------------------------------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    ["a", "lr", "1", "64", "1e-5", "010", "on", "~", "1:30", "x y", "'it''s'", '"q # n"', "''", "[]"]
)
_COMMENTS = st.sampled_from(["", "", "  # why", " # a: b", " #"])


@st.composite
def documents(draw: st.DrawFn, depth: int = 0, names: tuple[str, ...] = ()) -> str:
    """Lines of a block mapping with comments, anchors, aliases, quotes, lists, merge keys and block texts."""
    pad, lines = "  " * depth, []
    for number in range(draw(st.integers(1, 4))):
        key, anchor = f"k{number}", f"n{depth}{number}{len(names)}"
        comment = draw(_COMMENTS)
        kind = draw(st.sampled_from(["word", "word", "anchor", "alias", "list", "flow", "map", "text", "merge"]))
        if kind == "alias" and names:
            lines.append(f"{pad}{key}: *{draw(st.sampled_from(names))}{comment}")
        elif kind == "anchor":
            lines.append(f"{pad}{key}: &{anchor} {draw(_WORDS)}{comment}")
            names = (*names, anchor)
        elif kind == "list":
            lines += [f"{pad}{key}:{comment}", *(f"{pad}- {draw(_WORDS)}{draw(_COMMENTS)}" for _ in range(2))]
        elif kind == "flow":
            lines.append(f"{pad}{key}: [{draw(_WORDS)}, {{f: {draw(_WORDS)}}}]{comment}")
        elif kind == "map" and depth < 3:
            lines += [f"{pad}{key}:{comment}", draw(documents(depth + 1, names))]
        elif kind == "text":
            lines += [f"{pad}{key}: {draw(st.sampled_from('|>'))}{comment}", f"{pad}  some\n{pad}  text"]
        elif kind == "merge" and depth < 3:
            lines += [f"{pad}{key}: &{anchor} {{m: 1}}{comment}", f"{pad}m{key}: {{<<: *{anchor}, o: 2}}"]
        else:
            lines.append(f"{pad}{key}: {draw(_WORDS)}{comment}")
        if draw(st.integers(0, 4)) == 0:
            lines.append(f"{pad}# between")
    return "\n".join(lines)


def parsed(text: str) -> YamlDocument:
    try:
        return parse_yaml(Source("job.yaml", text))
    except DocumentError:
        assume(False)
        raise


_SLOW = settings(suppress_health_check=list(HealthCheck), max_examples=80)


@_SLOW
@given(documents(), st.data(), st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False), st.text("ab #:'-")))
def test_a_planned_edit_of_any_scalar_is_proved(text: str, data: st.DataObject, value: int | str | float) -> None:
    document = parsed(text)
    routes = [route for route in document.routes() if document.find(route).node.kind == "scalar"]
    assume(routes)
    route = data.draw(st.sampled_from(routes))
    try:
        planned = tree_edits.replace(document, route, value)
    except CannotEdit:
        return
    prove(document.source, [planned])


_PIECES = st.lists(
    st.sampled_from(
        ["8", " ", "\n", "  ", "#", ":", "'", '"', "&n0 ", "*n000", "- ", ", ", "]", "[", "{", "}", "k1: "]
    ),
    max_size=5,
).map("".join)


@_SLOW
@given(documents(), st.data(), _PIECES)
def test_what_is_proved_leaves_every_other_value_as_it_was(text: str, data: st.DataObject, new: str) -> None:
    """PyYAML is the judge here: whatever text replaces a scalar, if the edit is proved, no other value changed."""
    before = parsed(text)
    route = data.draw(st.sampled_from(list(before.routes())))
    made = Edit("job.yaml", before.span(route), new)
    try:
        prove(before.source, [made])
    except Unproved:
        return
    after = parse_yaml(Source("job.yaml", splice(text, [made])))
    written = Span(made.span.start, made.span.start + len(new))
    assert values_outside(after, written) == values_outside(before, made.span), (text, made)


def values_outside(document: YamlDocument, edited: Span) -> list[tuple[object, ...]]:
    """The values that do not meet the edited text, in order; items without their numbers, no empty ones."""
    found = []
    for route in document.routes():
        span = document.span(route)
        if span.start < span.end and (span.end < edited.start or edited.end < span.start):
            keys = [step for step in route if isinstance(step, str)]
            found.append((*keys, repr(document.value(route))))
    return found
