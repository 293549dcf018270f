"""IPython's syntax: which part of a cell is Python, and which commands it starts.

Source: IPython 9, `core/inputtransformer2.py` (leading indent, cell magics, `%`, `!`, `?`, assignments of them) and
"Built-in magic commands". What is not Python and may set a name gives that name a value that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from keyword import iskeyword
from typing import Literal

from msgspec import Struct, field

from preflight.dialects.notebook.cells import Cell, Placed
from preflight.vocabulary.python_grammar import parse_module

CommandKind = Literal["shell", "script", "cd", "env", "write", "run", "not-read"]

_CELL_MAGIC = re.compile(r"\s*%%(?P<name>[\w.]+)[ \t]*(?P<rest>[^\n]*)(?:\n|\Z)")
_PYTHON_MAGICS = frozenset({"time", "capture", "prun", "wandb", "memit", "mprun", "notify"})
"""Cell magics that run their cell as Python in the notebook's own names. `%%timeit` runs it in a function."""
_TIMED = re.compile(r"[ \t]*%(?:time|prun)[ \t]+(?=\S)")
_SHELLS = frozenset({"bash", "sh", "shell", "!"})
_SPECIAL = re.compile(
    r"(?P<indent>[ \t]*)(?:(?P<set>[\w., \t]+?)[ \t]*=[ \t]*(?P<assigned>!{1,2}|%)(?P<source>[^\n]*)"
    r"|(?P<mark>!{1,2}|%|\?{1,2})(?P<rest>[^\n]*)"
    r"|(?P<help>[\w.*%]+\?{1,2})[ \t]*(?:#[^\n]*)?(?=\n|\Z))"
)
_AUTOMATIC = re.compile(
    _SPECIAL.pattern
    + r"|(?P<automatic>[ \t]*(?:pip|conda|ls|ll|cat|mkdir|rm|cp|mv|pwd|cd)(?:[ \t]+[^=\n(][^\n]*)?)(?=\n|\Z)"
)
"""With commands that IPython takes for magics without their mark, where a cell is no Python otherwise."""
_TOKEN = re.compile(
    r"(?P<comment>#[^\n]*)|(?P<quote>\'\'\'|\"\"\"|'|\")|(?P<open>[(\[{])|(?P<close>[)\]}])|\\.|(?P<line>\n)|[^#'\"()\[\]{}\\\n]+",
    re.DOTALL,
)
_MAY_BE_SPECIAL = re.compile(r"^[ \t]*[%!?]|=[ \t]*[%!]|\?[ \t]*(?:#|$)", re.M)
_ASSIGNED = re.compile(
    r"^[ \t]*(?:for[ \t]+)?([A-Za-z_]\w*(?:[ \t]*,[ \t]*[A-Za-z_]\w*)*)[ \t]*(?:[-+*/|&]?=(?!=)|in\b|:[^=\n]*=)", re.M
)
_DEFINED = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.M)
_UNREAD = "get_ipython().getoutput()"
"""A call whose result nothing of the project defines."""


class Command(Struct, frozen=True):
    """A command that a cell gives to the shell or to IPython."""

    kind: CommandKind
    text: Placed


class Translated(Struct):
    """A cell's Python, and its commands in their order."""

    python: Placed = field(default_factory=Placed)
    commands: list[Command] = field(default_factory=list)


def translated(cell: Cell) -> Translated:
    """The Python of a cell in which nothing is IPython's own. What cannot be parsed is left out, its names unknown."""
    code = _without_indent(cell.code)
    magic = _CELL_MAGIC.match(code.text)
    if magic is not None and magic["name"] not in _PYTHON_MAGICS:
        return _of_cell_magic(magic, code)
    body = code.part(magic.end() if magic else 0)
    for special in (_SPECIAL, _AUTOMATIC):
        found = Translated()
        found.python = Placed.of(list(_lines(body, special, found.commands)))
        if _is_python(found.python.text):
            return found
    return Translated(_unknown_names(code), [*found.commands, Command("not-read", code)])


def _is_python(text: str) -> bool:
    try:
        parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _without_indent(code: Placed) -> Placed:
    """The cell as IPython dedents it: by the blanks before its first line."""
    first = re.match(r"(?:[ \t]*\n)*([ \t]+)\S", code.text)
    if first is None:
        return code
    blank, parts, at = first[1], [], 0
    for line in code.text.splitlines(keepends=True):
        parts.append(code.part(at + len(blank) if line.startswith(blank) else at, at + len(line)))
        at += len(line)
    return Placed.of(parts)


