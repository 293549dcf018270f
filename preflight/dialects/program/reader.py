"""Reader of Python programs that train. A program is evaluated from its syntax tree and never run.

The evaluator follows the script from its entry and records its calls; `preflight.program` has the meaning of the calls
for a job. This module makes parameters, facts, links and a search space of them.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from msgspec.structs import replace

from preflight.dialects.program.find import only_evaluates, recognises, trains_when_started
from preflight.program.hydra_main import hydra_mains, resolved
from preflight.program.precision import unread_autocast
from preflight.vocabulary.budgets import PROGRAM_ROUNDS
from preflight.vocabulary.caches import EVERY_FILE, CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import OPEN_ARGUMENTS, Binding, Call, Fact, Link, Parameter, Reading, Word
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Axis, Const, Expr, Unknown

if TYPE_CHECKING:
    from preflight.documents.python import PythonDocument
    from preflight.frameworks.calls import CallFacts
    from preflight.python.evaluator import Evaluator, Hook
    from preflight.python.interpreter import Interpreter
    from preflight.python.objects import CallRecord
    from preflight.python.position import ProgramStart

NAME = "program"

__all__ = ["NAME", "only_evaluates", "read", "recognises", "trains_when_started"]

_EVALUATED: CacheKind[list[Interpreter]] = CacheKind("programs evaluated, for one start or several")
EVALUATIONS_KEPT = 8
"""Evaluations of one program that are kept. One of a large program may take 100 MiB."""
_PARSED: CacheKind[PythonDocument | DocumentError] = CacheKind("a program's text, parsed, or why it cannot be")
_HEAVY: CacheKind[Binding | None] = CacheKind("packages that a program imports")
_FOREIGN: CacheKind[list[Binding]] = CacheKind("the framework of a program that is not PyTorch")
_SAID: CacheKind[list[tuple[CallFacts, Project, Set[Hashable]]]] = CacheKind("what a program's calls say")
"""In which state of the project, and which of its files were asked for."""
_DATA_FILES = (".yaml", ".yml", ".json", ".toml")
_CONFIG_SUFFIXES = (".yaml", ".yml")


def _parsed(source: Source) -> PythonDocument | DocumentError:
    from preflight.documents.python import parse_python

    try:
        return parse_python(source)
    except DocumentError as error:
        return error


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The reading of a program, as far as its text shows. Raises DocumentError if it is not Python, and OverBudget."""
    parsed = project.remembered.get(_PARSED, lambda: _parsed(source), source.path)
    if isinstance(parsed, DocumentError):
        raise parsed.with_traceback(None)
    from preflight.dialects.program.sweep import sweep_of
    from preflight.frameworks.calls import trains_with_configured_object
    from preflight.frameworks.launch import launch_bindings, launch_links, visible_gpus
    from preflight.frameworks.named_files import folders, joined, without_file
    from preflight.program.versions import bounds, imported, of_another_framework, pinned

    evaluator = _evaluated(source, call, project)
    versions = list(pinned(source.path, project))
    version, trl = (_version_of(name, versions) for name in ("transformers", "trl"))
    between = bounds(source.path, project)
    said = _said(evaluator, project, version, trl, between)
    known = {parameter.name: parameter for parameter in said.parameters} | evaluator.parameters
    known |= _library_parameters(evaluator, version, trl, between)
    parameters = _with_file(tuple(known.values()), evaluator)
    axes, settings, problems = sweep_of(evaluator)
    starts = folders(source.path, call)
    told, files, given_by_files = _lightning_cli(evaluator, call, project, starts)
    parameters = tuple(replace(one, default=given_by_files.get(one.name, one.default)) for one in parameters)
    named, missing = joined([*said.links, *_flagged_configs(parameters, call)], project, starts)
    links = [*launch_links(call, project), *named, *_hydra(source, evaluator, call, project)]
    unread = [one for link in missing for one in without_file(link.target, link.origin)]
    facts = [*said.facts, *_facts(evaluator, parameters, axes)]
    if call is None and not axes:
        facts += _without_its_words(evaluator.calls)
    heavy = evaluator.remembered.get(_HEAVY, lambda: imported((source.path, *evaluator.reads), project))
    foreign = evaluator.remembered.get(_FOREIGN, lambda: of_another_framework((source.path, *evaluator.reads), project))
    software = [*versions, *([heavy] if heavy is not None else [])]
    bindings = launch_bindings(call, facts, [*said.bindings, *told], project)
    bindings += unread_autocast((source.path, *evaluator.reads), evaluator.calls, bindings, project)
    bindings += visible_gpus(evaluator.set_variables.get("CUDA_VISIBLE_DEVICES"), call)
    defaults = tuple(parameter for parameter in parameters if parameter.name not in settings)
    fixed = tuple(Parameter(name, expr, (), "wandb", origin=expr.origin) for name, expr in settings.items())
    return Reading(
        path=source.path,
        dialect=NAME,
        parameters=(*defaults, *fixed),
        bindings=(*software, *_constants(evaluator, source), *bindings, *unread, *foreign),
        axes=axes,
        links=tuple(links),
        facts=tuple(facts),
        problems=(*said.problems, *problems),
        reads=tuple(path for path in (*evaluator.reads, *files) if path != source.path),
        trains=(said.trains or files is not _NO_FILES or trains_with_configured_object(evaluator.calls))
        and not (call is not None and not named and _only_uses(evaluator, parameters, call)),
    )


