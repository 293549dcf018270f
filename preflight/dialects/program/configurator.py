"""nanoGPT's configurator: `exec(open("configurator.py").read())` makes every global a flag and runs config files.

    python train.py config/train_small.py --batch_size=32

Nothing is run here. Constants of the script, and of the config files on its command line, become parameters with a flag
`--name=` if their names are names of Job fields.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.program.names import field_for
from preflight.python.module import Module, load_module
from preflight.python.objects import Abstract, CallRecord
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Parameter, Word
from preflight.vocabulary.values import Const, Ref, Value

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator, Hook


def hook(words: Sequence[Word], project: Project) -> Hook:
    """A hook for `open`: when a script opens a configurator, its globals become parameters."""
    from preflight.python.hooks import LIBRARY_HOOKS

    usual = LIBRARY_HOOKS.get("open")

    def run(record: CallRecord, ev: Evaluator) -> Abstract | None:
        if "configurator" not in ast.unparse(record.node):
            return None if usual is None else usual(record, ev)
        frame = ev.modules[record.path].frame
        overridden = dict(_files(words, project))
        for name, value in list(frame.variables.items()):
            if isinstance(name, str) and isinstance(value, Const) and _is_setting(name, value.value):
                default = overridden.get(name, value)
                kind = type(default.value).__name__
                ev.add_parameter(Parameter(name, default, (f"--{name}",), "argparse", kind, (), default.origin))
                frame.variables[name] = Ref(name)
        return None

    return run


def execute(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A hook for `exec`: the text of a configurator sets the parameters that `hook` has made, and nothing else."""
    from preflight.python.hooks import LIBRARY_HOOKS

    usual = LIBRARY_HOOKS.get("exec")
    return Const(None) if "configurator" in ast.unparse(record.node) or usual is None else usual(record, ev)


def _is_setting(name: str, value: Value) -> bool:
    return isinstance(value, (bool, int, float, str)) and field_for(name) is not None


def _files(words: Sequence[Word], project: Project) -> Iterator[tuple[str, Const]]:
    """Constants of the config files on the command line; later ones win."""
    for word in words:
        path = word.value.value if isinstance(word.value, Const) and not word.prefix else None
        module = load_module(path, project) if isinstance(path, str) and path.endswith(".py") else None
        if module is not None:
            yield from _constants(module)


def _constants(module: Module) -> Iterator[tuple[str, Const]]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, (bool, int, float, str)):
                places = (target.id for target in node.targets if isinstance(target, ast.Name))
                yield from ((name, Const(value, module.origin(node.value))) for name in places)
