"""A kept result is what a new check would say: whatever changes, and whatever is done to what was kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from kept_results import CLUSTER, HYDRA, PROJECT, SETTINGS, SWEEP, Ran, Server, write
from thorough import sample

from preflight.system import kept_files

CHECK = ("check", ".", "-f", "concise")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "project", PROJECT)


def kept_file(server: Server) -> Path:
    (one,) = server.results.iterdir()
    return one


def same_as_new(server: Server, root: Path, *words: str, **env: str) -> bool:
    """Asserts that a check says what one without the cache says; whether it was made anew."""
    words = words or CHECK
    found, new = server.run(root, *words, **env), server.run(root, *words, "--no-cache", **env)
    assert found.said == new.said
    return found.anew


# --- changes that have to be seen -------------------------------------------------------------------------------------


def edit(name: str, old: str, new: str) -> Callable[[Path, Server], None]:
    def change(root: Path, server: Server) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return change


def add(name: str, text: str) -> Callable[[Path, Server], None]:
    return lambda root, server: void(write(root, {name: text}))


def void(_: object) -> None:
    return None


def unseen_edit(root: Path, server: Server) -> None:
    """Another content of the same length with the old time of change."""
    path = root / "sizes.py"
    status = path.stat()
    path.write_text("LENGTH = 768\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def retarget(root: Path, server: Server) -> None:
    (root / "linked.yaml").unlink()
    (root / "linked.yaml").symlink_to("conf/model/large.yaml")


def directory_for_a_file(root: Path, server: Server) -> None:
    (root / "sizes.py").unlink()
    (root / "sizes.py").mkdir()


def linked_directory(root: Path, server: Server) -> None:
    """The same names, now outside of the project."""
    shutil.move(root / "conf", root.parent / "conf")
    (root / "conf").symlink_to(root.parent / "conf")


def user_settings(root: Path, server: Server) -> None:
    write(server.home / ".config" / "preflight", {"settings.toml": f'trust = ["{root.parent}"]\n'})


CHANGES: dict[str, Callable[[Path, Server], object]] = {
    "a value of the sweep": edit("sweep.yaml", "96", "64"),
    "an imported module": edit("sizes.py", "512", "256"),
    "an imported module, a line longer": edit("sizes.py", "512", "512 * 2"),
    "an imported module, unseen by size and time": unseen_edit,
    "an imported module is gone": lambda root, server: (root / "sizes.py").unlink(),
    "an imported module is a package now": add("sizes/__init__.py", "LENGTH = 128\n"),
    "the program is gone": lambda root, server: (root / "train.py").unlink(),
    "a file is a directory": directory_for_a_file,
    "settings": edit("preflight.toml", "RTX 4090", "RTX 3060"),
    "an option of a rule": lambda root, server: write(
        root, {"preflight.toml": SETTINGS + '[rules.gpu-memory-exceeded]\nseverity = "warning"\n'}
    ),
    "settings are broken": add("preflight.toml", "gpu ="),
    "settings are gone": lambda root, server: (root / "preflight.toml").unlink(),
    "other settings, closer": add("notes/preflight.toml", 'gpu = "RTX 3060"\n'),
    "the machine file": edit("cluster.toml", "64GB", "2GB"),
    "the machine file is gone": lambda root, server: (root / "cluster.toml").unlink(),
    "a choice of a Hydra group": edit("conf/model/small.yaml", "gpt2", "gpt2-xl"),
    "a new choice of a Hydra group": add("conf/model/other.yaml", "name: gpt2-medium\n"),
    "a directory has another name": lambda root, server: (root / "conf").rename(root / "config"),
    "a directory is a link that leads out": linked_directory,
    "a new file that the walk finds": add("second.yaml", SWEEP.replace("96", "128")),
    "a new file that the roots find": add("sweeps/third.yaml", SWEEP),
    "a new file that launches the program": add("run.sh", "#!/bin/bash\npython train.py --batch_size 512\n"),
    "a link leads elsewhere": retarget,
    "a comment ignores a finding": edit("sweep.yaml", "96]}", "96]}  # preflight: ignore[space-partly-unsafe]"),
    "a repository begins": lambda root, server: (root / ".git").mkdir(),
    "the user's settings": user_settings,
}


@pytest.mark.parametrize("name", sample(CHANGES, 6))
def test_a_change_is_seen(server: Server, root: Path, name: str) -> None:
    """Half of them where a signature is kept, as of files that are older than a moment."""
    settled = list(CHANGES).index(name) % 2 == 0 or "unseen" in name
    if any(word in name for word in ("Hydra", "directory", "link")):  # a second program takes as long again
        write(root, HYDRA)
        (root / "linked.yaml").symlink_to("conf/model/small.yaml")
    first = server.run(root, *CHECK, settled=settled)
    again = server.run(root, *CHECK, settled=settled)
    assert (first.anew, again.anew) == (True, False)
    assert again.said == first.said
    CHANGES[name](root, server)
    found, new = server.run(root, *CHECK, settled=settled), server.run(root, *CHECK, "--no-cache")
    assert found.said == new.said
    assert found.anew or found.status == 2


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_any_more(server: Server, root: Path) -> None:
    server.run(root, *CHECK)
    (root / "sizes.py").chmod(0)
    assert same_as_new(server, root)


def test_a_date_that_is_over_is_seen(server: Server, root: Path) -> None:
    """A kept result with an ignore holds to the end of the day that the ignore names."""

    def on(day: str, *words: str) -> Ran:
        return server.run(root, *CHECK, *words, before=f"observed.today = lambda: {day!r}")

    edit("sweep.yaml", "96]}", "96]}  # preflight: ignore[space-partly-unsafe] until 2026-12-31")(root, server)
    first, last = on("2026-12-01"), on("2026-12-31")
    assert (first.anew, last.anew, last.said) == (True, False, first.said)
    late = on("2027-01-01")
    assert late.anew
    assert late.said == on("2027-01-01", "--no-cache").said != first.said


def test_standard_input_is_never_answered_from_what_was_kept(server: Server, root: Path) -> None:
    words = ("check", "-", "--stdin-filename", "sweep.yaml")
    given = f"import io; sys.stdin = io.TextIOWrapper(io.BytesIO({SWEEP.encode()!r}))"
    found = [server.run(root, *words, before=given) for _ in range(2)]
    assert [(one.status, one.anew) for one in found] == [(1, True), (1, True)]


def test_what_changes_nothing_that_was_read(server: Server, root: Path) -> None:
    """Times, rights and files that nobody asked for: the answer is still there."""
    server.run(root, *CHECK, settled=True)
    os.utime(root / "sizes.py")
    (root / "sizes.py").chmod(0o600)
    write(root, {"node_modules/x.yaml": SWEEP})
    shutil.rmtree(root / "node_modules")
    assert not same_as_new(server, root)


QUESTIONS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "another GPU": ((*CHECK, "--gpu", "A100-80GB"), {}),
    "another machine": ((*CHECK, "--machine", "other.toml"), {}),
    "a field": ((*CHECK, "--set", "train.seq_len=64"), {}),
    "a rule": ((*CHECK, "--select", "gpu-memory-exceeded"), {}),
    "a rule less": ((*CHECK, "--ignore", "space-partly-unsafe"), {}),
    "a baseline": ((*CHECK, "--baseline", "baseline.json"), {}),
    "explained": ((*CHECK, "--explain"), {}),
    "a diff": (("check", ".", "--diff"), {}),
    "from a hook": (("check", "sweep.yaml", "notes/readme.yaml", "--from-hook"), {}),
    "never fails": ((*CHECK, "--exit-zero"), {}),
    "fails early": ((*CHECK, "--fail-on", "info"), {}),
    "json": (("check", ".", "-f", "json"), {}),
    "sarif": (("check", ".", "-f", "sarif"), {}),
    "github": (("check", ".", "-f", "github"), {}),
    "full": (("check", ".", "-f", "full"), {}),
    "a build service": (("check", "."), {"GITHUB_ACTIONS": "true"}),
    "colours": (("check", "."), {"FORCE_COLOR": "1"}),
    "a narrow terminal": (("check", "."), {"COLUMNS": "60"}),
    "a file that is not there": (("check", "nothing.yaml"), {}),
    "a file of no dialect": (("check", "notes/readme.yaml"), {}),
    "no such rule": ((*CHECK, "--select", "nothing"), {}),
}


MET = ("another GPU", "a field", "a diff", "json", "a build service", "a file that is not there", "no such rule")
"""Questions of each kind; all others are slow."""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(MET, id="some"),
        pytest.param([n for n in QUESTIONS if n not in MET], id="rest", marks=pytest.mark.slow),
    ],
)
def test_every_question_has_its_own_answer(names: Sequence[str], server: Server, root: Path) -> None:
    """Byte for byte what a new check says, in every format and with every exit status; twice, the second time kept."""
    write(root, {"other.toml": CLUSTER.replace("64GB", "1GB")})
    server.run(root, *CHECK, "--write-baseline", "baseline.json")
    for name in names:
        words, env = QUESTIONS[name]
        first = server.run(root, *words, **env)
        again = server.run(root, *words, **env)
        assert (name, again.said) == (name, first.said)
        assert (name, again.anew) == (name, first.anew and first.status == 2)
        assert (name, server.run(root, *words, "--no-cache", **env).said) == (name, first.said)


def test_what_ends_before_the_check_is_not_kept(server: Server, root: Path) -> None:
    """`--help` has the status 0 of a clean check, and is written by the command line's own library."""
    for words in (("check", "--help"), ("check", ".", "-h")):
        first = server.run(root, *words)
        assert first.out.startswith("Usage:")
        assert server.run(root, *words).said == first.said
    assert list(server.results.iterdir()) == []