_SWITCHES = ("argparse", "dataclass", "click")


def _only_uses(evaluator: Interpreter, parameters: Sequence[Parameter], call: Call) -> bool:
    """Whether a command line, all words of which were read, asks for no training: `run_clm.py --do_eval`. Only switches
    count, that a flag alone sets."""
    from preflight.frameworks.transformers_trainer import PARTS
    from preflight.program.runs import trains_under
    from preflight.python.hooks.dataclass_parsers import UNREAD_FILE
    from preflight.vocabulary.argv import behind_unread_words

    unread, words = behind_unread_words(call.words)
    if unread is not None or evaluator.remembered.known(UNREAD_FILE) is not None:
        return False
    before = [Word("", Const("")), *words]
    if any(_names_file(word) and not _takes_value(last) for last, word in zip(before, words, strict=False)):
        return False
    said = [word.prefix.rstrip("=") for word in words if word.prefix]
    off: dict[str, Expr] = {}
    for one in parameters:
        left_out = one.name in PARTS or (isinstance(one.default, Const) and one.default.value is False)
        given = one.name in call.settings or any(flag.startswith(name) for flag in one.flags for name in said)
        if one.kind in _SWITCHES and one.type in ("bool", "flag") and left_out and not given:
            off[one.name] = Const(False)
    return not trains_under(evaluator.calls, off)


def _said(
    evaluator: Interpreter, project: Project, version: str | None, trl: str | None, between: frozenset[tuple[str, str]]
) -> CallFacts:
    """What the program's calls say: once for all texts of files that this does not ask for."""
    from preflight.frameworks.calls import read_calls

    kept = evaluator.remembered.get(_SAID, list, version, trl, between)
    for found, before, files in kept:
        changed = project.changed_from(before)
        if changed is not None and (not changed or files.isdisjoint({*changed, EVERY_FILE})):
            return found
    with project.remembered.watched() as asked:
        found = read_calls(evaluator.calls, project, version, evaluator.parameters, trl, between)
    kept[:] = [*kept[-(EVALUATIONS_KEPT - 1) :], (found, project, asked)]
    return found


def _version_of(package: str, versions: Sequence[Binding]) -> str | None:
    """The release of a package that the project pins, in the nearest folder."""
    for binding in reversed(versions):
        if binding.field == f"software.{package}" and isinstance(binding.expr, Const):
            return None if isinstance(binding.expr.value, Unknown) else str(binding.expr.value)
    return None


def _evaluated(source: Source, call: Call | None, project: Project) -> Interpreter:
    """The evaluated program. It is evaluated again if the command line names a data file that it reads, and if a flag
    chooses what it calls."""
    from preflight.frameworks.images import MODEL_TYPES
    from preflight.frameworks.launch import start_of
    from preflight.python.interpreter import Interpreter
    from preflight.vocabulary.argv import behind_unread_words

    hooks, start = _hooks(source, call, project), start_of(call)
    evaluator = None if hooks else _known(source, start, project, {})
    if evaluator is None:
        evaluator = Interpreter(project, {**MODEL_TYPES, **hooks}, start=start)
        evaluator.run(source.path)
    unread, behind = behind_unread_words(call.words if call else ())
    every = evaluator.parameters.items() if unread is None else ()  # else the words may name other files
    files = {name: one.default for name, one in every if _names_data(one.default)}
    words = given(evaluator.parameters.values(), behind)
    files |= {name: value for name, value in words.items() if _names_data(value)}
    known = files
    for _ in range(PROGRAM_ROUNDS):  # what a lookup finds may look up more
        if known:
            evaluator = _assuming(source, start, project, hooks, known)
        settings = call.settings if call is not None else {}
        chosen = dict(_choosing(evaluator, words, settings)) if unread is None else {}
        if chosen.keys() <= known.keys():
            break
        known = {**chosen, **known}
    return evaluator


