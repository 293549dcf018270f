"""The rules: found through the entry point group `preflight.rules`.

A value is a module with a tuple RULES, or a package: then every module of it holds one rule, whose name is the file's
(`gpu_memory_tight.py` holds `gpu-memory-tight`). Folders and modules whose names begin with "_" hold shared code.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from pydantic import ValidationError

from preflight.system import observed
from preflight.system.entry_points import AddedEntry
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.errors import PreflightError, SettingsError, UsageError, suggestion
from preflight.vocabulary.extensions import RULES, installed
from preflight.vocabulary.rule import Options, Rule
from preflight.vocabulary.settings import Settings

OWN_PACKAGE = "preflight_rules"
"""The rules of this repository: an entry point like any other, unless preflight runs out of a checkout."""

OWN = {
    "unreadable-file": "A file that was named cannot be read as text",
    "invalid-config": "A configuration is malformed, or a value in it has the wrong shape",
    "internal-error": "preflight itself failed on a file or in a rule; the rest was checked",
    "unused-ignore": "A `# preflight: ignore` comment leaves no finding out",
    "expired-ignore": "The date of a `# preflight: ignore` comment is over",
    "time-limit": "The time limit was over before everything was checked",
    "stale-baseline": "The baseline lists a finding that is gone",
}
"""Rules of the engine itself: they speak of the check, not of a study."""


class RuleError(PreflightError):
    """Rules cannot be loaded: a module is missing or broken, or two rules have one name."""


@lru_cache(maxsize=8)
def rules(trusted: tuple[str, ...] = ()) -> Mapping[str, type[Rule]]:
    """Every installed rule by name, and those of `trusted` files, in the order of the names. Raises RuleError."""
    found: dict[str, type[Rule]] = {}
    homes: dict[str, AddedEntry | str] = {}
    named: list[AddedEntry | str] = [*_modules(), *(path for path in trusted if path.endswith(".py"))]
    for home in named:
        for rule in _rules_of(home):
            if rule.name in found and found[rule.name] is not rule:
                raise RuleError(f"two rules are called {rule.name}: one in {homes[rule.name]}, one in {home}")
            if rule.name in OWN and rule.name != "invalid-config":
                raise RuleError(f"{home}: the name {rule.name} is preflight's own")
            found[rule.name], homes[rule.name] = rule, home
    return dict(sorted(found.items()))


def summaries() -> dict[str, str]:
    """Every rule's line, the engine's own among them."""
    return {**OWN, **{name: rule.summary for name, rule in rules(()).items()}}


def _modules() -> Iterator[AddedEntry]:
    """The entry points. If preflight is not installed, its own rules are in `rules/` of the same folder."""
    found = installed(RULES)
    home = Path(__file__).resolve().parents[2] / "rules"
    if OWN_PACKAGE not in {one.value for one in found} and home.is_dir():
        if str(home) not in sys.path:
            sys.path.insert(0, str(home))
        yield AddedEntry(OWN_PACKAGE, "preflight-lint")
    yield from found


def _from_file(path: Path) -> ModuleType:
    """A module out of a file that the user trusts. Raises ImportError."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"preflight_trusted_{path.stem}", path)
    if spec is None or spec.loader is None or not observed.is_file(path):
        raise ImportError("there is no such file")
    observed.depends_on(path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rules_of(home: AddedEntry | str) -> Iterable[type[Rule]]:
    """The rules of an entry point, or of a file that the user trusts. Raises RuleError."""
    try:
        module = _from_file(Path(home)) if isinstance(home, str) else import_module(home.value)
        if hasattr(module, "__path__") and not hasattr(module, "RULES"):
            return [_rule_in(import_module(f"{module.__name__}.{name}"), name) for name in _modules_of(module)]
    except RuleError as error:
        raise RuleError(f"the rules of {home}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also a module that exits as it is imported
        text = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise RuleError(f"the rules of {home} cannot be imported: {text}") from error
    listed = getattr(module, "RULES", None)
    if not isinstance(listed, tuple) or not all(isinstance(one, type) and issubclass(one, Rule) for one in listed):
        raise RuleError(f"{home} has no tuple RULES of Rule classes")
    return listed


def _modules_of(package: ModuleType) -> list[str]:
    """The modules of a package that hold a rule each."""
    from pkgutil import iter_modules

    found = (one.name for one in iter_modules(package.__path__) if not one.ispkg)
    return sorted(name for name in found if not name.startswith("_"))


def _rule_in(module: ModuleType, file: str) -> type[Rule]:
    """The one rule that a module of a package defines. Raises RuleError."""
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    found = [one for one in own if issubclass(one, Rule) and one.__dict__.get("name") == file.replace("_", "-")]
    if len(found) != 1:
        raise RuleError(f"{module.__name__} must define one rule, called {file.replace('_', '-')}")
    return found[0]


def enabled(
    settings: Settings, select: Iterable[str], ignore: Iterable[str], known: Mapping[str, type[Rule]]
) -> frozenset[str]:
    """Names of the rules to run: what the command line selects, else the settings, else all but previews.

    Rules that either of them ignores are left out. Raises UsageError or SettingsError for a name that is no rule's.
    """

    def checked(names: Iterable[str], where: str) -> set[str]:
        found = set(names)
        for name in sorted(found - known.keys() - OWN.keys()):
            message = f"{where}: there is no rule {name}{suggestion(name, (*known, *OWN))}; preflight rule lists them"
            raise (UsageError if where.startswith("--") else SettingsError)(message)
        return found

    chosen, dropped = checked(select, "--select"), checked(ignore, "--ignore")
    wanted = chosen or checked(settings.select, "tool.preflight.select")
    dropped |= checked(settings.ignore, "tool.preflight.ignore")
    checked(settings.rules, "tool.preflight.rules")
    for glob, names in settings.per_file_ignores.items():
        checked((name for name in names if name != "all"), f"tool.preflight.per-file-ignores.{glob}")
    everything = {name for name, rule in known.items() if not rule.preview} | OWN.keys()
    return frozenset((wanted or everything) - (dropped - chosen))


_RULE_OPTIONS: BoundedCache[Options] = BoundedCache(256)


def options_of(rule: type[Rule], settings: Settings) -> Options:
    """A rule's own options out of `[tool.preflight.rules.NAME]`, for all studies. Raises SettingsError."""
    return _RULE_OPTIONS.get(settings, cast(Hashable, rule), lambda: _validated(rule, settings))


def _validated(rule: type[Rule], settings: Settings) -> Options:
    found = settings.rules.get(rule.name)
    extra = found.model_extra or {} if found is not None else {}
    try:
        return rule.options.model_validate(extra)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = ".".join(map(str, details["loc"]))
        raise SettingsError(f"tool.preflight.rules.{rule.name}.{key}: {details['msg']}") from error
