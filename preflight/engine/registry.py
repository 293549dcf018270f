"""The rules: found through the entry point group `preflight.rules`, each value a module with a tuple RULES."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from preflight.vocabulary.errors import PreflightError, SettingsError, UsageError, suggestion
from preflight.vocabulary.findings import Confidence, Finding, Proposal, Safety, Severity
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.rule import Options, Rule
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import Edit

GROUP = "preflight.rules"

OWN = {
    "unreadable-file": "A file that was named cannot be read as text.",
    "invalid-config": "A configuration is malformed, or a value in it has the wrong shape.",
    "internal-error": "preflight itself failed on a file or in a rule; the rest was checked.",
    "unused-ignore": "A `# preflight: ignore` comment takes nothing out.",
    "stale-baseline": "The baseline lists a finding that is gone.",
}
"""Rules of the engine itself: they speak of the check, not of a study."""


class RuleError(PreflightError):
    """Rules cannot be loaded: a module is missing or broken, or two rules have one name."""


@lru_cache(maxsize=8)
def rules(trusted: tuple[str, ...] = ()) -> Mapping[str, type[Rule]]:
    """Every installed rule by name, and those of `trusted` files, in the order of the names. Raises RuleError."""
    found: dict[str, type[Rule]] = {}
    homes: dict[str, str] = {}
    for value in (*_modules(), *(path for path in trusted if path.endswith(".py"))):
        for rule in _rules_of(value):
            if rule.name in found and found[rule.name] is not rule:
                raise RuleError(f"two rules are called {rule.name}: one in {homes[rule.name]}, one in {value}")
            if rule.name in OWN and rule.name != "invalid-config":
                raise RuleError(f"{value}: the name {rule.name} is preflight's own")
            found[rule.name], homes[rule.name] = rule, value
    return dict(sorted(found.items()))


def summaries() -> dict[str, str]:
    """Every rule's line, the engine's own among them."""
    return {**OWN, **{name: rule.summary for name, rule in rules(()).items()}}


def installed(group: str) -> list[str]:
    """The values of a group's entry points, sorted, each once."""
    return sorted({point.value for point in entry_points(group=group)})


def _modules() -> Iterator[str]:
    """Values of the entry points; those of this checkout are read from its own list where it is not installed."""
    values = installed(GROUP)
    if not any(value.startswith("preflight_rules.") for value in values):
        yield from _checkout()
    yield from values


def _checkout() -> Iterator[str]:
    """The rule modules of an uninstalled checkout, which stand beside the package under `rules/`."""
    home = Path(__file__).resolve().parents[2] / "rules"
    listed = home.parent / "pyproject.toml"
    if not listed.is_file() or not home.is_dir():
        return
    from preflight.engine.settings import read_toml

    table = read_toml(listed).get("project")
    points = table.get("entry-points", {}).get(GROUP, {}) if isinstance(table, dict) else {}
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))
    yield from points.values()


def _from_file(path: Path) -> ModuleType:
    """A module out of a file that the user trusts. Raises ImportError."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"preflight_trusted_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError("there is no such file")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rules_of(value: str) -> Iterable[type[Rule]]:
    try:
        module = _from_file(Path(value)) if value.endswith(".py") else import_module(value)
    except ImportError as error:
        raise RuleError(f"the rules of {value} cannot be imported: {error}") from error
    listed = getattr(module, "RULES", None)
    if not isinstance(listed, tuple) or not all(isinstance(one, type) and issubclass(one, Rule) for one in listed):
        raise RuleError(f"{value} has no tuple RULES of Rule classes")
    return listed


def of_problem(problem: Problem) -> Finding:
    """What a reader found malformed, where no rule speaks of it."""
    proposals: tuple[Proposal, ...] = ()
    if problem.fix is not None:
        edit = Edit(problem.origin.path, problem.origin.span, problem.fix)
        safety = Safety.safe if problem.safe else Safety.unsafe
        proposals = (Proposal(f"write `{problem.fix}`", safety=safety, edits=(edit,)),)
    return Finding(
        rule=problem.rule,
        severity=Severity(problem.severity),
        confidence=Confidence.high,
        message=problem.message,
        origin=problem.origin,
        related=problem.related,
        proposals=proposals,
    )


def enabled(
    settings: Settings, select: Iterable[str], ignore: Iterable[str], known: Mapping[str, type[Rule]]
) -> frozenset[str]:
    """Names of the rules to run: what the command line selects, else the settings, else all but previews.

    What is ignored on either side is left out. Raises UsageError or SettingsError for a name that is no rule's.
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


def options_of(rule: type[Rule], settings: Settings) -> Options:
    """A rule's own options out of `[tool.preflight.rules.NAME]`. Raises SettingsError."""
    found = settings.rules.get(rule.name)
    extra = found.model_extra or {} if found is not None else {}
    try:
        return rule.options.model_validate(extra)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = ".".join(map(str, details["loc"]))
        raise SettingsError(f"tool.preflight.rules.{rule.name}.{key}: {details['msg']}") from error
