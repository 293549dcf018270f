"""Rules: none is found in the checked tree, and a trusted one that ends the process does not make a check pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bait import Bait, Ended, in_process

Command = Callable[..., Ended]
RULE = """\
import sys
from preflight.vocabulary.rule import Rule


class Quits(Rule):
    '''It ends the process.'''

    name = "quits"
    summary = "It ends the process."

    def check(self, case):
        {statement}
        yield


RULES = (Quits,)
"""


@pytest.fixture
def bait(tmp_path: Path) -> Bait:
    return Bait(tmp_path, names=())


@pytest.fixture
def command(bait: Bait, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return in_process(bait, monkeypatch, capsys)


# --- plugins ----------------------------------------------------------------------------------------------------------


SLOW_PATHS = [
    pytest.param(path, marks=pytest.mark.slow) for path in (":", ".", "{home}", "{home}/packed.zip", "/proc/self/cwd")
]


@pytest.mark.parametrize("path", ["", *SLOW_PATHS])
def test_no_plugin_is_found_in_the_tree(bait: Bait, path: str) -> None:
    from zipfile import ZipFile

    with ZipFile(bait.home / "packed.zip", "w") as archive:
        for name in ("METADATA", "entry_points.txt"):
            archive.write(bait.home / "evil-1.0.dist-info" / name, f"evil-1.0.dist-info/{name}")
        archive.write(bait.home / "evil_rules.py", "evil_rules.py")
    for command in (("-m", "preflight"), ("-c", "from preflight.__main__ import main; main()")):
        done, markers = bait.run(
            sys.executable, *command, "check", "sweep.yaml", PYTHONPATH=path.format(home=bait.home)
        )
        assert done.returncode == 0, done.stderr
        assert markers == set()


def test_plugins_of_an_environment_inside_the_tree_are_found(bait: Bait) -> None:
    """An environment of the user's often lies in the project: what is installed there counts."""
    import venv

    venv.create(bait.home / ".venv", symlinks=True)
    [site] = (bait.home / ".venv/lib").glob("python3*/site-packages")
    found = [path for path in sys.path if path and Path(path).is_dir()]
    (site / "here.pth").write_text("\n".join(found) + "\n")
    for name in ("evil_rules.py", "evil-1.0.dist-info"):
        (bait.home / name).rename(site / name)
    _, markers = bait.run(str(bait.home / ".venv/bin/python"), "-I", "-m", "preflight", "rule")
    assert markers == {"evil_rules"}


# --- rules that the user trusts ---------------------------------------------------------------------------------------

STATEMENTS = {
    "sys.exit": "sys.exit(0)",
    "SystemExit": "raise SystemExit",
    "another end": "raise type('End', (BaseException,), {})('x')",
    "GeneratorExit": "raise GeneratorExit",
    "an error": "raise ValueError('x')",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_rule_that_ends_the_process(bait: Bait, command: Command, statement: str) -> None:
    rule = bait.write("rules/quits.py", RULE.format(statement=statement))
    for more in (("--exit-zero",), ("--fix",), ("--diff",), ()):
        done, _ = command("check", "sweep.yaml", "--trust", str(rule), *more)
        assert done.returncode == 2, done.stdout
        assert "Traceback" not in done.stderr
    assert "internal-error" in done.stdout
    assert "the rule quits failed" in done.stdout


@pytest.mark.parametrize(("statement", "status"), [(STATEMENTS["sys.exit"], 2), ("raise KeyboardInterrupt", 130)])
def test_the_process_itself_ends_as_it_should(bait: Bait, statement: str, status: int) -> None:
    """An interrupt is as when the user does it: no clean check either."""
    rule = bait.write("rules/quits.py", RULE.format(statement=statement))
    done, _ = bait.run(sys.executable, "-I", "-m", "preflight", "check", "sweep.yaml", "--trust", str(rule))
    assert done.returncode == status


@pytest.mark.parametrize("text", ["raise SystemExit(0)", "import sys; sys.exit()", "1 / 0", "def", "RULES = 3",
                                  "raise type('End', (BaseException,), {})('x')"])  # fmt: skip
def test_a_file_of_rules_that_cannot_be_loaded(bait: Bait, command: Command, text: str) -> None:
    rule = bait.write("rules/quits.py", text + "\n")
    done, _ = command("check", "sweep.yaml", "--trust", str(rule))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "quits.py" in done.stderr
