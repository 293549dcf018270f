"""What other distributions add: what cannot be used is one line that names the distribution, then what is used."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from command_line import preflight
from distributions import forget, install

from preflight.dialects import may_recognise
from preflight.engine import registry
from preflight.machines.gpu_file import GpuFile
from preflight.memory.device.optimizers import FOREACH_BEFORE_2_1, known, step
from preflight.memory.device.workloads.image_models import ImageModel
from preflight.memory.device.workloads.registry import KINDS as KINDS_OF_OURS
from preflight.memory.device.workloads.registry import kinds
from preflight.system import entry_points
from preflight.system.entry_points import AddedEntry, installed
from preflight.vocabulary.spelling import OPTIMIZERS

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = count()
Add = Callable[..., str]

FAMILY = {"context": [0.1, 0.2, 0.3], "nccl": [0, 0.1, 0.2], "note": "measured here"}
ROW = {"name": "Q9", "capacity_gib": 10, "family": "q", "compute_capability": [9, 0], "source": "a datasheet"}


def gpu_file(figures: object = FAMILY, **row: object) -> str:
    return json.dumps({"families": {"q": figures}, "gpus": [{**ROW, **row}]})


def optimizer(row: str) -> str:
    return f"from preflight.vocabulary.optimizer import Copies, Optimizer, Step\nOPTIMIZERS = ({row},)\n"


DIALECT = """\
NAME = {name!r}
SUFFIXES = {suffixes}
def recognises(source, project):
    return False
def read(source, call, project):
    raise NotImplementedError
"""
KIND = """\
from preflight.memory.device.law.workload import Workload
class Kind(Workload):
    kind = {kind!r}
    @classmethod
    def knows(cls, asked): return False
    @classmethod
    def resolve(cls, asked): raise NotImplementedError
    def wire(self): return {{}}
    {filed} = property(lambda self: "x")
"""


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Installs a distribution with one entry point; gives the name of its package."""
    site = tmp_path / "site"
    site.mkdir()

    def added(group: str, text: str, distribution: str = "house-parts") -> str:
        package = f"house_parts_{next(NUMBERS)}"
        name = "gpus.json" if group == entry_points.GPUS else "part.py"
        suffix = {entry_points.GPUS: ":gpus.json", entry_points.WORKLOADS: ".part:Kind"}.get(group, ".part")
        install(
            site,
            distribution,
            {group: {"x": package + suffix}},
            {f"{package}/__init__.py": "", f"{package}/{name}": text},
        )
        forget()
        return package

    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    forget()
    yield added
    monkeypatch.undo()
    forget()


GPUS, OPTS, DIALECTS, KINDS = (
    entry_points.GPUS, entry_points.OPTIMIZERS, entry_points.DIALECTS, entry_points.WORKLOADS
)  # fmt: skip
ESTIMATE = (
    "estimate",
    "gpt2",
    "--set",
    "train.batch_size=1",
    "--set",
    "train.seq_len=64",
    "--set",
    "train.optimizer=q",
)