def _assuming(
    source: Source, start: ProgramStart, project: Project, hooks: Mapping[str, Hook], assume: Mapping[str, Expr]
) -> Interpreter:
    from preflight.frameworks.images import MODEL_TYPES
    from preflight.python.interpreter import Interpreter

    if not hooks:
        return _known(source, start, project, assume)
    evaluator = Interpreter(project, {**MODEL_TYPES, **hooks}, start=start, assume=assume)
    evaluator.run(source.path)
    return evaluator


def _choosing(
    evaluator: Interpreter, words: Mapping[str, Expr], settings: Mapping[str, Expr]
) -> Iterator[tuple[str, Expr]]:
    """The values of flags by which the program looks up what it calls (`models.__dict__[args.model]()`): those of the
    command line, else their defaults. A value that a search varies is none."""
    for name in evaluator.chosen_by:
        one = evaluator.parameters.get(name)
        if one is None or name in settings or one.kind not in ("argparse", "click", "dataclass"):
            continue
        value = words.get(name, one.default)
        if isinstance(value, Const) and isinstance(value.value, (str, int, bool)):
            yield name, value


def calls_of(source: Source, call: Call | None, project: Project) -> Sequence[CallRecord]:
    """The calls of a program, as far as they were followed."""
    return _evaluated(source, call, project).calls


def _names_data(value: Expr | None) -> bool:
    """Whether a value is the name of a data file."""
    return isinstance(value, Const) and isinstance(value.value, str) and value.value.endswith(_DATA_FILES)


def _names_file(word: Word) -> bool:
    """Whether a word is the name of a data file, which may say what flags say."""
    return not word.prefix and _names_data(word.value)


def _takes_value(word: Word) -> bool:
    """Whether a word is a flag, whose value is the next word."""
    return word.prefix.startswith("-") and word.value is None


def _known(source: Source, start: ProgramStart, project: Project, assume: Mapping[str, Expr]) -> Interpreter:
    """The program evaluated once for all launches that give it the same of what it asks for, and for all texts of files
    that it does not read: a fix of another file does not change it. Raises OverBudget."""
    from preflight.frameworks.images import MODEL_TYPES
    from preflight.python.interpreter import Interpreter

    kept = (one for known in project.remembered.all(_EVALUATED, source.path) for one in known)
    found = next((one for one in kept if one.same_with(start, assume, project)), None)
    if found is None:
        found = Interpreter(project, MODEL_TYPES, start=start, assume=assume)
        known = project.remembered.get(_EVALUATED, list, source.path, frozenset(project.overlay.items()))
        known[:] = [*known[-(EVALUATIONS_KEPT - 1) :], found]
        found.run(source.path)
    return found.whole()


def _hooks(source: Source, call: Call | None, project: Project) -> dict[str, Hook]:
    from preflight.dialects.program import configurator

    if not configurator.executes(source.text):
        return {}
    return {"open": configurator.hook(call.words if call is not None else (), project), "exec": configurator.execute}


def given(parameters: Iterable[Parameter], words: Sequence[Word]) -> dict[str, Expr]:
    """Values of the flags on a command line: `--config=a.yaml`, `--config a.yaml`, and `config=a.yaml` of OmegaConf."""
    flags = {flag: p.name for p in parameters for flag in p.flags}
    keyed = any(p.kind == "omegaconf" for p in parameters)
    found: dict[str, Expr] = {}
    for word, following in zip(words, [*words[1:], Word("")], strict=False):
        key = word.prefix.rstrip("=")
        name = key if keyed and key and not key.startswith("-") else flags.get(key)
        if name is None:
            continue
        value = word.value if word.value is not None else following.value if not following.prefix else None
        if value is not None:
            found[name] = value
    return found


