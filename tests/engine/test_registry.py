"""How rules are found: a module with RULES, a package of one rule a module, and what neither may be."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from preflight.engine import check as engine
from preflight.engine import registry
from preflight.engine.files import Batch
from preflight.engine.registry import RuleError
from preflight.system.entry_points import AddedEntry
from preflight.vocabulary.rule import Options, Rule
from preflight.vocabulary.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = count()
Load = Callable[[Mapping[str, str]], Mapping[str, type[Rule]]]


def rule(name: str, *, listed: bool = False) -> str:
    text = f"from preflight.api import Rule\nclass R(Rule):\n    name = '{name}'\n    summary = 's'\n"
    return text + "RULES = (R,)\n" * listed


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Writes a package and gives the rules of an installation whose one entry point names it."""

    def rules(files: Mapping[str, str]) -> Mapping[str, type[Rule]]:
        package = f"house_rules_{next(NUMBERS)}"
        for name, text in {"__init__.py": "", **files}.items():
            (tmp_path / package / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / package / name).write_text(text)
        monkeypatch.setattr(
            registry, "installed", lambda group: [AddedEntry(registry.OWN_PACKAGE, "p"), AddedEntry(package, "house")]
        )
        registry.rules.cache_clear()
        return {name: one for name, one in registry.rules().items() if one.__module__.startswith(package)}

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield rules
    registry.rules.cache_clear()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"too_large.py": ""}, r"too_large must define one rule, called too-large"),
        ({"too_large.py": rule("too-small")}, r"too_large must define one rule, called too-large"),
        ({"too_large.py": "from preflight_rules.gpu_memory_tight import GpuMemoryTight\n"}, r"must define one rule"),
        ({"too_large.py": "import nowhere\n"}, r"cannot be imported: No module named 'nowhere'"),
        ({"gpu_memory_tight.py": rule("gpu-memory-tight")}, r"two rules are called gpu-memory-tight"),
        ({"internal_error.py": rule("internal-error")}, r"the name internal-error is preflight's own"),
        ({"__init__.py": "RULES = [1]\n"}, r"no tuple RULES"),
    ],
    ids=["no rule", "another name", "imported", "broken", "same name twice", "the engine's own", "no rules listed"],
)
def test_packages_that_are_refused(load: Load, files: dict[str, str], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        load(files)


def test_every_module_of_a_package_is_a_rule(load: Load) -> None:
    files = {"b_two.py": rule("b-two"), "a_one.py": rule("a-one"), "_words.py": "", "shared/tables.py": "X = 1\n"}
    assert list(load(files)) == ["a-one", "b-two"]


def test_a_package_may_list_its_rules(load: Load) -> None:
    assert list(load({"__init__.py": rule("listed", listed=True), "other.py": rule("other")})) == ["listed"]


def test_our_own_rules_are_found_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda group: [])
    registry.rules.cache_clear()
    files = {path.stem for path in (ROOT / "rules" / registry.OWN_PACKAGE).glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in registry.rules()} == files
    registry.rules.cache_clear()


def test_options_are_those_that_the_class_names() -> None:
    class Large(Options):
        limit: int = 3

    class WithOptions(Rule[Large]):
        name = "with-options"

    class Child(WithOptions):
        name = "child"

    class Plain(Rule):
        name = "plain"

    assert (WithOptions.options, Child.options, Plain.options) == (Large, Large, Options)


def test_the_rule_of_the_guide_does_what_it_says(load: Load, tmp_path: Path) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a rule")[2]
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    assert code is not None
    [made] = load({"batch_is_odd.py": code[1]}).values()
    for example in made.examples:
        (tmp_path / "train.py").write_text(example.files["train.py"].lstrip("\n"))
        batch = Batch(tmp_path, Settings(select=["batch-is-odd"]), None, ("train.py",), ())
        found = engine.check(*engine.setup(batch, engine.CheckOptions(), tmp_path)).findings
        assert [one.rule for one in found] == [made.name] * example.finds
        assert all(words in found[0].message for words in example.says)
