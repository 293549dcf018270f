"""Imports. A module of the project is interpreted when a name of it is looked up; of a library only names are known."""

from __future__ import annotations

import ast
import posixpath
from pathlib import PurePosixPath

from preflight.python.evaluator import Evaluator
from preflight.python.files import path_text
from preflight.python.module import file_in, is_package_dir, load_module, resolve_import
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Container,
    Either,
    External,
    Frame,
    Lazy,
    ModuleValue,
    alternatives,
    sides,
)
from preflight.vocabulary.budgets import PROGRAM_MODULES
from preflight.vocabulary.values import Cause, Const, Origin, names, unknown


def find_module(ev: Evaluator, name: str, level: int, frame: Frame) -> ModuleValue | None:
    """The project's module of that name; None for a library's."""
    path = _added(ev, name, frame, True) if level == 0 and ev.import_folders else None
    path = path or resolve_import(name, level, frame.module, ev.project)
    if level == 0 and ev.import_folders and (path is None or not _beside(path, frame)):
        path = _added(ev, name, frame, False) or path
    if path is None or (path not in ev.modules and len(ev.modules) >= PROGRAM_MODULES):
        return None
    ev.texts.add(path)
    module = load_module(path, ev.project)
    return None if module is None else ev.module_value(module)


def _added(ev: Evaluator, name: str, frame: Frame, first: bool) -> str | None:
    """The file of that name in a folder that the program adds to `sys.path`, `first` before its own folder."""
    found = (file_in(folder, name, ev.project) for folder, before in ev.import_folders.items() if before is first)
    return next((path for path in found if path is not None and path != frame.module.path), None)


def _beside(path: str, frame: Frame) -> bool:
    """Whether a file lies in the folder of the one that imports it."""
    return PurePosixPath(path).parent == PurePosixPath(frame.module.path).parent


def add_import_folders(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`sys.path.append(folder)`, `sys.path.insert(0, folder)` and `sys.path.extend(folders)`.

    A path is relative to where the program starts; one that is made of `__file__` is relative to the project.
    """
    given = record.arguments[1:] if record.method == "insert" else record.arguments
    several = (ev.iterate(one) or () if record.method == "extend" else (one,) for one in given)
    own = posixpath.dirname(ev.reads[0]) if ev.reads else ""
    starts = ("", own) if ev.directory is None else (ev.directory, "")
    for text in (path_text(ev, one) for ones in several for one in ones):
        bases = dict.fromkeys((*starts, posixpath.dirname(record.path))) if text is not None else ()
        for folder in (posixpath.normpath(posixpath.join(base, text or "")) for base in bases):
            if not folder.startswith(("..", "/")) and ev.project.is_dir(folder):
                ev.import_folders.setdefault(folder, record.method == "insert")
    return Const(None)


def import_modules(ev: Evaluator, node: ast.Import, frame: Frame) -> None:
    """`import a.b`, `import a.b as c`."""
    for alias in node.names:
        found = find_module(ev, alias.name, 0, frame)
        origin = frame.module.origin(alias)
        if alias.asname:
            ev.journal.write(frame.variables, alias.asname, found or External(alias.name, origin))
            continue
        head = alias.name.partition(".")[0]
        package = find_module(ev, head, 0, frame) if "." in alias.name else found
        if package is not None:
            ev.journal.write(frame.variables, head, package)
        elif found is not None:  # a namespace package: reach the module through its dotted name
            ev.journal.write(frame.variables, head, External(f"project:{head}", origin))
        else:
            ev.journal.write(frame.variables, head, External(head, origin))


_PUBLISH_ALL = ("transformers", "trl", "peft", "diffusers")
"""Packages that have the classes of their modules under their own name, too."""


_STAND_FOR = {
    f"unsloth.{home}{name}": whole
    for home in ("", "trainer.")
    for name, whole in (("UnslothTrainer", "trl.SFTTrainer"), ("UnslothTrainingArguments", "trl.SFTConfig"))
}
"""Classes of a library that extend another's by what decides no memory: a learning rate of the embeddings (unsloth
2025.11, trainer.py)."""


def external(name: str, origin: Origin | None) -> External:
    """An object of a library by its shortest name: `transformers.hf_argparser.HfArgumentParser` is
    `transformers.HfArgumentParser`. A class that only extends another library's is that one."""
    name = _STAND_FOR.get(name, name)
    package, _, rest = name.partition(".")
    last = rest.rpartition(".")[2]
    if package in _PUBLISH_ALL and last != rest and last[:1].isupper() and not last.isupper():
        return External(f"{package}.{last}", origin)
    return External(name, origin)


