"""What a checked tree's settings and jobs may name: its own files, by their real paths; nothing that is started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bait import Bait

from preflight.system.files import user_directory

PYTHON = sys.executable
CHECK = (PYTHON, "-I", "-m", "preflight", "check")
ESTIMATE = (PYTHON, "-I", "-m", "preflight", "estimate")
MOBILEBERT = "google/mobilebert-uncased"  # no law is shipped: an interpreter is asked for its torch


@pytest.fixture
def bait(tmp_path: Path) -> Bait:
    made = Bait(tmp_path, MOBILEBERT, names=())
    for name in ("program.py", "sweep.yaml"):
        made.write(f"sub/{name}", (made.home / name).read_text())
    made.program(made.home / "evil.sh")
    made.program(made.outside / "evil.sh")
    return made


def _user_settings(bait: Bait, text: str) -> Path:
    path = bait.outside / ".config/preflight/settings.toml"
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text(text)
    path.chmod(0o600)
    path.parent.chmod(0o700)
    return path


# --- interpreters -----------------------------------------------------------------------------------------------------


def _through_link(bait: Bait) -> str:
    (bait.home / "sub/python").symlink_to(bait.outside / "evil.sh")
    return "python"


def _out_and_in(bait: Bait) -> str:
    (bait.outside / "link").symlink_to(bait.home / "sub")
    return f"{bait.outside}/link/../evil.sh"


def _in_path(bait: Bait) -> str:
    bait.program(bait.outside / "bin/evil-python")
    return "evil-python"


INTERPRETERS: dict[str, Callable[[Bait], str]] = {
    "absolute, outside": lambda bait: f"{bait.outside}/evil.sh",
    "absolute, inside": lambda bait: f"{bait.home}/evil.sh",
    "relative": lambda bait: "./evil.sh",
    "above the settings": lambda bait: "../evil.sh",
    "/proc": lambda bait: "/proc/self/cwd/evil.sh",
    "a link": _through_link,
    "through a link of the user's": _out_and_in,
    "a name in PATH": _in_path,
}


@pytest.mark.parametrize("name", INTERPRETERS)
def test_no_interpreter_of_a_tree_is_started(bait: Bait, name: str) -> None:
    bait.settings(f"interpreter = {INTERPRETERS[name](bait)!r}", "sub")
    path = f"{bait.outside}/bin:{os.environ['PATH']}"
    for command in ((*CHECK, "sub"), (*ESTIMATE, "sub/sweep.yaml")):
        _, markers = bait.run(*command, PATH=path)
        assert markers == set()
    done, _ = bait.run(*CHECK, "sub", PATH=path)
    assert "is not started without --trust" in done.stdout or "there is no interpreter" in done.stdout


def test_an_interpreter_that_the_user_trusts_is_started(bait: Bait) -> None:
    """On the command line by its path, relative to the current directory; and by the directory that it lies in."""
    bait.settings('interpreter = "../evil.sh"', "sub")
    for trusted in ("evil.sh", "sub/../evil.sh", str(bait.home / "evil.sh"), "."):
        _, markers = bait.run(*CHECK, "sub", "--trust", trusted)
        assert markers == {"started"}, trusted


@pytest.mark.parametrize("trusted", ["sub", "sweep.yaml", "sub/python"])
def test_trust_in_something_else_starts_nothing(bait: Bait, trusted: str) -> None:
    bait.settings('interpreter = "../evil.sh"', "sub")
    (bait.home / "sub/python").symlink_to("../evil.sh")
    _, markers = bait.run(*CHECK, "sub", "--trust", trusted)
    assert markers == set()


def test_trust_in_what_a_link_leads_to_is_not_trust_in_the_link(bait: Bait) -> None:
    """An environment's python is a link to the system's, and starts with the environment's own modules."""
    bait.settings('interpreter = "python"', "sub")
    (bait.home / "sub/python").symlink_to(bait.outside / "evil.sh")
    _, markers = bait.run(*CHECK, "sub", "--trust", str(bait.outside / "evil.sh"))
    assert markers == set()


# --- the user's own settings ------------------------------------------------------------------------------------------


def test_the_users_own_settings_name_an_interpreter(bait: Bait) -> None:
    _user_settings(bait, f'interpreter = "{bait.outside}/evil.sh"\n')
    _, markers = bait.run(*CHECK, "sweep.yaml")
    assert markers == {"started"}


def test_the_users_own_settings_trust(bait: Bait) -> None:
    bait.settings('interpreter = "./evil.sh"')
    _user_settings(bait, f'trust = ["{bait.home}/evil.sh"]\n')
    _, markers = bait.run(*CHECK, "sweep.yaml")
    assert markers == {"started"}


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ('interpreter = "{}/evil.sh"', 0o666, "others may write it"),
        ('interpreter = "{}/evil.sh"', 0o620, "others may write it"),
        ('interpreter = "evil.sh"', 0o600, "is not an absolute path"),
        ('trust = ["."]', 0o600, "is not an absolute path"),
        ('gpu = "a100"', 0o600, "gpu"),
        ("interpreter = 3", 0o600, "interpreter"),
    ],
)
def test_user_settings_that_are_refused(bait: Bait, text: str, mode: int, words: str) -> None:
    path = _user_settings(bait, text.format(bait.outside) + "\n")
    path.chmod(mode)
    done, markers = bait.run(*CHECK, "sweep.yaml")
    assert (done.returncode, markers) == (2, set())
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_others_write(bait: Bait) -> None:
    path = _user_settings(bait, f'interpreter = "{bait.outside}/evil.sh"\n')
    path.parent.chmod(0o777)
    done, markers = bait.run(*CHECK, "sweep.yaml")
    assert (done.returncode, markers) == (2, set())


