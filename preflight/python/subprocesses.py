"""Links to programs that a program starts: `subprocess.run([sys.executable, "train.py", "--bs", str(bs)])`."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight.python.objects import CallRecord, Container, External, to_expr
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Launch, Launcher, Link, Word, convert, word
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

STARTERS = ("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "subprocess.Popen",
            "os.system", "subprocess.getoutput")  # fmt: skip
_LAUNCHERS: Mapping[str, Launcher] = {"torchrun": "torchrun", "accelerate": "accelerate", "deepspeed": "deepspeed"}
_WITH_VALUE = ("--nproc_per_node", "--nproc-per-node", "--nnodes", "--num_processes", "--master_port", "--config_file")


def subprocess_links(calls: Iterable[CallRecord], project: Project) -> Iterator[Link]:
    """A link for each call that starts a Python file of the project."""
    for record in calls:
        if record.name in STARTERS and record.reached:
            words = list(_words(record))
            link = _link(words, record, project)
            if link is not None:
                yield link


def _words(record: CallRecord) -> Iterator[Word]:
    given = record.object("args", 0)
    if isinstance(given, Container) and given.is_sequence:
        for item in given.items.values():
            if isinstance(item, External):  # sys.executable
                yield Word("", Const("python", item.origin))
            else:
                yield _word(_parts(to_expr(item)))
    elif given is not None:
        yield from _split(_parts(to_expr(given)))


def _parts(expr: Expr) -> list[Expr]:
    """A text as a sequence of constants and values: f"--bs={bs}"."""
    if isinstance(expr, Op) and expr.operator == "concat":
        return [part for operand in expr.operands for part in _parts(operand)]
    if isinstance(expr, Op) and expr.operator == "+" and any(_is_text(o) for o in expr.operands):
        return [part for operand in expr.operands for part in _parts(operand)]
    return [expr]


def _is_text(expr: Expr) -> bool:
    if isinstance(expr, Op):
        return expr.operator in ("concat", "str") or (expr.operator == "+" and any(_is_text(o) for o in expr.operands))
    return isinstance(expr, Const) and isinstance(expr.value, str)


def _word(parts: Sequence[Expr]) -> Word:
    """One argv element: leading text up to `=`, then the value."""
    first = parts[0] if parts else Const("")
    text = first.value if isinstance(first, Const) and isinstance(first.value, str) else None
    if len(parts) == 1:
        return word(text, first.origin) if text is not None else Word("", first, first.origin)
    if text is not None and text.endswith("=") and len(parts) == 2:
        return Word(text, parts[1], first.origin)
    return Word("", Op("concat", tuple(parts)))


def _split(parts: Sequence[Expr]) -> Iterator[Word]:
    """The words of a command line; its values contain no blanks."""
    current: list[Expr] = []
    for part in parts:
        if not (isinstance(part, Const) and isinstance(part.value, str)):
            current.append(part)
            continue
        text = part.value
        pieces = _pieces(text)
        for index, piece in enumerate(pieces):
            if (index or text[:1].isspace()) and current:
                yield _word(current)
                current = []
            current.append(Const(piece))
        if text[-1:].isspace() and current:
            yield _word(current)
            current = []
    if current:
        yield _word(current)


def _pieces(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation that a value closes
        return text.split()


def _text(item: Word) -> str:
    if item.prefix:
        return item.prefix
    return item.value.value if isinstance(item.value, Const) and isinstance(item.value.value, str) else ""


def _link(words: Sequence[Word], record: CallRecord, project: Project) -> Link | None:
    texts = [_text(item) for item in words]
    base = posixpath.dirname(record.path)
    for index, text in enumerate(texts):
        if not text.endswith(".py"):
            continue
        for target in (posixpath.normpath(text), posixpath.normpath(posixpath.join(base, text))):
            if not target.startswith(("..", "/")) and project.exists(target):
                launch = _launch(words[:index], texts[:index])
                return Link("program", target, tuple(words[index + 1 :]), launch=launch, origin=record.origin)
    return None


def _launch(words: Sequence[Word], texts: Sequence[str]) -> Launch:
    """The launch, by the command before the program: python, torchrun, accelerate or deepspeed."""
    names = [posixpath.basename(text) for text in texts]
    launcher: Launcher = next((_LAUNCHERS[name] for name in names if name in _LAUNCHERS), "python")
    found: dict[str, Expr] = {}
    for index, item in enumerate(words):
        name = item.prefix.rstrip("=")
        if name in _WITH_VALUE:
            following = words[index + 1].value if index + 1 < len(words) else None
            value = item.value if item.value is not None else following
            found[name.replace("-", "_")] = (
                convert(value, "int") if value is not None else Const(Unknown("no value", Cause.not_set))
            )
    return Launch(launcher, found.get("__nnodes"), found.get("__nproc_per_node"), found.get("__num_processes"))
