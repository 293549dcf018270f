"""Reads one input in this process as the commands do, and raises `Wrong` where preflight did what it must never do."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fuzz_inputs import Input
from msgspec.structs import replace

from preflight.engine import baseline, job_by_hand, rounds
from preflight.engine import check as engine
from preflight.engine import settings as engine_settings
from preflight.engine.ask import job_of
from preflight.engine.estimator import Estimator
from preflight.engine.files import batches
from preflight.machines import clusters, hostlist
from preflight.memory.device.law import store
from preflight.reports import render
from preflight.reports.style import Look
from preflight.slurm.import_.importer import import_slurm
from preflight.slurm.sbatch import arguments
from preflight.vocabulary.errors import MachineError, PreflightError, too_much
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.tracing import SHIPPED_ONLY

FORMATS = ("json", "full", "sarif", "github", "concise")


class Wrong(Exception):
    """preflight failed by itself, or did something to the machine."""


# --- what may not happen ----------------------------------------------------------------------------------------------

_WRITES = frozenset(
    [
        "os.remove",
        "os.rename",
        "os.mkdir",
        "os.rmdir",
        "os.link",
        "os.symlink",
        "os.chmod",
        "os.chown",
        "os.truncate",
        "shutil.rmtree",
        "os.utime",
        "subprocess.Popen",
        "os.exec",
        "os.posix_spawn",
        "os.system",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "socket.connect",
        "socket.bind",
        "ctypes.dlopen",
        "urllib.Request",
    ]
)
_OPENS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_forbidden = False
"""Whether an input is being read at the moment."""
done: list[str] = []
"""What was done though it is forbidden."""


def watch() -> None:
    """Notes every file that is written and every program that is started while an input is read."""
    from preflight.system import forked

    forked.most_copies = lambda: 0  # proofs stay in this process, which is the one that is watched
    sys.addaudithook(_note)


def _note(event: str, words: tuple[object, ...]) -> None:
    if not _forbidden:
        return
    if event in _WRITES:
        done.append(f"{event}{words!r}"[:300])
    elif event == "open" and len(words) > 2 and isinstance(words[2], int) and words[2] & _OPENS:
        done.append(f"open{words!r}"[:300])


# --- readers ----------------------------------------------------------------------------------------------------------


def put(files: Mapping[str, str], root: Path) -> None:
    """Writes the files of an input; names that stand in each other's way are left out."""
    root.mkdir(parents=True)
    for name, text in files.items():
        try:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        except OSError:
            continue


def read(one: Input, root: Path, number: int) -> None:
    """Reads an input in a new directory `root`. Raises Wrong, and whatever preflight raises and should not."""
    global _forbidden
    on_disk = one.kind not in ("documents", "sbatch", "hosts")
    if on_disk:
        put(one.files, root)
    done.clear()
    _forbidden = True
    try:
        READERS[one.kind](one, root, number)
    except (PreflightError, DocumentError, MachineError):
        pass  # one line, and exit status 2
    finally:
        _forbidden = False
        if on_disk:
            shutil.rmtree(root, ignore_errors=True)
    if done:
        raise Wrong(f"it did {done[0]}")


def _documents(one: Input, _: Path, number: int) -> None:
    from preflight.documents.bash import parse_bash
    from preflight.documents.json import parse_json
    from preflight.documents.python import parse_python
    from preflight.documents.yaml import parse_yaml

    (name, text), *_rest = one.files.items()
    source = Source(name, text.encode("utf-8", "replace").decode())
    if name.endswith(".yaml"):
        document = parse_yaml(source, "1.2" if number % 2 else "1.1")
        document.value()
        list(document.routes())
    elif name.endswith(".json"):
        list(parse_json(source).routes())
    elif name.endswith(".py"):
        parse_python(source)
    elif name.endswith(".toml"):
        engine_settings.parse(source.text)
    else:
        script = parse_bash(source)
        assert script.steps is not None
        assert script.directives is not None