def test_what_writes_is_done_every_time(server: Server, root: Path) -> None:
    before = (root / "sweep.yaml").read_text()
    for _ in range(2):
        (root / "sweep.yaml").write_text(before)
        assert server.run(root, "check", ".", "--unsafe-fixes").anew
        assert (root / "sweep.yaml").read_text() != before
    (root / "sweep.yaml").write_text(before)
    for _ in range(2):
        (root / "out.json").unlink(missing_ok=True)
        server.run(root, *CHECK, "--output", "json=out.json", "--write-baseline", "baseline.json")
        assert (root / "out.json").exists()
        assert (root / "baseline.json").exists()
        (root / "baseline.json").unlink()


def test_an_error_is_not_kept(server: Server, root: Path) -> None:
    before = "import preflight.engine.check as e; e._judged = lambda *a: 1 / 0"
    assert server.run(root, *CHECK, before=before).status == 2
    assert list(server.results.iterdir()) == []
    assert server.run(root, *CHECK).anew


def test_what_holds_for_one_run_alone_is_not_kept(server: Server, root: Path) -> None:
    late = "import preflight.engine.check as e; a = e.analyse\n"
    late += "def f(*x):\n    observed.not_final('a time limit was hit'); return a(*x)\ne.analyse = f"
    server.run(root, *CHECK, before=late)
    assert list(server.results.iterdir()) == []


