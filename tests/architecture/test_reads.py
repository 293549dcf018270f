"""What a check reads of the file system and of the environment, it reads through `system.observed`: a result that is
kept would otherwise hold for longer than what it was made of."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from sources import with_one_of

from preflight.engine.result_cache import VARIABLES

OF_OS = {"access", "listdir", "lstat", "open", "readlink", "scandir", "stat", "walk", "fwalk", "statvfs"}
OF_OS_PATH = {
    "exists", "getatime", "getctime", "getmtime", "getsize", "isdir", "isfile", "islink", "ismount", "lexists",
    "realpath", "samefile",
}  # fmt: skip
FUNCTIONS = {"open", "io.open", "glob.glob", "glob.iglob", "shutil.which"}
OF_PATHS = {
    "exists", "glob", "is_dir", "is_fifo", "is_file", "is_symlink", "iterdir", "lstat", "open", "owner", "read_bytes",
    "read_text", "readlink", "resolve", "rglob", "samefile", "stat",
}  # fmt: skip
OURS = {"observed", "project", "self"}
"""Receivers that are no paths, or that are the way itself."""

ELSEWHERE = {
    "preflight/tracer": "runs in a process of its own, after which nothing is kept",
    "preflight/postmortem": "no check",
    "preflight/engine/init": "no check",
    "preflight/engine/score": "no check: verdicts on rows are written to a file of their own",
    "preflight/dryrun": "no check",
    "preflight/watch": "no check",
    "preflight/guard": "runs in the user's process",
    "preflight/store": "recorded runs: `engine.recorded` notes the file for a check",
    "preflight/engine/recorded.py": "notes the file of recorded runs, and asks the store",
    "preflight/slurm/import_": "no check",
    "preflight/slurm/sbatch": "the gate keeps no results",
    "preflight/commands": "the command line itself: what it reads is given to the engine as paths",
    "preflight/cli.py": "the command line itself",
    "preflight/reports/outputs.py": "writes files: such a run is not kept",
    "preflight/fixes/write.py": "writes files: such a run is not kept",
    "preflight/engine/result_cache.py": "reads what was kept, before a check is made",
    "preflight/system/kept_files.py": "the files of kept results",
    "preflight/system/observed.py": "the one way",
    "preflight/system/files.py": "opens a file, and notes it",
    "preflight/system/import_path.py": "runs before any other module; its answer is part of the question",
}
OWN_DATA = "a file that preflight ships: its packages are compared as a whole"
ALLOWED = {
    "preflight/frameworks/diffusers.py": OWN_DATA,
    "preflight/frameworks/library_defaults.py": OWN_DATA,
    "preflight/frameworks/litgpt.py": OWN_DATA,
    "preflight/frameworks/table.py": OWN_DATA,
    "preflight/machines/gpus.py": OWN_DATA,
    "preflight/memory/device/fit/cache.py": OWN_DATA,
    "preflight/memory/device/fit/subprocess.py": OWN_DATA,
    "preflight/memory/device/law/catalogue.py": OWN_DATA,
    "preflight/memory/device/law/loss_and_kernels.py": OWN_DATA,
    "preflight/memory/device/law/store.py": OWN_DATA,
    "preflight/memory/device/step/intervals.py": OWN_DATA,
    "preflight/memory/device/workloads/image_models.py": OWN_DATA,
    "preflight/memory/device/workloads/pipelines.py": OWN_DATA,
    "preflight/program/library_parts.py": OWN_DATA,
    "preflight/python/archives.py": "members of an archive whose file `Project.head` reads",
    "preflight/dialects/shell/links.py": OWN_DATA,
    "preflight/engine/settings.py": "the rights of a folder above: who shares it does not change between two runs",
    "preflight/program/model_configurations.py": OWN_DATA,
    "preflight/program/names.py": OWN_DATA,
    "preflight/program/rows.py": OWN_DATA,
    "preflight/program/unread_calls.py": OWN_DATA,
    "preflight/vocabulary/batch_statistics.py": OWN_DATA,
    "preflight/vocabulary/spelling.py": OWN_DATA,
    "preflight/engine/registry.py": "the package of rules beside preflight, in a checkout",
    "preflight/system/entry_points.py": "lists of entry points: `engine.result_cache` notes each",
    "preflight/vocabulary/extensions.py": "a file of another distribution: noted by its module",
    "preflight/system/forked.py": "the memory that this process holds: no result depends on it",
    "preflight/reports/streams.py": "the standard streams: part of the question",
}
ASKED_BY_NAME = {
    "preflight/reports/__init__.py", "preflight/reports/style.py", "preflight/reports/streams.py",
    "preflight/system/processes.py",
}  # fmt: skip
"""Files that take the environment as a mapping, or pass it to a program; what they ask of it stands in VARIABLES."""


TOUCHES = tuple(f"{name.rpartition('.')[2]}(" for name in sorted(OF_OS | OF_OS_PATH | FUNCTIONS | OF_PATHS))


def sources(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """The files that a check runs, of those in which one of the words stands."""
    for name, text in with_one_of(*words):
        if not any(name == one or name.startswith(f"{one}/") for one in ELSEWHERE):
            yield name, ast.parse(text)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "()"


def reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, call) of what touches the file system."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        home, _, last = name.rpartition(".")
        if name in FUNCTIONS or (home == "os" and last in OF_OS):
            yield node.lineno, name
        elif home == "os.path":
            if last in OF_OS_PATH:
                yield node.lineno, name
        elif last == "resolve" and node.args:
            continue  # Path.resolve takes no place
        elif home and last in OF_PATHS and home.rpartition(".")[2] not in OURS:
            yield node.lineno, name


def test_files_are_read_in_one_way() -> None:
    touching = [(name, tree) for name, tree in sources(*TOUCHES) if name not in ALLOWED]
    found = [f"{name}:{line}: {call}" for name, tree in touching for line, call in reads(tree)]
    assert found == [], "ask preflight.system.observed, or say here why the answer need not be noted"


def test_what_is_allowed_is_needed() -> None:
    busy = {name for name, tree in sources(*TOUCHES) if name in ALLOWED and any(reads(tree))}
    assert set(ALLOWED) - busy == set()


@pytest.mark.parametrize(
    "text",
    [
        "open('a')", "os.stat(path)", "os.path.isfile(path)", "Path(x).read_text()", "path.exists()", "home.resolve()",
        "(root / name).is_file()", "os.scandir(x)", "folder.glob('*')", "self.root.iterdir()",
    ],
)  # fmt: skip
def test_the_measure_sees(text: str) -> None:
    assert list(reads(ast.parse(text)))


def test_variables_that_are_read_decide_the_answer() -> None:
    """Every variable of the environment that a check asks for by name is part of the question."""
    known = {*VARIABLES, "PREFLIGHT_NO_CACHE", "PREFLIGHT_CACHE_DIR", "PREFLIGHT_CACHE_LIMIT"}
    unknown = []
    for name, tree in sources("environ", "getenv"):
        for node in ast.walk(tree):
            asked = None
            if isinstance(node, ast.Call) and dotted(node.func) in ("os.environ.get", "os.getenv"):
                asked = node.args[0]
            elif isinstance(node, ast.Subscript) and dotted(node.value) == "os.environ":
                asked = node.slice
            elif isinstance(node, ast.Attribute) and dotted(node) == "os.environ" and name not in ASKED_BY_NAME:
                continue
            if asked is None or name in ASKED_BY_NAME:
                continue
            if not (isinstance(asked, ast.Constant) and asked.value in known):
                unknown.append(f"{name}:{node.lineno}: {ast.unparse(asked)}")
    assert unknown == []