@pytest.mark.parametrize(
    ("group", "text", "command", "message"),
    [
        (GPUS, "{", ("machine", "list"), "the file: Invalid JSON"),
        (GPUS, gpu_file(name="T4"), ("machine", "list"), "preflight itself has the GPU T4"),
        (GPUS, gpu_file(capacity_gib="much"), ("machine", "list"), "gpus.0.capacity_gib: "),
        (GPUS, gpu_file(family="h99"), ("machine", "list"), "Q9: there is no family h99"),
        (GPUS, gpu_file(source=""), ("machine", "list"), "gpus.0.source: "),
        (GPUS, gpu_file(colour="red"), ("machine", "list"), "gpus.0.colour: "),
        (GPUS, gpu_file({**FAMILY, "context": [0.3, 0.2, 0.1]}), ("machine", "list"), "in ascending order"),
        (GPUS, gpu_file({**FAMILY, "nccl": [1]}), ("machine", "list"), "families.q.nccl"),
        (OPTS, "import nowhere_at_all", ESTIMATE, "cannot be loaded: No module named 'nowhere_at_all'"),
        (OPTS, "raise SystemExit(0)", ESTIMATE, "cannot be loaded: SystemExit"),
        (OPTS, "", ESTIMATE, "it has no tuple OPTIMIZERS"),
        (OPTS, optimizer("3"), ESTIMATE, "it has no tuple OPTIMIZERS"),
        (OPTS, optimizer("Optimizer('adamw', Copies(1))"), ESTIMATE, "preflight itself has the law of adamw"),
        (OPTS, optimizer("Optimizer('', Copies(1))"), ESTIMATE, "it has no name"),
        (OPTS, optimizer("Optimizer('q', Copies(1), ('Q',))"), ESTIMATE, "lower-case texts"),
        (OPTS, optimizer("Optimizer('q', Copies(1), ('adamw_torch',))"), ESTIMATE, "is preflight's own, of adamw"),
        (OPTS, optimizer("Optimizer('q', lambda how, params: 1 / 0)"), ESTIMATE, "its step fails (foreach)"),
        (OPTS, optimizer("Optimizer('q', lambda how, params: 7)"), ESTIMATE, "its step must give a Step"),
        (OPTS, optimizer("Optimizer('q', lambda how, params: Step((0.5,), ()))"), ESTIMATE, "whole numbers of bytes"),
        (DIALECTS, "", ("check", "."), "it has no text NAME"),
        (DIALECTS, "NAME = 'q'", ("check", "."), "it has no tuple SUFFIXES"),
        (DIALECTS, "NAME = 'q'\nSUFFIXES = ('.q',)", ("check", "."), "it has no function recognises"),
        (DIALECTS, DIALECT.format(name="wandb", suffixes=(".q",)), ("check", "."), "preflight itself has the dialect"),
        (KINDS, "Kind = 3", ESTIMATE, "it is no subclass of"),
        (KINDS, "", ESTIMATE, "has no attribute 'Kind'"),
        (KINDS, KIND.format(kind="yolo", filed="filed"), ESTIMATE, "preflight itself has the kind of model yolo"),
        (KINDS, KIND.format(kind="mine", filed="other"), ESTIMATE, "Kind does not define filed"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(
    add: Add, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str,
    text: str, command: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    add(group, text)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.q").write_text("x")
    monkeypatch.chdir(tmp_path / "work")
    run = preflight(capsys, *command)
    assert run.status == 2
    assert message in run.err
    assert "of the distribution house-parts" in run.err
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("group", "text", "command", "message"),
    [
        (GPUS, gpu_file(), ("machine", "list"), "the GPU Q9 is also that of"),
        (OPTS, optimizer("Optimizer('q', Copies(1))"), ESTIMATE, "the optimizer q is also that of"),
        (DIALECTS, DIALECT.format(name="q", suffixes=(".q",)), ("check", "."), "the dialect q is also that of"),
        (KINDS, KIND.format(kind="q", filed="filed"), ESTIMATE, "the kind of model q is also that of"),
    ],
)
def test_two_distributions_with_one_name(
    add: Add, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str,
    text: str, command: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    add(group, text, "first-house")
    add(group, text, "second-house")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.q").write_text("x")
    monkeypatch.chdir(tmp_path / "work")
    run = preflight(capsys, *command)
    assert run.status == 2
    assert message in run.err
    assert "first-house" in run.err
    assert "second-house" in run.err


@pytest.mark.parametrize("command", [("machine", "list"), ESTIMATE, ("rule",)])
def test_metadata_that_cannot_be_read(
    add: Add, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    add(GPUS, gpu_file())
    (tmp_path / "site" / "house_parts-1.0.0.dist-info" / "entry_points.txt").write_text("[preflight.gpus]\nnonsense\n")
    registry.rules.cache_clear()
    run = preflight(capsys, *command)
    registry.rules.cache_clear()
    assert run.status == 2
    assert "entry_points.txt of the distribution house-parts" in run.err
    assert len(run.err.splitlines()) == 1


def test_the_first_of_two_versions_counts(add: Add, tmp_path: Path) -> None:
    install(tmp_path / "older", "house-parts", {GPUS: {"x": "older:gpus.json"}})
    package = add(GPUS, gpu_file())
    sys.path.append(str(tmp_path / "older"))
    assert [one.value for one in installed(GPUS)] == [f"{package}:gpus.json"]


def test_a_distribution_in_the_checked_tree_does_not_count(
    add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = add(GPUS, gpu_file())
    assert installed(GPUS) == (AddedEntry(f"{package}:gpus.json", "house-parts", "x"),)
    monkeypatch.setattr(sys, "argv", ["preflight", "check", str(tmp_path)])
    assert installed(GPUS) == ()


def test_a_gpu(add: Add, capsys: pytest.CaptureFixture[str]) -> None:
    add(GPUS, gpu_file(aliases=["Q9 10GB"]))
    assert "measured here" in preflight(capsys, "machine", "show", "q9").out
    assert "Q9" in preflight(capsys, "machine", "list").out


def test_an_optimizer(add: Add) -> None:
    add(OPTS, optimizer("Optimizer('q', Copies(3, foreach=2), ('qopt',))"))
    found = step("q", FOREACH_BEFORE_2_1, [(10, 4)])
    assert found is not None
    assert (found.states, found.temporary) == ((40, 40, 40), 80)
    assert OPTIMIZERS["qopt"] == "q"
    assert "q" in known()
    assert OPTIMIZERS["adamw_torch"] == "adamw"


def test_a_dialect_has_its_suffix_walked(add: Add) -> None:
    assert not may_recognise("notes.q")
    add(DIALECTS, DIALECT.format(name="q", suffixes=(".q",)))
    assert may_recognise("notes.q")


def test_a_kind_of_model_is_asked_before_those_that_take_any(add: Add) -> None:
    assert kinds() == KINDS_OF_OURS
    add(KINDS, KIND.format(kind="q", filed="filed"))
    [mine] = {*kinds()} - {*KINDS_OF_OURS}
    assert kinds().index(mine) == KINDS_OF_OURS.index(ImageModel)


def test_our_own_gpus_pass_the_check_of_others() -> None:
    GpuFile.model_validate_json((ROOT / "preflight" / "machines" / "gpus.json").read_text(encoding="utf-8"))


# --- what is read, and by whom ----------------------------------------------------------------------------------------

OUR_TEXT = "[console_scripts]\npreflight = preflight.__main__:main\n\n[preflight.rules]\npreflight = preflight_rules\n"
"""As an installer writes it for preflight's own distribution (pyproject.toml)."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder with preflight's own distribution and one that has nothing for it."""
    install(tmp_path, "preflight-lint", {})
    (tmp_path / "preflight_lint-1.0.0.dist-info" / "entry_points.txt").write_text(OUR_TEXT)
    install(tmp_path, "other", {"console_scripts": {"x": "y:z"}})
    forget()
    yield tmp_path
    forget()


def test_our_own_rules_alone_need_no_library(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tuple(one for one in entry_points._by_library((str(site),)) if one[0] == entry_points.RULES)
    assert asked == ((entry_points.RULES, entry_points.OWN),)
    monkeypatch.setattr(entry_points, "_by_library", None)
    assert entry_points._scan((str(site), str(site / "missing"))) == asked
    assert entry_points._scan((str(site / "other-1.0.0.dist-info"),)) == ()


@pytest.mark.parametrize(
    "text",
    [
        f"{OUR_TEXT}more = house_rules\n", OUR_TEXT.replace("preflight_rules", "house_rules"), "[preflight.rules]\nx\n",
        f"{OUR_TEXT}\n[preflight.dialects]\nx = house\n", "  [ preflight.rules ]\nx = house\n",
    ],
)  # fmt: skip
def test_what_adds_something_is_read_by_the_library(site: Path, text: str) -> None:
    install(site, "house", {})
    (site / "house-1.0.0.dist-info" / "entry_points.txt").write_text(text)
    found = entry_points._scan((str(site),))
    assert found == entry_points._by_library((str(site),))
    assert any(one.distribution == "house" for _, one in found)