def test_a_file_that_changes_while_it_is_read(server: Server, root: Path) -> None:
    """What is written behind the back of a run is seen by the next one."""
    text = f"open({str(root / 'sweep.yaml')!r}, 'w').write({SWEEP.replace('96', '64')!r})"
    late = "import preflight.engine.check as e; b = e.analyse\n"
    late += f"def f(*x):\n    r = b(*x); {text}; return r\ne.analyse = f"
    server.run(root, *CHECK, before=late, settled=True)
    assert same_as_new(server, root)


# --- the code that answers --------------------------------------------------------------------------------------------

RULE = '''
from collections.abc import Iterator
from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.rule import Case, Rule

class Mine(Rule):
    """Says hello."""
    name = "mine"
    summary = "Says hello."
    def check(self, case: Case) -> Iterator[Finding]:
        yield Finding("mine", Severity.error, Confidence.high, "hello", None)

RULES = (Mine,)
'''


def test_a_trusted_rule_that_changes(server: Server, root: Path, tmp_path: Path) -> None:
    rule = tmp_path / "mine.py"
    rule.write_text(RULE)
    words = (*CHECK, "--trust", str(rule))
    first = server.run(root, *words)
    assert "hello" in first.out
    assert not server.run(root, *words).anew
    rule.write_text(RULE.replace('"hello"', '"hullo"'))
    assert same_as_new(server, root, *words)
    rule.unlink()
    assert same_as_new(server, root, *words) is False  # status 2: there is no such file


