"""The source against its floor plan, the floor plan against its own rules, and the script that compares them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).resolve().parents[2]
PLAN = Path(__file__).with_name("floor_plan.toml")

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _script() -> ModuleType:
    """scripts/architecture.py, which is no package."""
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "scripts" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


architecture = _script()

# ------------------------------------------------------------------------------------------------ the file of the plan

Reason = Annotated[str, Field(min_length=15)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Floor(Table):
    rooms: list[str] = Field(min_length=1)


class InnerCycle(Table):
    room: str
    files: int = Field(ge=2)
    reason: Reason


class StartUpRow(Table):
    file: str
    imports: str = Field(pattern=r"^preflight(\.|$)")
    reason: Reason


class StartUp(Table):
    packages: list[str]
    rows: list[StartUpRow]


class Top(Table):
    modules: list[str]


class Lengths(Table):
    shortest: int
    longest: int
    exceptions: dict[str, Reason]


class Limit(Table):
    now: int = Field(ge=0)
    goal: int = Field(ge=0)


class FloorPlan(Table):
    """What the file may hold."""

    stand_alone: list[str]
    floors: list[Floor]
    imports: dict[str, list[str]]
    inner_cycles: list[InnerCycle] = []
    start_up: StartUp
    by_name: dict[str, Reason]
    top: Top
    lengths: Lengths
    limits: dict[str, Limit]


@pytest.fixture(scope="module")
def plan() -> FloorPlan:
    return FloorPlan.model_validate(tomllib.loads(PLAN.read_text(encoding="utf-8")))


def test_the_plan_names_every_room_once(plan: FloorPlan) -> None:
    rooms = [room for floor in plan.floors for room in floor.rooms]
    assert sorted(rooms) == sorted(set(rooms))
    named = {*plan.imports, *plan.stand_alone, *(room for to in plan.imports.values() for room in to)}
    assert named <= set(rooms)
    assert all(len(to) == len(set(to)) for to in plan.imports.values())


def test_the_plan_points_down(plan: FloorPlan) -> None:
    depth = {room: number for number, floor in enumerate(plan.floors) for room in floor.rooms}
    assert [(start, to) for start, rooms in plan.imports.items() for to in rooms if depth[start] >= depth[to]] == []


def test_the_plan_keeps_its_own_limits(plan: FloorPlan) -> None:
    limits = {name: limit.now for name, limit in plan.limits.items()}
    assert len(plan.floors) <= limits["floors"] <= 10
    assert sum(map(len, plan.imports.values())) <= limits["arrows"]
    assert len(plan.inner_cycles) <= limits["inner_cycles"] <= 5
    never = ("room_cycles", "arrows_not_in_plan", "rooms_not_in_plan", "modules_at_the_top", "imports_in_functions")
    assert [name for name in never if limits[name]] == []
    assert (plan.lengths.shortest, plan.lengths.longest) == (60, 500)
    assert [name for name, limit in plan.limits.items() if limit.now < limit.goal] == []


def test_the_plan_limits_what_is_measured(plan: FloorPlan) -> None:
    measured = architecture.House({}, architecture.read_plan(PLAN)).measured()
    assert set(plan.limits) <= set(measured)


def test_rooms_that_stand_alone_import_nothing(plan: FloorPlan) -> None:
    assert not set(plan.stand_alone) & set(plan.imports)
    assert "tracer" in plan.stand_alone
    assert not any(room.split("/")[0] == "dialects" for room in plan.imports["reports"])
    assert not any("preflight_rules" in rooms for rooms in plan.imports.values())


def test_the_source_keeps_the_plan() -> None:
    house = architecture.House(architecture.read_source(), architecture.read_plan(PLAN))
    assert list(architecture.not_allowed(house)) == []


# -------------------------------------------------------------------------------------------------- a house to look at

SMALL = """
stand_alone = ["tracer"]
inner_cycles = [{ room = "python", files = 2, reason = "an interpreter is recursive" }]
floors = [
    { rooms = ["cli", "commands"] }, { rooms = ["engine", "reports"] },
    { rooms = ["dialects/wandb", "dialects", "python"] },
    { rooms = ["vocabulary"] }, { rooms = ["tracer"] },
]
imports = { "commands" = ["engine"], "engine" = ["vocabulary"], "dialects/wandb" = ["vocabulary"] }
start_up = { packages = ["json"], rows = [{ file = "preflight/engine", imports = "preflight.dialects", reason = "" }] }
by_name = { "preflight/cli.py" = "a command" }
top = { modules = ["__init__.py", "cli.py"] }
lengths = { shortest = 1, longest = 4, exceptions = {} }
[limits]
arrows_not_in_plan = { now = 0, goal = 0 }
room_cycles = { now = 0, goal = 0 }
inner_cycles = { now = 1, goal = 1 }
modules_at_the_top = { now = 0, goal = 0 }
imports_in_functions = { now = 0, goal = 0 }
files_of_wrong_length = { now = 0, goal = 0 }
lines = { now = 30, goal = 20 }
"""


def _house(folder: Path, files: dict[str, str], plan: str = SMALL) -> object:
    for name, text in {"preflight/cli.py": "", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or "pass\n", encoding="utf-8")
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    return architecture.House(architecture.read_source(folder), architecture.read_plan(folder / "plan.toml"))


NOTHING = "def f():\n    pass\n"
VALUES = {"preflight/vocabulary/values.py": ""}
REFUSED = {
    "an arrow that is not in the plan": (
        {"preflight/engine/a.py": "import preflight.python.b\n", "preflight/python/b.py": ""},
        ["arrows not in plan: 1, at most 0"],
    ),
    "an arrow in a function": (
        {
            "preflight/vocabulary/values.py": "def f():\n    from preflight.engine import a\n",
            "preflight/engine/a.py": "",
        },
        ["arrows not in plan: 1, at most 0", "imports in functions: 1, at most 0"],
    ),
    "an arrow for a type": (
        {
            "preflight/reports/a.py": "if TYPE_CHECKING:\n    from preflight.engine.b import B\n",
            "preflight/engine/b.py": "",
        },
        ["arrows not in plan: 1, at most 0"],
    ),
    "a relative arrow": (
        {"preflight/reports/a.py": "from ..engine import b\n", "preflight/engine/b.py": ""},
        ["arrows not in plan: 1, at most 0"],
    ),
    "a cycle between rooms": (
        {
            "preflight/engine/a.py": "import preflight.vocabulary.b\n",
            "preflight/vocabulary/b.py": "import preflight.engine.a\n",
        },
        ["arrows not in plan: 1, at most 0", "room cycles: 1, at most 0"],
    ),
    "an import that hides a cycle, in the start-up list or not": (
        {
            "preflight/engine/a.py": "def f():\n    import preflight.dialects.b\n",
            "preflight/dialects/b.py": "import preflight.engine.a\n",
        },
        ["arrows not in plan: 2, at most 0", "room cycles: 1, at most 0", "imports in functions: 1, at most 0"],
    ),
    "a cycle of files that has no reason": (
        {
            "preflight/engine/a.py": "import preflight.engine.b\n",
            "preflight/engine/b.py": "import preflight.engine.a\n",
        },
        ["not listed with a reason: preflight/engine/a.py preflight/engine/b.py"],
    ),
    "a cycle of more files than its reason is for": (
        {
            "preflight/python/a.py": "import preflight.python.b\n",
            "preflight/python/b.py": "import preflight.python.c\n",
            "preflight/python/c.py": "import preflight.python.a\n",
        },
        ["not listed with a reason: preflight/python/a.py preflight/python/b.py preflight/python/c.py"],
    ),
    "a rule": (
        {"preflight/engine/a.py": "from preflight_rules.gpu import Rule\n"},
        ["preflight/engine/a.py:1 imports a rule (preflight_rules.gpu)"],
    ),
    "a record that is a dataclass, where preflight's packages are": (
        {
            "preflight/engine/a.py": "from dataclasses import dataclass\n",
            "preflight/tracer/b.py": "import dataclasses\n",
        },
        [
            "preflight/engine/a.py:1 imports dataclasses: a record is a msgspec.Struct, whose class is made at once",
        ],
    ),
    "a tracer that needs preflight": (
        {"preflight/tracer/a.py": "import preflight.vocabulary.values\n", **VALUES},
        [
            "preflight/tracer/a.py:1 imports preflight.vocabulary.values, but tracer stands alone",
            "arrows not in plan: 1, at most 0",
        ],
    ),
    "a report that knows a dialect": (
        {"preflight/reports/a.py": "import preflight.dialects.wandb.b\n", "preflight/dialects/wandb/b.py": ""},
        [
            "preflight/reports/a.py:1 imports preflight.dialects.wandb.b: a report knows no dialect",
            "arrows not in plan: 1, at most 0",
        ],
    ),
    "a name that is computed": (
        {"preflight/engine/a.py": "from importlib import import_module\nimport_module(name)\n"},
        ["preflight/engine/a.py:2 imports a module whose name is computed"],
    ),
    "a module at the top": (
        {"preflight/target.py": ""},
        ["modules at the top: 1, at most 0"],
    ),
    "a file that is too long": ({"preflight/engine/a.py": "\n" * 5}, ["files of wrong length: 1, at most 0"]),
    "too many lines": (
        {f"preflight/engine/{name}.py": "\n" * 4 for name in "abcdefgh"},
        ["lines: 35, at most 30"],
    ),
}
ALLOWED = {
    "arrows of the plan": {
        "preflight/commands/a.py": "import preflight.engine.b\n",
        "preflight/engine/b.py": "from preflight.vocabulary.values import Const\n",
        **VALUES,
    },
    "a quick start": {
        "preflight/engine/a.py": "def f():\n    import json\n    import preflight.engine.b\n",
        "preflight/engine/b.py": "",
    },
    "a cycle with a reason": {
        "preflight/python/a.py": "import preflight.python.b\n",
        "preflight/python/b.py": "import preflight.python.a\n",
    },
    "other packages": {"preflight/tracer/a.py": "import torch\nfrom .b import c\n", "preflight/tracer/b.py": ""},
    "the version": {"preflight/reports/a.py": "from preflight import __version__\n", "preflight/__init__.py": ""},
    "a command by its name": {"preflight/cli.py": "import_module(name)\n"},
    "a package that holds rooms": {"preflight/dialects/__init__.py": "", "preflight/dialects/wandb/a.py": ""},
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name: str, tmp_path: Path) -> None:
    files, problems = REFUSED[name]
    found = list(architecture.not_allowed(_house(tmp_path, {"preflight/engine/x.py": NOTHING, **files})))
    assert found == problems


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_allowed(name: str, tmp_path: Path) -> None:
    plan = SMALL.replace('imports = "preflight.dialects"', 'imports = "preflight.engine"')
    files = {"preflight/engine/x.py": NOTHING, **ALLOWED[name]}
    assert list(architecture.not_allowed(_house(tmp_path, files, plan))) == []


def test_what_the_plan_says_of_a_file_that_is_gone(tmp_path: Path) -> None:
    plan = SMALL.replace('"preflight/cli.py"', '"preflight/shell.py"')
    found = list(architecture.not_allowed(_house(tmp_path, {"preflight/engine/a.py": ""}, plan)))
    assert found == ["the plan names preflight/shell.py, which is not there"]
    moving = {"preflight/reports/a.py": "from preflight.engine import a\n"}  # files still move: nothing is asked
    assert list(architecture.not_allowed(_house(tmp_path, moving, plan))) == ["arrows not in plan: 1, at most 0"]


def test_cycles() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["e", "a"], "e": ["d"], "f": ["f"], "g": []}
    assert architecture.cycles(graph) == [["a", "b", "c"], ["d", "e"]]


def test_floors() -> None:
    graph = {"top": ["left", "low"], "left": ["right"], "right": ["left", "low"], "low": []}
    assert architecture.floors(graph) == {"top": 2, "left": 1, "right": 1, "low": 0}


def test_limits_are_only_lowered() -> None:
    text = "arrows = { now = 9, goal = 1 }\n[limits]\narrows = { now = 9, goal = 1 }\nlines = { now = 20, goal = 15 }\n"
    lowered = (
        "arrows = { now = 9, goal = 1 }\n[limits]\narrows = { now = 7, goal = 1 }\nlines = { now = 20, goal = 15 }\n"
    )
    assert architecture.tightened(text, {"arrows": 7, "lines": 40}) == lowered
    least = lowered.replace("now = 7", "now = 1").replace("now = 20", "now = 15")
    assert architecture.tightened(text, {"arrows": 0, "lines": 10}) == least


def test_the_report_shows_rooms_arrows_and_cycles(tmp_path: Path) -> None:
    files = {
        "preflight/engine/a.py": "import preflight.vocabulary.b\nimport preflight.vocabulary.c\n",
        "preflight/vocabulary/b.py": "def f():\n    import preflight.engine.a\n",
        "preflight/vocabulary/c.py": "",
        "preflight/target.py": "def f():\n    import json\n",
    }
    text = "\n".join(architecture.report(_house(tmp_path, files)))
    assert "    0    1      2  target   (not in the plan)" in text
    assert "    engine -> vocabulary (1)" in text
    assert "  ! vocabulary -> engine (1)" in text
    assert "  2: engine vocabulary" in text
    assert "    1 (0)  preflight/vocabulary/b.py" in text
    assert "    1 (1)  preflight/target.py" in text
