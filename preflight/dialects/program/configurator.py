"""Programs whose globals the command line sets: `exec(open("configurator.py").read())`, as nanoGPT has it.

    python train.py config/train_small.py --batch_size=32

The text that is executed sets globals of the program from `sys.argv`: from files of assignments that it names, and from
`--name=value`. It may stand in the program itself. Nothing is run here. Constants of the script, and of the files on
its command line, become parameters with a flag `--name=` if their names are names of Job fields. Other globals have the
value that the command line gives them, so that they choose the branches that the run takes.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.program.names import field_for
from preflight.python.module import Module, load_module
from preflight.python.objects import Abstract, CallRecord, Instance, made_by
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Parameter, Word
from preflight.vocabulary.values import Const, Expr, Ref, Value

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator, Hook


def executes(text: str) -> bool:
    """Whether a program may execute the text of a file."""
    return "exec(" in text


def hook(words: Sequence[Word], project: Project) -> Hook:
    """A hook for `open`: when a script executes a configurator, its globals become parameters."""
    from preflight.python.hooks import LIBRARY_HOOKS

    usual = LIBRARY_HOOKS.get("open")

    def run(record: CallRecord, ev: Evaluator) -> Abstract | None:
        file = record.argument("file", 0)
        if not _is_configurator(file, record, project) and not _configures_itself(file, record, words, project):
            return None if usual is None else usual(record, ev)
        frame = ev.modules[record.path].frame
        overridden = {**dict(_files(words, project)), **dict(_flags(words))}
        files = dict(_files(words, project))
        for name, value in list(frame.variables.items()):
            if not isinstance(name, str) or not isinstance(value, Const):
                continue
            if _is_setting(name, value.value):
                default = files.get(name, value)
                kind = type(default.value).__name__
                ev.add_parameter(Parameter(name, default, (f"--{name}",), "argparse", kind, (), default.origin))
                frame.variables[name] = Ref(name)
            elif name in overridden and isinstance(value.value, (bool, int, float, str)):
                frame.variables[name] = overridden[name]
        return Instance(CONFIGURATOR, record=record)

    return run


CONFIGURATOR = "preflight.configurator"
"""What an opened configurator is: its text, too, has this name."""


def execute(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A hook for `exec`: the text of a configurator sets the globals that `hook` has set, and nothing else."""
    from preflight.python.hooks import LIBRARY_HOOKS

    usual = LIBRARY_HOOKS.get("exec")
    if (made_by(record.arguments[0]) or "").startswith(CONFIGURATOR) if record.arguments else False:
        return Const(None)
    return usual(record, ev) if usual is not None else Const(None)


def _is_configurator(name: Expr | None, record: CallRecord, project: Project) -> bool:
    """Whether a file of the project sets globals from the command line."""
    value = name.value if isinstance(name, Const) else None
    if not isinstance(value, str) or not value.endswith(".py"):
        return False
    beside = posixpath.join(posixpath.dirname(record.path), value)
    for path in dict.fromkeys((posixpath.normpath(beside), posixpath.normpath(value))):
        module = load_module(path, project)
        if module is not None:
            used = {ast.unparse(node) for node in module.nodes if isinstance(node, (ast.Attribute, ast.Call))}
            return "sys.argv" in used and "globals()" in used
    return posixpath.basename(value) == "configurator.py"  # not in the project: nanoGPT's, by its name


def _configures_itself(name: Expr | None, record: CallRecord, words: Sequence[Word], project: Project) -> bool:
    """Whether a program opens a file of its command line to execute it, and sets its own globals: the text of a
    configurator, copied into it."""
    value = name.value if isinstance(name, Const) else None
    if isinstance(value, str) and value not in {each for word in words if (each := _text(word)) is not None}:
        return False
    module = load_module(record.path, project)
    if module is None or not any(_sets_globals(node) for node in module.nodes):
        return False
    used = {
        ast.unparse(node.func if isinstance(node, ast.Call) else node)
        for node in module.nodes
        if isinstance(node, (ast.Attribute, ast.Call))
    }
    return {"sys.argv", "exec"} <= used


def _sets_globals(node: ast.AST) -> bool:
    """`globals()[name] = ...`"""
    into = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    return into and isinstance(node, ast.Subscript) and ast.unparse(node.value) == "globals()"


def _text(word: Word) -> str | None:
    value = word.value.value if isinstance(word.value, Const) and not word.prefix else None
    return value if isinstance(value, str) else None


def _is_setting(name: str, value: Value) -> bool:
    return isinstance(value, (bool, int, float, str)) and field_for(name) is not None


def _files(words: Sequence[Word], project: Project) -> Iterator[tuple[str, Const]]:
    """Constants of the config files on the command line; later ones win."""
    for word in words:
        path = _text(word)
        module = load_module(path, project) if path is not None and path.endswith(".py") else None
        if module is not None:
            yield from _constants(module)


def _flags(words: Sequence[Word]) -> Iterator[tuple[str, Const]]:
    """`--name=value`: a literal of Python, else a text."""
    for word in words:
        name = word.prefix.removeprefix("--").removesuffix("=")
        if word.prefix.startswith("--") and word.prefix.endswith("=") and isinstance(word.value, Const):
            value = word.value.value
            try:
                read = ast.literal_eval(value) if isinstance(value, str) else value
            except (ValueError, SyntaxError):
                read = value
            yield name, Const(read, word.value.origin)


def _constants(module: Module) -> Iterator[tuple[str, Const]]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, (bool, int, float, str)):
                places = (target.id for target in node.targets if isinstance(target, ast.Name))
                yield from ((name, Const(value, module.origin(node.value))) for name in places)
