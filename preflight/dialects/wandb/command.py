"""The `command` of a W&B sweep: its expanded macros, and the program that it starts.

A macro is expanded only as a whole element; an unknown macro is removed (wandb/wandb_agent.py of wandb 0.31).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from preflight.documents.yaml import YamlDocument
from preflight.frameworks.launchers import LaunchCommand, take_apart
from preflight.frameworks.wandb_space import SweepSpace
from preflight.vocabulary.caches import regex
from preflight.vocabulary.reading import Word, word
from preflight.vocabulary.values import Cause, Const, Expr, Origin, Route, Value, unknown

DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_MACRO = regex(r"\$\{([^}]*)\}")
_HYDRA = {"args_no_hyphens": "", "args_append_hydra": "+", "args_override_hydra": "++"}


def commands(top: Mapping[str, Value], document: YamlDocument, space: SweepSpace) -> Iterator[LaunchCommand]:
    """The command that starts every run of the sweep; none if the sweep names no program."""
    written = top.get("command")
    elements: tuple[tuple[Value, Route], ...]
    if isinstance(written, tuple):
        elements = tuple((element, ("command", index)) for index, element in enumerate(written))
    elif isinstance(written, str):  # W&B needs a list; here it is split like a shell command
        elements = tuple((part, ("command",)) for part in written.split())
    else:
        elements = tuple((macro, ("program",)) for macro in DEFAULT)
    program = top.get("program")
    words = [word for element, route in elements for word in _words(element, route, program, document, space)]
    if not words:
        return
    command = take_apart(words)
    command = replace(command, words=(*command.ranks, *command.words))
    if command.kind == "none" and isinstance(program, str):
        # an unknown wrapper: the words behind `${program}` are still the arguments of the program
        at = next((i for i, w in enumerate(words) if isinstance(w.value, Const) and w.value.value == program), None)
        if at is not None:
            command = LaunchCommand("program", words[at], tuple(words[at + 1 :]), command.launch)
    if command.launch.launcher == "python":
        command = replace(command, launch=replace(command.launch, launcher="wandb-agent"))
    yield command


def _words(element: Value, route: Route, program: Value, document: YamlDocument, space: SweepSpace) -> Iterator[Word]:
    if not isinstance(element, (str, int, float)):
        return  # a null element: the agent drops it
    origin = _origin(document, route)
    macro = _MACRO.fullmatch(str(element))
    if macro is None:
        yield word(str(element), origin)
        return
    name = macro.group(1)
    if name == "interpreter":
        yield Word("", Const("python", origin), origin)
    elif name == "program" and isinstance(program, str):
        place = _origin(document, ("program",))
        yield Word("", Const(program, place), place)
    elif name.startswith("envvar:"):
        yield Word("", unknown(f"the environment variable {name[7:]} of the agent", origin, Cause.run_time), origin)
    elif name in ("args_json", "args_json_file"):
        yield Word("", unknown("the values of the sweep as JSON text", origin, Cause.run_time), origin)
    else:
        yield from _arguments(name, space, origin)


def _arguments(macro: str, space: SweepSpace, origin: Origin | None) -> Iterator[Word]:
    """The parameters of the sweep as words, in their order."""
    for name, value in space.arguments:
        if macro == "args":
            yield Word(f"--{name}=", value, origin)
        elif macro == "args_no_equals":
            yield Word(f"--{name}", None, origin)
            yield Word("", value, origin)
        elif macro in _HYDRA:
            yield Word(f"{name}=", value, origin, _HYDRA[macro])
        elif macro == "args_no_boolean_flags":
            yield from _without_false(name, value, origin)


def _without_false(name: str, value: Expr, origin: Origin | None) -> Iterator[Word]:
    if isinstance(value, Const) and isinstance(value.value, bool):
        if value.value:
            yield Word(f"--{name}", None, origin)
    else:
        yield Word(f"--{name}=", value, origin)


def _origin(document: YamlDocument, route: Route) -> Origin | None:
    return document.origin(route) if document.has(route) else None