@pytest.mark.slow
def test_a_users_directory_in_the_tree_is_none(bait: Bait) -> None:
    """XDG_CONFIG_HOME=.config would be a directory of whoever wrote the tree."""
    bait.write(".config/preflight/settings.toml", f'interpreter = "{bait.outside}/evil.sh"\n').chmod(0o600)
    _, markers = bait.run(*CHECK, "sweep.yaml", XDG_CONFIG_HOME=".config")
    assert markers == set()


def test_directories_by_relative_names_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of platformdirs differ in what they make of a relative XDG_CONFIG_HOME."""
    for kind in ("config", "cache"):
        monkeypatch.setattr(f"platformdirs.user_{kind}_path", lambda name: Path(".config") / name)
    assert user_directory("config") is None
    assert user_directory("cache") is None


# --- laws and machine files -------------------------------------------------------------------------------------------


@pytest.fixture
def law(bait: Bait) -> Path:
    """A file outside the tree, which is no law: reading it says so."""
    path = bait.outside / "law.json"
    path.write_text("{}")
    return path


def _words(text: str) -> str:
    """A report without the breaks of its lines."""
    return " ".join(text.split())


def _job(bait: Bait, law: str, file: str = "job.json") -> str:
    job = {"model.name": "gpt2", "model.law": law, "train.batch_size": 8, "train.seq_len": 64,
           "train.precision": "fp32", "task": "causal-lm"}  # fmt: skip
    bait.write(file, json.dumps(job))
    return file


@pytest.mark.parametrize("name", ["{outside}/law.json", "../outside/law.json", "/proc/self/cwd/../outside/law.json",
                                  "link.json"])  # fmt: skip
def test_no_law_outside_the_tree_is_read(bait: Bait, law: Path, name: str) -> None:
    (bait.home / "link.json").symlink_to(law)
    name = name.format(outside=bait.outside)
    done, _ = bait.run(*ESTIMATE, _job(bait, name))
    assert "lies outside the project" in _words(done.stdout)
    bait.write("preflight.toml", f"[set]\nmodel.law = {name!r}\nmodel.name = 'gpt2'\ntask = 'causal-lm'\n"
               "train.seq_len = 64\ntrain.precision = 'fp32'\n")  # fmt: skip
    done, _ = bait.run(*CHECK, "sweep.yaml")
    assert "lies outside the project" in _words(done.stdout)


def test_laws_that_may_be_read(bait: Bait, law: Path) -> None:
    """In the checkout, above the settings' directory too; what the command line names; what the user trusts."""
    bait.write("law.json", "{}")
    bait.write("sub/preflight.toml", "")
    named = (*ESTIMATE, "gpt2", "-s", "train.batch_size=8", "-s", "train.seq_len=64", "-s", "train.precision=fp32")
    for command in (
        (*ESTIMATE, _job(bait, "law.json", "inside.json")),
        (*ESTIMATE, _job(bait, str(bait.home / "sub/../law.json"), "sub/job.json")),
        (*named, "-s", f"model.law={law}"),
        (*ESTIMATE, _job(bait, str(law)), "--trust", str(law)),
        (*ESTIMATE, _job(bait, str(law)), "--trust", str(law.parent)),
    ):
        done, _ = bait.run(*command)
        assert "cannot be" in _words(done.stdout), (command, done.stdout, done.stderr)
        assert "lies outside" not in _words(done.stdout)


@pytest.mark.slow
def test_no_model_outside_the_tree_is_stated_by_its_settings(bait: Bait) -> None:
    (bait.outside / "model").mkdir()
    (bait.outside / "model/config.json").write_text('{"model_type": "gpt2"}')
    (bait.home / "link").symlink_to(bait.outside / "model")
    for name in (str(bait.outside / "model"), "../outside/model", "link"):
        bait.write("preflight.toml", f"[set]\nmodel.path = {name!r}\n")
        for command in ((*CHECK, "sweep.yaml"), (*ESTIMATE, "gpt2")):
            done, _ = bait.run(*command)
            assert done.returncode == 2
            assert "lies outside the project" in done.stderr
    done, _ = bait.run(*CHECK, "sweep.yaml", "--trust", str(bait.outside))
    assert done.returncode == 0, done.stderr


MACHINE = '[node.l40s]\nmemory = "513GB"\ncpus = 64\ngpus = 4\ngpu = "L40S"\n'


@pytest.mark.parametrize("name", ["{outside}/m.toml", "../../outside/m.toml", "link.toml", "../../../../{rest}/m"])
def test_no_machine_file_outside_the_tree_is_read(bait: Bait, name: str) -> None:
    (bait.outside / "m.toml").write_text(MACHINE)
    (bait.home / "sub/link.toml").symlink_to(bait.outside / "m.toml")
    name = name.format(outside=bait.outside, rest=str(bait.outside).lstrip("/"))
    bait.settings(f"machine = {name!r}", "sub")
    done, _ = bait.run(*CHECK, "sub")
    assert done.returncode == 2
    assert "lies outside the project" in done.stderr or "no such file" in done.stderr


def test_machine_files_that_may_be_read(bait: Bait) -> None:
    outside = bait.outside / "m.toml"
    outside.write_text(MACHINE)
    bait.write("m.toml", MACHINE)
    kept = bait.outside / ".config/preflight/machines/mine.toml"
    kept.parent.mkdir(parents=True)
    kept.write_text(MACHINE)
    for name, arguments in (
        ("../m.toml", ()),
        ("mine", ()),
        (str(outside), ("--trust", str(outside))),
        (None, ("--machine", str(outside))),
    ):
        bait.settings(f"trace = false\n{f'machine = {name!r}' if name is not None else ''}", "sub")
        done, _ = bait.run(*CHECK, "sub", *arguments)
        assert done.returncode == 0, (name, done.stderr)
