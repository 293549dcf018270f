"""The README: its outputs are what the commands print today, its commands run, its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from processes import HANGS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
COSTLY = ("docs/estimate.md",)
"""Pages whose outputs take more than a second to make."""
EXAMPLE = "examples/readme/sweep.yaml"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """scripts/generate.py, which is no package."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "scripts" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def preflight(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preflight", *arguments]
    env = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8", timeout=HANGS)


def block(kind: str, name: str, language: str) -> str:
    """What stands in the README between a marker and its end, without the fence."""
    found = re.search(
        rf"<!-- {kind}: {re.escape(name)} -->\n\n?```{language}\n(.*?)```\n", README, re.DOTALL
    )  # a command has no blank line above its fence
    assert found is not None, f"no {kind}: {name}"
    return found[1]


@pytest.mark.parametrize(
    "path", [pytest.param(page, marks=pytest.mark.slow if page in COSTLY else ()) for page in ["README.md", *GUIDE]]
)
def test_what_is_shown_is_made_today(path: str, generate: ModuleType) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert generate.with_outputs(text) == text, "run: python scripts/generate.py"


def test_the_first_screen_is_a_sentence_a_sweep_and_its_output() -> None:
    sweep = block("file", EXAMPLE, "yaml")
    assert sweep == (ROOT / EXAMPLE).read_text()
    assert sweep.count("\n") == 12
    assert README.index(sweep) < README.index("$ preflight check") < README.index("\n## ")


def test_a_process_prints_what_the_readme_shows() -> None:
    done = preflight("check", EXAMPLE)
    assert done.returncode == 1, done.stderr
    assert f"$ preflight check {EXAMPLE}\n{done.stdout}" == block("output", f"preflight check {EXAMPLE}", "text")


def test_the_fix_that_is_shown_makes_the_job_fit(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "readme", tmp_path / "readme")
    fixed = preflight("check", "--fix", "readme/sweep.yaml", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    again = preflight("check", "readme/sweep.yaml", cwd=tmp_path)
    assert again.returncode == 0
    assert again.stdout.endswith(": fits\n")

    shown = block("output", f"preflight check --diff {EXAMPLE}", "diff").splitlines()
    added = [line[1:] for line in shown if line.startswith("+") and not line.startswith("+++")]
    before = (ROOT / "examples" / "readme" / "train.py").read_text().splitlines()
    after = (tmp_path / "readme" / "train.py").read_text().splitlines()
    assert added
    assert [line for line in after if line not in before] == added


@pytest.mark.parametrize("name", ["run", "test"])
def test_each_command_is_one_line_that_sets_itself_up(name: str) -> None:
    lines = block("command", name, "console").splitlines()
    assert len(lines) == 1
    steps = [shlex.split(step) for step in lines[0].split("&&")]
    assert steps[0] == ["python3", "-m", "venv", ".venv"]
    assert [words[0] for words in steps[1:]] == [
        ".venv/bin/pip",
        f".venv/bin/{'preflight' if name == 'run' else 'pytest'}",
    ]


@pytest.mark.slow
def test_the_main_command_runs_on_the_shipped_examples() -> None:
    words = shlex.split(block("command", "run", "console").split("&&")[-1])
    done = preflight(*words[1:], "--output-format", "concise")
    assert done.returncode == 0, done.stderr
    assert EXAMPLE in done.stdout
    for incident in (ROOT / "examples" / "incidents").iterdir():
        assert f"examples/incidents/{incident.name}/" in done.stdout


@pytest.mark.parametrize("path", ["README.md", *GUIDE])
def test_links_lead_to_files(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = [link for link in links if not ((ROOT / path).parent / link.split("#")[0]).exists()]
    assert not broken
    assert path != "README.md" or len(links) > 20


def test_every_page_of_the_guide_is_linked_from_its_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    assert [page for page in GUIDE if page != "docs/index.md" and f"({Path(page).name})" not in index] == []


def test_rules_named_in_the_readme_exist() -> None:
    from preflight.engine.registry import rules

    assert set(re.findall(r"docs/rules/([a-z-]+)\.md", README)) - {"index"} <= set(rules())


def test_a_part_of_an_output_is_what_head_and_tail_let_through(generate: ModuleType) -> None:
    whole = generate.shown("preflight rule").splitlines()
    part = generate.shown("preflight rule | head -n 5 | tail -n 2").splitlines()
    assert part == [whole[0], "$ preflight rule | head -n 5 | tail -n 2", *whole[5:7], whole[-1]]


def test_the_figures_are_those_of_the_pages(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / generate.ACCURACY_PAGE).write_text(
        "# Accuracy\n\n<!-- summary -->\n\n"
        "| runs | tier | answered | median error | p90 |\n|---|---|---|---|---|\n"
        "| LoRA | allocated | 3 of 4 | 0.1% | 0.2% |\n"
        "| LoRA | process | 2 of 4 | 1.5% | 3.5% |\n"
        "| detectors | allocated | 0 of 9 | - | - |\n"
        "\n<!-- end of summary -->\n\n"
        "| runs | tier | median error |\n|---|---|---|\n| one | process | 7% |\n"
    )
    (tmp_path / generate.HOST_PAGE).write_text(
        "| group | median error | worst | inside the interval | left out: median | worst |\n|---|---|---|---|---|---|\n"
        "| text | 2.4% | 5.1% | 5 of 5 | 2.4% | 9.9% |\n| **all but long** | 1.2% | 8.0% | 9 of 10 | 1.6% | 22.0% |\n"
    )
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.figures().splitlines() == [
        "| runs | process | reserved | allocated |",
        "|---|---|---|---|",
        "| LoRA | 1.5% (3.5%), 2 of 4 |  | 0.1% (0.2%), 3 of 4 |",
        "| detectors |  |  | 0 of 9 |",
        "",
        "Host memory of loaders and checkpoints: median error 1.2%, 8.0% at worst, 9 of 10 in their intervals.",
    ]