def test_a_plugin_that_is_installed_and_changed(server: Server, root: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    before = f"sys.path.append({str(site)!r})"
    assert server.run(root, *CHECK, settled=True, before=before).anew
    assert not server.run(root, *CHECK, settled=True, before=before).anew
    points = {"entry_points.txt": "[preflight.rules]\nmine = mine_rules\n", "METADATA": "Name: mine\nVersion: 1\n"}
    write(site, {"mine_rules.py": RULE, **{f"mine-1.dist-info/{name}": text for name, text in points.items()}})
    found = server.run(root, *CHECK, settled=True, before=before)
    assert found.anew
    assert "hello" in found.out
    assert not server.run(root, *CHECK, settled=True, before=before).anew
    (site / "mine_rules.py").write_text(RULE.replace('"hello"', '"hullo"'))
    assert "hullo" in server.run(root, *CHECK, settled=True, before=before).out
    (site / "mine-1.dist-info" / "entry_points.txt").write_text("[other]\nmine = mine_rules\n")
    found = server.run(root, *CHECK, settled=True, before=before)
    assert found.anew
    assert "mine" not in found.out


def test_code_that_changes_during_the_run(server: Server, root: Path, tmp_path: Path) -> None:
    """What was imported says the old thing; the file's new times belong to the new one."""
    site = tmp_path / "site"
    points = {"entry_points.txt": "[preflight.rules]\nmine = mine_rules\n", "METADATA": "Name: mine\nVersion: 1\n"}
    write(site, {"mine_rules.py": RULE, **{f"mine-1.dist-info/{name}": text for name, text in points.items()}})
    before = f"sys.path.append({str(site)!r})\n"
    text = RULE.replace('"hello"', '"hullo"')
    late = "import preflight.engine.check as e; b = e.analyse\n"
    late += f"def f(*x):\n    r = b(*x); open({str(site / 'mine_rules.py')!r}, 'w').write({text!r}); return r\n"
    assert "hello" in server.run(root, *CHECK, before=f"{before}{late}e.analyse = f").out
    assert "hullo" in server.run(root, *CHECK, before=before).out


def test_another_version_of_preflight(server: Server, root: Path) -> None:
    server.run(root, *CHECK)
    assert server.run(root, *CHECK, before="import preflight.engine.result_cache as r; r.__version__ = '9'").anew
    another = "import preflight.engine.result_cache as r; r._code = lambda *a: 'x'"
    assert server.run(root, *CHECK, before=another).anew


# --- what was kept is damaged, or somebody else's ---------------------------------------------------------------------


def signed(body: dict[str, object]) -> bytes:
    """A body with a checksum that fits."""
    data = json.dumps(body).encode()
    return sha256(data).hexdigest().encode() + b"\n" + data


def body_of(path: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(path.read_bytes().partition(b"\n")[2])
    return found


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "one byte": lambda data: data.replace(b"Found", b"Fiund", 1),
    "no checksum": lambda data: data.partition(b"\n")[2],
    "zeroes": lambda data: bytes(len(data)),
    "not JSON": lambda data: sha256(b"[").hexdigest().encode() + b"\n[",
    "a list": lambda data: sha256(b"[]").hexdigest().encode() + b"\n[]",
    "nested too deeply": lambda data: sha256(b"[" * 99999).hexdigest().encode() + b"\n" + b"[" * 99999,
    "not UTF-8": lambda data: sha256(b"\xff").hexdigest().encode() + b"\n\xff",
}
BODIES: dict[str, Callable[[dict[str, dict[str, object]]], object]] = {
    "another question": lambda body: body["question"].update(words=["check", "other"]),
    "no status": lambda body: body["answer"].pop("status"),
    "status of an error": lambda body: body["answer"].update(status=2),
    "a status that is no number": lambda body: body["answer"].update(status=[]),
    "what is shown is no list": lambda body: body["answer"].update(shown=3),
    "what is shown is no text": lambda body: body["answer"].update(shown=[[1, "text", False]]),
    "a kind that is none": lambda body: body["answer"].update(shown=[["a", "raw", False]]),
    "too few parts": lambda body: body["answer"].update(shown=[["a"]]),
    "notes are no tables": lambda body: body.update(notes={"/": 1}),  # type: ignore[dict-item]
    "a note is too short": lambda body: body["notes"].update({"/": {"": ["dir"]}}),
    "packages that are not there": lambda body: body["answer"].update(packages=["/nowhere"]),
    "another code": lambda body: body["answer"].update(code="0"),
}


@pytest.mark.parametrize("table", [DAMAGES, pytest.param(BODIES, marks=pytest.mark.slow)], ids=["bytes", "parts"])
def test_what_is_damaged_is_made_anew(server: Server, root: Path, table: Mapping[str, Callable[[Any], Any]]) -> None:
    """Whatever was damaged, the check that follows makes and keeps the result again, which the next damage needs."""
    first = server.run(root, *CHECK)
    for name in table:
        assert (name, server.run(root, *CHECK).anew) == (name, False)
        path = kept_file(server)
        if table is DAMAGES:
            path.write_bytes(DAMAGES[name](path.read_bytes()))
        else:
            body = body_of(path)
            BODIES[name](body)
            path.write_bytes(signed(body))
        again = server.run(root, *CHECK)
        assert (name, again.anew, again.said) == (name, True, first.said)
    assert not server.run(root, *CHECK).anew


def test_a_result_under_another_name_is_not_read(server: Server, root: Path) -> None:
    """A clean result of one tree does not stand for another."""
    write(root / "clean", {"preflight.toml": ""})
    server.run(root / "clean", *CHECK)
    clean = kept_file(server)
    first = server.run(root, *CHECK)
    (other,) = (one for one in server.results.iterdir() if one != clean)
    other.write_bytes(clean.read_bytes())
    assert server.run(root, *CHECK).said == first.said


def link_file(server: Server) -> None:
    path = kept_file(server)
    path.rename(server.home / "elsewhere.json")
    path.symlink_to(server.home / "elsewhere.json")


def fifo(server: Server) -> None:
    path = kept_file(server)
    path.unlink()
    os.mkfifo(path)


def directory(server: Server) -> None:
    path = kept_file(server)
    path.unlink()
    path.mkdir()


def huge(server: Server) -> None:
    """A whole result with blanks behind it, which JSON allows; the file has no blocks on the disk."""
    path = kept_file(server)
    body = path.read_bytes().partition(b"\n")[2]
    text = body + b" " * (kept_files.LARGEST + 1 - len(body))
    path.write_bytes(sha256(text).hexdigest().encode() + b"\n" + text)


def link_to_another_result(server: Server) -> None:
    """A hard link would be the same file; this one leads to a result that holds, outside of the directory."""
    path = kept_file(server)
    shutil.move(path, server.home / "moved.json")
    path.symlink_to(os.path.relpath(server.home / "moved.json", path.parent))


def writable(mode: int) -> Callable[[Server], None]:
    return lambda server: kept_file(server).chmod(mode)


@pytest.mark.parametrize(
    "harm",
    [link_file, link_to_another_result, fifo, directory, huge, writable(0o666), writable(0o620), writable(0o602)],
)
def test_a_file_that_is_not_plainly_ours_is_not_read(
    server: Server, root: Path, harm: Callable[[Server], None]
) -> None:
    first = server.run(root, *CHECK)
    harm(server)
    again = server.run(root, *CHECK)
    assert again.anew
    assert again.said == first.said


def link_folder(server: Server) -> None:
    server.results.rename(server.home / "real")
    server.results.symlink_to(server.home / "real")


def file_for_folder(server: Server) -> None:
    shutil.rmtree(server.results)
    server.results.write_text("")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (link_folder, "is not a directory"),
        (file_for_folder, "is not a directory"),
        (lambda server: server.results.chmod(0o755), "is open to others"),
    ],
)
def test_a_directory_that_is_not_ours_alone_is_left_alone(
    server: Server, root: Path, harm: Callable[[Server], None], words: str
) -> None:
    first = server.run(root, *CHECK)
    harm(server)
    again = server.run(root, *CHECK, "-v")
    assert again.anew
    assert (again.status, again.out) == (first.status, first.out)
    assert words in again.err
    assert server.run(root, *CHECK).err == ""
    shutil.rmtree(server.home / "real", ignore_errors=True)