def _constants(evaluator: Evaluator, source: Source) -> Iterator[Binding]:
    """Constants at the top of the script with the name of a field (`BATCH_SIZE = 32`), with the lowest rank."""
    from preflight.program.names import binding_for

    module = evaluator.modules.get(source.path)
    for name, value in module.frame.variables.items() if module is not None else ():
        if isinstance(name, str) and isinstance(value, Const) and isinstance(value.value, (int, str)):
            found = binding_for(name, value, NAME)
            if found is not None and not found.field.startswith("model."):
                yield found


def _library_parameters(
    evaluator: Evaluator, version: str | None, trl: str | None, between: frozenset[tuple[str, str]]
) -> dict[str, Parameter]:
    """Flags of a library's argument classes (`HfArgumentParser((..., TrainingArguments))`).

    A field that the program only reads, `getattr(training_args, "deepspeed", None)`, has its flag nevertheless.
    """
    from preflight.frameworks.transformers_trainer import ARGUMENT_CLASSES, from_command_line, parameters, parses_file
    from preflight.python.hooks.dataclass_parsers import ARGUMENT_FILE

    found: dict[str, Parameter] = {}
    keys = [key for key in evaluator.remembered.known(ARGUMENT_FILE) or () if key not in evaluator.parameters]
    for record in evaluator.calls:
        flavour = ARGUMENT_CLASSES.get(record.method)
        if flavour is None or not from_command_line(record):
            continue
        signs = frozenset((name, key) for key in keys for name in (record.method, "TrainingArguments")) | between
        for one in parameters(flavour, version, trl, signs):
            known = evaluator.parameters.get(one.name)
            if known is None or not (known.flags or parses_file(record)):
                found[one.name] = one
    return found


def _with_file(parameters: Sequence[Parameter], evaluator: Evaluator) -> tuple[Parameter, ...]:
    """The parameters with the defaults that a file of arguments gives them; all unknown if the file is not there.

    A program that may parse its flags instead has the defaults of its flags.
    """
    from preflight.frameworks.transformers_trainer import ARGUMENT_CLASSES, from_command_line, parses_file
    from preflight.python.hooks.dataclass_parsers import ARGUMENT_FILE, FILE_AND_FLAGS, UNREAD_FILE

    given, unread = evaluator.remembered.known(ARGUMENT_FILE), evaluator.remembered.known(UNREAD_FILE)
    made = [r for r in evaluator.calls if r.method in ARGUMENT_CLASSES and from_command_line(r)]
    if given is not None:
        names = {one.name for one in parameters}
        more = (Parameter(name, expr, (f"--{name}",), "dataclass") for name, expr in given.items() if name not in names)
        return (*(replace(one, default=given.get(one.name, one.default)) for one in parameters), *more)
    needed = evaluator.remembered.known(FILE_AND_FLAGS) or all(parses_file(record) for record in made)
    if unread is None or not needed:
        return tuple(parameters)
    return tuple(replace(one, default=unread) if one.kind == "dataclass" else one for one in parameters)


_NO_FILES: list[str] = []
"""Of a program without a LightningCLI."""


def _lightning_cli(
    evaluator: Evaluator, call: Call | None, project: Project, starts: Sequence[str]
) -> tuple[list[Binding], list[str], Mapping[str, Expr]]:
    """What the command line of a LightningCLI says, the files that it names, and the defaults that these give."""
    from preflight.frameworks.arguments import after_unread_words
    from preflight.frameworks.lightning import command_line, is_command_line
    from preflight.vocabulary.argv import behind_unread_words

    if not any(is_command_line(record) for record in evaluator.calls):
        return [], _NO_FILES, {}
    words = call.words if call is not None else ()
    found, files, given = command_line(words, project, starts, tuple(evaluator.parameters))
    stated = command_line(behind_unread_words(words)[1], project, starts)[0].bindings
    return after_unread_words(words, found.bindings, stated), files, given


def _without_its_words(calls: Sequence[CallRecord]) -> Iterator[Fact]:
    """A program whose TrainingArguments come from a command line that no file gives. Nobody runs it with the defaults
    of transformers alone: most releases demand --output_dir, and the author has chosen none of the others."""
    from preflight.frameworks.transformers_trainer import ARGUMENT_CLASSES, from_command_line, parses_file

    if any(one.method in ARGUMENT_CLASSES and from_command_line(one) and not parses_file(one) for one in calls):
        yield Fact(OPEN_ARGUMENTS, "no file gives its command line")