def _project(one: Input, root: Path, number: int) -> None:
    reports = []
    for batch in batches([str(root)], root, from_hook=False):
        project, asked = engine.setup(batch, engine.CheckOptions(gpu="RTX 4080" if number % 3 else None), root)
        asked = replace(asked, tracing=SHIPPED_ONLY)
        reports.append(_checked(project, asked, number))
    outcome = engine.outcome_of(reports, root)
    for _, finding in outcome.findings():
        if finding.rule == "internal-error":
            raise Wrong(finding.message + "\n" + "\n".join(finding.notes))
    if number % 4 == 0:
        text = render(FORMATS[number // 4 % len(FORMATS)], outcome, Look())
        text.encode("utf-8", "surrogateescape")


def _checked(project: Project, asked: engine.CheckSetup, number: int) -> Report:
    if number % 5:
        return engine.check(project, asked, prove=bool(number % 2))
    result = rounds.fixed(project, asked, bool(number % 2), lambda report: report)
    rounds.diff(result, project.root)
    return result.after


def _log(one: Input, root: Path, _: int) -> None:
    from preflight.postmortem.run import postmortem
    from preflight.postmortem.text import render as rendered

    def outcome(reports: object) -> object:
        return engine.outcome_of(list(reports), root)  # type: ignore[call-overload]

    (name, *_rest) = one.files
    found = postmortem([str(root / name)], (), None, engine.CheckOptions(), root, outcome)  # type: ignore[arg-type]
    rendered(found, Look())


def _job(one: Input, root: Path, number: int) -> None:
    fields = job_by_hand.in_file(root / next(iter(one.files)))
    if fields is not None:
        job = job_of(fields)
        if number % 2:
            Estimator(None, SHIPPED_ONLY).full(job)


def _settings(one: Input, root: Path, _: int) -> None:
    engine_settings.load(root)


def _machine(one: Input, root: Path, _: int) -> None:
    clusters.plain(clusters.load_machine(root / next(iter(one.files))))


def _conf(one: Input, root: Path, _: int) -> None:
    import_slurm(root / next(iter(one.files)))


def _baseline(one: Input, root: Path, _: int) -> None:
    baseline.read(root / next(iter(one.files)))


def _law(one: Input, root: Path, number: int) -> None:
    path = root / next(iter(one.files))
    text = one.text.encode("utf-8", "replace")
    if number % 3 == 0:
        text = _with_laws(one.text)
    with _allowed():
        path.write_bytes(gzip.compress(text) if number % 2 else text)
    try:
        found = store.load_file(path, store.LawKey("gpt2", "k"))
        assert found is None or found
    except (store.UnreadableLaw, store.StaleLaw, *store.NOT_A_LAW):
        pass


def _with_laws(text: str) -> bytes:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        entry = text
    data = {"format": max(store.READS), "made_by": {"tracer": 999}, "laws": {"k": entry}}
    try:
        return json.dumps(data).encode("utf-8", "replace")
    except (RecursionError, ValueError):
        return text.encode("utf-8", "replace")


class _allowed:
    """What the reader's own preparations write is no mistake."""

    def __enter__(self) -> None:
        global _forbidden
        _forbidden = False

    def __exit__(self, *_: object) -> None:
        global _forbidden
        _forbidden = True


def _sbatch(one: Input, _: Path, __: int) -> None:
    arguments.parse(one.text.split(" "))


def _hosts(one: Input, _: Path, __: int) -> None:
    try:
        hostlist.fold(hostlist.expand(one.text))
    except ValueError as error:
        if too_much(error):
            return


READERS: Mapping[str, Callable[[Input, Path, int], None]] = {
    "documents": _documents, "project": _project, "log": _log, "job": _job, "settings": _settings, "machine": _machine,
    "conf": _conf, "baseline": _baseline, "law": _law, "sbatch": _sbatch, "hosts": _hosts,
}  # fmt: skip