FOREIGN = """
import types
own = os.fstat
def fstat(handle):
    status = own(handle)
    parts = {name: getattr(status, name) for name in dir(status) if name.startswith("st_")}
    return types.SimpleNamespace(**{**parts, "st_uid": os.getuid() + 1})
os.fstat = fstat
"""


def test_a_file_of_somebody_else_is_not_read(server: Server, root: Path) -> None:
    """In a directory of this user's own: somebody with more rights put it there."""
    first = server.run(root, *CHECK)
    again = server.run(root, *CHECK, before=FOREIGN)
    assert again.anew
    assert again.said == first.said
    assert not server.run(root, *CHECK).anew


def test_a_result_of_another_project_in_place_of_this_one(server: Server, root: Path) -> None:
    """Copied with its own question, or with the question of this project: its notes are of other files."""
    write(root.parent / "other", {"preflight.toml": ""})
    clean = server.run(root.parent / "other", *CHECK)
    theirs = kept_file(server)
    first = server.run(root, *CHECK)
    assert clean.status != first.status
    (ours,) = (one for one in server.results.iterdir() if one != theirs)
    question = body_of(ours)["question"]
    for body in (body_of(theirs), {**body_of(theirs), "question": question}):
        ours.write_bytes(signed(body))
        write(root.parent / "other", {"new.yaml": "a: 1\n"})  # what the foreign result rests on has changed
        again = server.run(root, *CHECK)
        assert again.anew
        assert again.said == first.said