def _facts(evaluator: Evaluator, parameters: Sequence[Parameter], axes: Sequence[Axis]) -> Iterator[Fact]:
    from preflight.program.loops import handled_oom
    from preflight.python.hooks.configurations import HYDRA_MAIN

    for attempt in evaluator.tries:
        for names, handler in attempt.handlers:
            if handled_oom(names, ast.unparse(handler)):
                yield Fact("handles_oom", True)
                break
    if parameters or evaluator.remembered.known(HYDRA_MAIN) is not None:
        yield Fact("reads_config", True)
    if axes:
        yield Fact("search", "wandb")


# --- configurations ---------------------------------------------------------------------------------------------------


def _hydra(source: Source, evaluator: Evaluator, call: Call | None, project: Project) -> Iterator[Link]:
    """`@hydra.main(config_path=..., config_name=...)`: the composed configuration, with the program's own overrides."""
    from preflight.python.hooks.configurations import HYDRA_COMPOSE, HYDRA_MAIN

    record = evaluator.remembered.known(HYDRA_MAIN) or evaluator.remembered.known(HYDRA_COMPOSE)
    if record is None:
        return
    name = record.argument("config_name", 1)
    stem = name.value if isinstance(name, Const) and isinstance(name.value, str) else "config"
    program = record.path or source.path
    words = list(call.words) if call else []
    folder, stem, rest = _hydra_flags(None, stem, words)
    base = _hydra_folder(record, program, project) if folder is None else resolved(program, folder)
    if base is None:
        return  # the program computes the folder, so no file of the project is its configuration for certain
    for suffix in ("", *_CONFIG_SUFFIXES):
        target = posixpath.normpath(posixpath.join(base, stem + suffix))
        if target.endswith(_CONFIG_SUFFIXES) and project.exists(target):
            yield Link("config", target, tuple(rest), call.settings if call else {}, origin=record.origin)
            return


def _hydra_folder(record: CallRecord, program: str, project: Project) -> str | None:
    """The folder that a decorator or a call of `compose` names; None if it is computed, or not in the project."""
    stated = [one for one in hydra_mains(program, project) if one.line == record.node.lineno]
    if stated:
        return stated[0].folder
    path = record.argument("config_path", 0)
    return resolved(program, path.value if isinstance(path, Const) and isinstance(path.value, str) else ".")


def _hydra_flags(folder: str | None, stem: str, words: list[Word]) -> tuple[str | None, str, list[Word]]:
    """`--config-name`, `--config-path` (`-cn`, `-cp`) on the command line win over the decorator."""
    rest: list[Word] = []
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
            continue
        flag = word.prefix.rstrip("=")
        if flag not in ("--config-name", "-cn", "--config-path", "-cp"):
            rest.append(word)
            continue
        value = word.value
        if value is None and index + 1 < len(words):
            value, skip = words[index + 1].value, True
        if isinstance(value, Const) and isinstance(value.value, str):
            folder, stem = (value.value, stem) if flag in ("--config-path", "-cp") else (folder, value.value)
    return folder, stem, rest


_SCHEME_FILES = (
    "deepspeed",
    "deepspeed_config",
    "deepspeed_config_file",
    "ds_config",
    "ds_config_file",
    "ds_config_path",
)
"""Names of options whose value is a DeepSpeed file of any name, in transformers, DeepSpeed and common programs."""


def _flagged_configs(parameters: Sequence[Parameter], call: Call | None) -> Iterator[Link]:
    """A DeepSpeed file that an option names (`--deepspeed ds.json`), by the command line or by its default."""
    from preflight.frameworks.named_files import name_in
    from preflight.program.bindings import is_unknown

    values = {one.name: one.default for one in parameters} | given(parameters, call.words if call is not None else ())
    for option, value in values.items():
        name = name_in(value)
        if name is None and option in _SCHEME_FILES and is_unknown(value):
            yield Link("config", "", origin=value.origin)
        if name is None or ("deepspeed" not in option and option not in _SCHEME_FILES):
            continue
        if name.endswith(".json") or (option in _SCHEME_FILES and ("." in name or "/" in name)):
            yield Link("config", posixpath.normpath(name), origin=value.origin)