def import_from(ev: Evaluator, node: ast.ImportFrom, frame: Frame) -> None:
    """`from a import b`, `from .a import *`."""
    name, level = node.module or "", node.level
    found = find_module(ev, name, level, frame)
    for alias in node.names:
        origin = frame.module.origin(alias)
        if alias.name == "*":
            _import_star(ev, found, name, frame)
            continue
        value: Abstract
        submodule = find_module(ev, f"{name}.{alias.name}" if name else alias.name, level, frame)
        if found is not None and (submodule is None or alias.name in found.frame.variables):
            value = Lazy(found, alias.name, origin)
        elif submodule is not None:
            value = submodule
        else:
            value = external(f"{name}.{alias.name}" if name else alias.name, origin)
        ev.journal.write(frame.variables, alias.asname or alias.name, value)


def _import_star(ev: Evaluator, found: ModuleValue | None, name: str, frame: Frame) -> None:
    if found is None:
        ev.journal.write(frame.variables, "*", External(name))
        return
    ev.execute_module(found)
    for key, value in list(found.frame.variables.items()):
        if isinstance(key, str) and not key.startswith("_"):
            ev.journal.write(frame.variables, key, value)


def module_attribute(ev: Evaluator, module: ModuleValue, name: str) -> Abstract:
    """A name of a project's module, its submodules included."""
    ev.execute_module(module)
    if name in module.frame.variables:
        return resolve(ev, module.frame.variables[name])
    if module.module.path.endswith("__init__.py"):
        submodule = find_module(ev, name, 1, module.frame)
        if submodule is not None:
            return submodule
    star = module.frame.variables.get("*")
    if isinstance(star, External):
        return External(f"{star.name}.{name}")
    return unknown(f"{module.module.name} does not define {name}", cause=Cause.out_of_project)


def module_names(ev: Evaluator, module: ModuleValue) -> Container:
    """`module.__dict__`: the names of a project's module."""
    ev.execute_module(module)
    return Container("dict", {key: resolve(ev, value) for key, value in list(module.frame.variables.items())})


def resolve(ev: Evaluator, value: Abstract, _depth: int = 0) -> Abstract:
    """The value of a name that was imported and not looked up yet; of several, where a condition says from where."""
    if isinstance(value, Either) and any(isinstance(one, Lazy) for one in alternatives(value)):
        ev.chosen_by |= {name for one in sides(value) if isinstance(one, Either) for name in names(one.condition)}
        return ev.on_both_sides(value, lambda one: resolve(ev, one, _depth))
    if isinstance(value, Lazy) and _depth < 10:
        return resolve(ev, module_attribute(ev, value.module, value.name), _depth + 1)
    return value if not isinstance(value, Lazy) else unknown("modules import it from each other in a circle")


def namespace_attribute(ev: Evaluator, value: External, name: str, frame: Frame) -> Abstract:
    """`package.module`, if the package is a directory of the project without `__init__.py`."""
    dotted = f"{value.name.removeprefix('project:')}.{name}"
    found = find_module(ev, dotted, 0, frame)
    if found is not None:
        return found
    if is_package_dir(dotted, 0, frame.module, ev.project):
        return External(f"project:{dotted}", value.origin)
    return External(_STAND_FOR.get(dotted, dotted), value.origin)