def test_a_directory_of_somebody_else(server: Server, root: Path) -> None:
    server.run(root, *CHECK)
    again = server.run(root, *CHECK, "-v", before="os.getuid = lambda: 12345")
    assert again.anew
    assert "belongs to another user" in again.err


def test_no_directory_in_the_checked_tree_behind_a_link(server: Server, root: Path) -> None:
    """A link outside of the tree that leads into it is in the tree: a stranger could have filled it."""
    planted = root / "conf" / "cache" / "results"
    server.run(root, *CHECK)
    shutil.copytree(server.results, planted)
    planted.chmod(0o700)
    (server.home / "elsewhere").symlink_to(planted.parent)
    again = server.run(root, *CHECK, "-v", PREFLIGHT_CACHE_DIR=str(server.home / "elsewhere"))
    (server.home / "elsewhere").unlink()
    assert again.anew
    assert "lies in the checked tree" in again.err


def test_no_directory_in_the_checked_tree(server: Server, root: Path) -> None:
    (root / ".git").mkdir()
    inside = root / "conf" / "cache"
    again = server.run(root, *CHECK, "-v", PREFLIGHT_CACHE_DIR=str(inside))
    assert "lies in the checked tree" in again.err
    assert not inside.exists()
    again = server.run(root, *CHECK, "-v", PREFLIGHT_CACHE_DIR="cache")
    assert "not named by an absolute path" in again.err


FULL = """
import tempfile
def full(*a, **k):
    raise OSError(28, "No space left on device")
tempfile.mkstemp = full
"""