def _of_cell_magic(magic: re.Match[str], code: Placed) -> Translated:
    """A cell in another language, or one that writes a file."""
    name, body = magic["name"], code.part(magic.end())
    if name == "script" and magic["rest"].split()[:1] and magic["rest"].split()[0].rpartition("/")[2] in _SHELLS:
        name = "bash"
    if name in _SHELLS:
        return Translated(commands=[Command("script", body)] if body.text.strip() else [])
    if name in ("writefile", "file"):
        return Translated(commands=[Command("write", code.part(magic.start("rest"), magic.end("rest")))])
    if name in ("timeit", "html", "HTML", "javascript", "js", "latex", "markdown", "svg", "perl", "ruby"):
        return Translated()
    runs = body.text.strip() and "(" in body.text and _is_python(body.text)
    return Translated(_unknown_names(body), [Command("not-read", code)] if runs else [])


def _unknown_names(code: Placed) -> Placed:
    """A statement that gives each name that a text may set a value that is not known."""
    listed = [name.strip() for found in _ASSIGNED.findall(code.text) for name in found.split(",")]
    names = [one for one in dict.fromkeys([*listed, *_DEFINED.findall(code.text)]) if _is_name(one)]
    return code.replaced("".join(f"{name} = " for name in names) + f"{_UNREAD}\n") if names else Placed()


def _is_name(text: str) -> bool:
    return text.isidentifier() and not iskeyword(text)


def _lines(code: Placed, syntax: re.Pattern[str], commands: list[Command]) -> Iterator[Placed]:
    """The statements of a cell, with what is IPython's own in other words."""
    if syntax is _SPECIAL and _MAY_BE_SPECIAL.search(code.text) is None:
        yield code
        return
    at = 0
    while at < len(code.text):
        special = syntax.match(code.text, at)
        if special is not None:
            end = _continued(code.text, special.end())
            yield from _statement(special, code.part(at, end), code.part(special.start(), end), commands)
            at = end
        else:
            end = _logical_line(code.text, at)
            yield code.part(at, end)
            at = end


def _continued(text: str, end: int) -> int:
    """The end of a command whose lines may end in a backslash, with the end of its line."""
    while text[end - 1 : end + 1] == "\\\n":
        following = text.find("\n", end + 1)
        end = len(text) if following < 0 else following
    return min(end, len(text))


def _logical_line(text: str, at: int) -> int:
    """The end of a statement: brackets and strings may go on over lines."""
    depth, quote = 0, ""
    while at < len(text):
        if quote:
            closing = re.compile(rf"\\.|{quote}" + ("|\n" if len(quote) == 1 else ""), re.DOTALL)
            end = next((found for found in closing.finditer(text, at) if found[0][0] != "\\"), None)
            if end is None:
                return len(text)
            at, quote = end.end(), ""
            if end[0] == "\n" and depth == 0:
                return at
            continue
        token = _TOKEN.match(text, at)
        if token is None:
            return len(text)
        at = token.end()
        quote = token["quote"] or ""
        depth = max(depth + bool(token["open"]) - bool(token["close"]), 0)
        if token["line"] and depth == 0:
            return at
    return at


def _statement(found: re.Match[str], line: Placed, whole: Placed, commands: list[Command]) -> Iterator[Placed]:
    """The Python of one line of IPython's syntax; its command is added to `commands`."""
    automatic = found.groupdict().get("automatic")
    if automatic is not None:
        commands += _commands("%", whole)
        yield whole.replaced(re.match(r"[ \t]*", automatic)[0] + "pass")  # type: ignore[index]
        return
    timed = _TIMED.match(line.text)
    if timed is not None:
        yield line.part(0, len(found["indent"]))
        yield line.part(timed.end())
        return
    if found["set"] is not None:
        names = found["set"] if re.fullmatch(r"[\w \t,.]+", found["set"]) else "_"
        commands += _commands(found["assigned"], whole.part(found.start("source") - found.start()))
        yield whole.replaced(f"{found['indent']}{names} = {_UNREAD}")
        return
    if found["mark"]:
        commands += _commands(found["mark"], whole.part(found.start("rest") - found.start()))
    yield whole.replaced(f"{found['indent']}pass")


_LINE_MAGIC = re.compile(r"\s*(?P<name>\w+)[ \t]*")
_OF_MAGIC: dict[str, CommandKind] = {
    "cd": "cd", "env": "env", "set_env": "env", "run": "run", "sx": "shell", "system": "shell", "sh": "shell",
    "bash": "shell", "load": "not-read", "store": "not-read", "macro": "not-read", "pushd": "cd", "reset": "not-read",
}  # fmt: skip


def _commands(mark: str, text: Placed) -> Iterator[Command]:
    if mark.startswith("!"):
        yield Command("shell", text)
    elif mark == "%":
        magic = _LINE_MAGIC.match(text.text)
        kind = _OF_MAGIC.get(magic["name"]) if magic is not None else None
        if magic is not None and kind is not None:
            yield Command(kind, text.part(magic.end()))
