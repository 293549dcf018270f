"""How processes are started: few variables, no checked tree, and no program out of one."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS

from preflight.cli import run
from preflight.engine.standings import by_hand
from preflight.memory.device.fit import subprocess as fit_subprocess
from preflight.system import import_path, processes
from preflight.vocabulary.job import build
from preflight.vocabulary.tracing import SHIPPED_ONLY, TRACE

PACKAGE = Path(processes.__file__).parents[1]
STARTS = re.compile(
    r"subprocess\.(run|Popen|call|check_call|check_output)|os\.(system|popen|(exec|spawn|posix_spawn)\w*)"
)
SHOW = """
import json, os, sys
print(json.dumps([os.getcwd(), sorted(os.environ), sys.path, sys.flags.no_user_site, hash("a")]))
"""


def test_nothing_else_starts_a_process() -> None:
    """`processes` alone; the gate becomes the user's own sbatch (handover), and a dry run is asked for by name."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not STARTS.search(text):  # which also a comment may say
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and STARTS.fullmatch(ast.unparse(node)):
                found.add(path.relative_to(PACKAGE).as_posix())
    dry_run = {"dryrun/process.py", "dryrun/inside/jail.py"}
    run = {"watch/process.py", "guard/laws.py"}  # the user's command as it is, and preflight itself
    assert found == {"system/processes.py", "slurm/sbatch/handover.py", *dry_run, *run}


def test_what_runs_before_the_path_is_clean_imports_nothing() -> None:
    allowed = {
        # the last three when it is clean
        "__main__.py": {"gc", "sys", "preflight.system", "preflight.cli", "preflight.reports.streams", "importlib"},
        "system/import_path.py": {"os", "sys"},
        "system/__init__.py": set(),
        "__init__.py": {"preflight._version", "importlib"},  # which a build wrote; when a notebook asks
    }
    for name, modules in allowed.items():
        nodes = list(ast.walk(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))))
        found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        found |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert found <= modules
    assert {"gc", "sys"} <= set(sys.builtin_module_names)  # no file of that name is ever imported


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that is the current directory, with variables that lead into it."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "lib").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["preflight"])
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/lib:/usr/lib:lib:")
    monkeypatch.setenv("LD_PRELOAD", "")
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONINSPECT", "HF_HOME", "TOKEN"):
        monkeypatch.setenv(name, str(tmp_path / "lib"))
    return tmp_path


def test_an_isolated_python(tree: Path) -> None:
    cwd, names, path, _, _ = json.loads(processes.ask_python(None, SHOW, (), 60))
    assert cwd == processes.NEUTRAL
    assert not [name for name in names if name.startswith("PYTHON") or name in ("LD_PRELOAD", "HF_HOME", "TOKEN")]
    assert not [entry for entry in path if not entry or entry.startswith(str(tree))]
    assert processes.environment()["LD_LIBRARY_PATH"] == "/usr/lib"


def test_a_python_with_a_seed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As isolated as -I, but strings hash alike in every process."""
    found = []
    for _ in range(2):
        with (tmp_path_factory.mktemp("log") / "complaints").open("wb") as complaints:
            started = processes.start_python(None, SHOW, complaints, seed=0)
            found.append(json.loads(started.communicate(timeout=HANGS)[0]))
    cwd, names, path, no_user_site, _ = found[0]
    assert found[0] == found[1]
    assert (cwd, no_user_site) == (processes.NEUTRAL, 1)
    assert [name for name in names if name.startswith("PYTHON")] == ["PYTHONHASHSEED", "PYTHONSAFEPATH"]
    assert not [entry for entry in path if not entry or entry.startswith(str(tree))]


@pytest.mark.parametrize("path", ["", ".", "lib", ":", "./lib:../lib", "/proc/self/cwd/lib"])
def test_no_program_is_found_in_the_tree(tree: Path, path: str) -> None:
    for name in ("scontrol", "lib/scontrol"):
        (tree / name).write_text("#!/bin/sh\n")
        (tree / name).chmod(0o755)
    assert processes.found_program("scontrol", {"PATH": path}) is None
    assert processes.found_program("sh", {"PATH": f"{path}:/bin"}) == "/bin/sh"


def test_no_sbatch_is_found_in_the_tree(tree: Path) -> None:
    from preflight.slurm.sbatch.real import find_real
    from preflight.vocabulary.errors import UsageError

    (tree / "sbatch").write_text("#!/bin/sh\n")
    (tree / "sbatch").chmod(0o755)
    for path in ("", ".", ":", "/proc/self/cwd"):
        with pytest.raises(UsageError, match="no sbatch in PATH"):
            find_real(None, {"PATH": path})


def test_commands_of_the_cluster_have_the_users_environment(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    done = processes.ask_program(["sh", "-c", "echo $SLURM_CONF $PWD"], 10)
    assert done.stdout.split() == ["/etc/slurm/slurm.conf", processes.NEUTRAL]
    with pytest.raises(FileNotFoundError):
        processes.ask_program(["no-such-program-anywhere"], 10)


# --- which entries lead into a tree -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry", ["", ".", "lib", "{tree}", "{tree}/lib", "{tree}/lib/..", "/proc/self/cwd", "{tree}/link"]
)
def test_foreign(tree: Path, entry: str) -> None:
    (tree / "link").symlink_to("lib")
    assert import_path.foreign(entry.format(tree=tree), import_path.checked_trees([]))


@pytest.mark.parametrize("entry", ["/usr/lib/python3", "{tree}-other", "{tree}/..", "{tree}/venv/lib", "{tree}/out"])
def test_not_foreign(tree: Path, entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the tree, above it, an environment in it, and a link out of it."""
    (tree / "out").symlink_to("/usr")
    (tree / "venv/lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tree / "venv"))
    assert not import_path.foreign(entry.format(tree=tree), import_path.checked_trees([]))


def test_a_home_under_version_control_is_no_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    (tree / "project").mkdir()
    os.chdir(tree / "project")
    assert import_path.checked_trees([]) == [str((tree / "project").resolve())]


def test_trees_of_the_words(tree: Path) -> None:
    (tree / "lib/a.yaml").write_text("")
    (tree.parent / "elsewhere").mkdir(exist_ok=True)
    words = ["check", "lib/a.yaml", str(tree.parent / "elsewhere"), "no such", "a\0b", "--trust"]
    found = import_path.checked_trees(words)
    assert set(found) == {str(tree.resolve()), str((tree.parent / "elsewhere").resolve())}


WITHOUT_A_LAW = {
    "model.name": "microsoft/phi-2", "software.litgpt": "0.5", "train.batch_size": 2, "train.seq_len": 512,
}  # fmt: skip
"""litgpt's models have no shipped law; what its kind of model takes for a field is asked of traces alone."""


def test_no_process_is_started_where_nothing_may_be_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*words: object, **more: object) -> None:
        raise AssertionError(f"started {words}")

    monkeypatch.setattr(subprocess, "Popen", started)
    fit_subprocess.installed.cache_clear()
    (tmp_path / "preflight.toml").write_text("trace = false\n")
    (tmp_path / "job.json").write_text(json.dumps(WITHOUT_A_LAW))
    monkeypatch.chdir(tmp_path)
    assert run(["estimate", "job.json", "--gpu", "t4"]) in (0, 1)
    by_hand(build(WITHOUT_A_LAW), WITHOUT_A_LAW, lambda path: True, SHIPPED_ONLY)
    with pytest.raises(AssertionError, match="started"):
        by_hand(build(WITHOUT_A_LAW), WITHOUT_A_LAW, lambda path: True, TRACE)