def test_a_full_disk_is_no_error(server: Server, root: Path) -> None:
    first = server.run(root, *CHECK, before=FULL)
    assert first.said == server.run(root, *CHECK, "--no-cache").said
    assert list(server.results.iterdir()) == []


def test_nothing_is_read_or_kept_without_the_cache(server: Server, root: Path) -> None:
    server.run(root, *CHECK, "--no-cache")
    assert not server.results.exists() or list(server.results.iterdir()) == []
    server.run(root, *CHECK, PREFLIGHT_NO_CACHE="1")
    assert not server.results.exists() or list(server.results.iterdir()) == []
    server.run(root, *CHECK)
    assert server.run(root, *CHECK, "--no-cache").anew
    assert server.run(root, *CHECK, PREFLIGHT_NO_CACHE="1").anew


def test_processes_at_once(server: Server, root: Path) -> None:
    first = server.run(root, *CHECK, "--no-cache")
    for _ in range(3):
        found = server.together(root, [CHECK] * 4)
        assert {one.said for one in found} == {first.said}
    assert not server.run(root, *CHECK).anew
    assert [path.suffix for path in server.results.iterdir()] == [".json"]


# --- how much is kept -------------------------------------------------------------------------------------------------


def test_the_results_that_were_not_used_for_longest_go(server: Server, root: Path) -> None:
    server.run(root, *CHECK)
    old = kept_file(server)
    os.utime(old, (0, 0))
    filler = server.results / "0.json"
    filler.write_bytes(bytes(2**20))
    server.run(root, *CHECK, "--exit-zero", PREFLIGHT_CACHE_LIMIT="1")
    assert not old.exists()
    assert sum(path.stat().st_size for path in server.results.iterdir()) <= 2**20


def test_use_is_noted(server: Server, root: Path) -> None:
    server.run(root, *CHECK)
    os.utime(kept_file(server), (0, 0))
    assert not server.run(root, *CHECK).anew
    assert kept_file(server).stat().st_mtime > 0


def test_show_and_clear(server: Server, root: Path) -> None:
    server.run(root, *CHECK)
    found = json.loads(server.run(root, "cache", "show", "--output-format", "json").out)
    assert found["results"]["entries"] == 1
    assert found["results"]["path"] == str(server.results)
    assert found["results"]["refused"] is None
    assert str(server.results) in server.run(root, "cache", "show").out
    cleared = json.loads(server.run(root, "cache", "clear", "--output-format", "json").out)
    assert cleared["removed"] == 1
    assert list(server.results.iterdir()) == []
    assert server.run(root, "cache", "clear").out.startswith("0 removed")
    assert "PREFLIGHT_NO_CACHE is set" in server.run(root, "cache", "show", PREFLIGHT_NO_CACHE="1").out


# --- how little a kept result needs -----------------------------------------------------------------------------------


def test_a_kept_result_imports_next_to_nothing(root: Path, tmp_path: Path) -> None:
    """Neither libraries nor the engine: an unchanged check starts as fast as Python does."""
    env = {name: value for name, value in os.environ.items() if name != "PREFLIGHT_NO_CACHE"}
    (tmp_path / "cache").mkdir(mode=0o700)
    env |= {"HOME": str(tmp_path), "PREFLIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "preflight", "check", "notes/readme.yaml", "--from-hook"]
    runs = [subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=True) for _ in range(2)]
    new, kept = ({line.rpartition("|")[2].strip() for line in run.stderr.splitlines()} for run in runs)
    assert "click" in new
    # Python names only what a statement imports, so not `engine.result_cache` itself.
    ours = {name for name in kept if name.startswith("preflight")} - {"preflight._version"}  # written by a build
    assert ours == {
        "preflight", "preflight.reports", "preflight.reports.streams", "preflight.system",
        "preflight.system.import_path",
        "preflight.system.files", "preflight.system.kept_files", "preflight.system.observed",
        "preflight.vocabulary", "preflight.vocabulary.caches", "preflight.vocabulary.errors",
    }  # fmt: skip
    assert not kept & {"click", "dataclasses", "hydra", "pydantic", "ruamel", "subprocess", "tomllib", "yaml"}
