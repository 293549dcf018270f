"""What a checked tree's settings and jobs may name: its own files, by their real paths; nothing that is started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bait import Bait, Ended, in_process

from preflight.system.files import user_directory

Command = Callable[..., Ended]
MOBILEBERT = "google/mobilebert-uncased"  # no law is shipped: an interpreter is asked for its torch


@pytest.fixture
def bait(tmp_path: Path) -> Bait:
    made = Bait(tmp_path, MOBILEBERT, names=())
    for name in ("program.py", "sweep.yaml"):
        made.write(f"sub/{name}", (made.home / name).read_text())
    made.program(made.home / "evil.sh")
    made.program(made.outside / "evil.sh")
    return made


@pytest.fixture
def command(bait: Bait, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return in_process(bait, monkeypatch, capsys)


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
def test_no_interpreter_of_a_tree_is_started(bait: Bait, command: Command, name: str) -> None:
    bait.settings(f"interpreter = {INTERPRETERS[name](bait)!r}", "sub")
    path = f"{bait.outside}/bin:{os.environ['PATH']}"
    for words in (("estimate", "sub/sweep.yaml"), ("check", "sub")):
        done, markers = command(*words, PATH=path)
        assert markers == set()
    said = " ".join(done.stdout.split())
    assert "is not started without --trust" in said or "there is no interpreter" in said


def test_a_process_of_preflight_starts_none_either(bait: Bait) -> None:
    bait.settings('interpreter = "../evil.sh"', "sub")
    for more, started in (((), set()), (("--trust", "evil.sh"), {"started"})):
        _, markers = bait.run(sys.executable, "-I", "-m", "preflight", "check", "sub", *more)
        assert markers == started


def test_an_interpreter_that_the_user_trusts_is_started(bait: Bait, command: Command) -> None:
    """On the command line by its path, relative to the current directory; and by the directory that it lies in."""
    bait.settings('interpreter = "../evil.sh"', "sub")
    for trusted in ("evil.sh", "sub/../evil.sh", str(bait.home / "evil.sh"), "."):
        _, markers = command("check", "sub", "--trust", trusted)
        assert markers == {"started"}, trusted


@pytest.mark.parametrize("trusted", ["sub", "sweep.yaml", "sub/python"])
def test_trust_in_something_else_starts_nothing(bait: Bait, command: Command, trusted: str) -> None:
    bait.settings('interpreter = "../evil.sh"', "sub")
    (bait.home / "sub/python").symlink_to("../evil.sh")
    _, markers = command("check", "sub", "--trust", trusted)
    assert markers == set()


def test_trust_in_what_a_link_leads_to_is_not_trust_in_the_link(bait: Bait, command: Command) -> None:
    """An environment's python is a link to the system's, and starts with the environment's own modules."""
    bait.settings('interpreter = "python"', "sub")
    (bait.home / "sub/python").symlink_to(bait.outside / "evil.sh")
    _, markers = command("check", "sub", "--trust", str(bait.outside / "evil.sh"))
    assert markers == set()


# --- the user's own settings ------------------------------------------------------------------------------------------


def test_the_users_own_settings_name_an_interpreter(bait: Bait, command: Command) -> None:
    _user_settings(bait, f'interpreter = "{bait.outside}/evil.sh"\n')
    _, markers = command("check", "sweep.yaml")
    assert markers == {"started"}


def test_the_users_own_settings_trust(bait: Bait, command: Command) -> None:
    bait.settings('interpreter = "./evil.sh"')
    _user_settings(bait, f'trust = ["{bait.home}/evil.sh"]\n')
    _, markers = command("check", "sweep.yaml")
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
def test_user_settings_that_are_refused(bait: Bait, command: Command, text: str, mode: int, words: str) -> None:
    path = _user_settings(bait, text.format(bait.outside) + "\n")
    path.chmod(mode)
    done, markers = command("check", "sweep.yaml")
    assert (done.returncode, markers) == (2, set())
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_others_write(bait: Bait, command: Command) -> None:
    path = _user_settings(bait, f'interpreter = "{bait.outside}/evil.sh"\n')
    path.parent.chmod(0o777)
    done, markers = command("check", "sweep.yaml")
    assert (done.returncode, markers) == (2, set())


@pytest.mark.slow
def test_a_users_directory_in_the_tree_is_none(bait: Bait, command: Command) -> None:
    """XDG_CONFIG_HOME=.config would be a directory of whoever wrote the tree."""
    bait.write(".config/preflight/settings.toml", f'interpreter = "{bait.outside}/evil.sh"\n').chmod(0o600)
    _, markers = command("check", "sweep.yaml", XDG_CONFIG_HOME=".config")
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
def test_no_law_outside_the_tree_is_read(bait: Bait, command: Command, law: Path, name: str) -> None:
    (bait.home / "link.json").symlink_to(law)
    name = name.format(outside=bait.outside)
    done, _ = command("estimate", _job(bait, name))
    assert "is outside the project" in _words(done.stdout)
    bait.write("preflight.toml", f"[set]\nmodel.law = {name!r}\nmodel.name = 'gpt2'\ntask = 'causal-lm'\n"
               "train.seq_len = 64\ntrain.precision = 'fp32'\n")  # fmt: skip
    done, _ = command("check", "sweep.yaml")
    assert "is outside the project" in _words(done.stdout)


def test_laws_that_may_be_read(bait: Bait, command: Command, law: Path) -> None:
    """In the checkout, above the settings' directory too; what the command line names; what the user trusts."""
    bait.write("law.json", "{}")
    bait.write("sub/preflight.toml", "")
    named = ("estimate", "gpt2", "-s", "train.batch_size=8", "-s", "train.seq_len=64", "-s", "train.precision=fp32")
    for words in (
        ("estimate", _job(bait, "law.json", "inside.json")),
        ("estimate", _job(bait, str(bait.home / "sub/../law.json"), "sub/job.json")),
        (*named, "-s", f"model.law={law}"),
        ("estimate", _job(bait, str(law)), "--trust", str(law)),
        ("estimate", _job(bait, str(law)), "--trust", str(law.parent)),
    ):
        done, _ = command(*words)
        assert "cannot be" in _words(done.stdout), (words, done.stdout, done.stderr)
        assert "lies outside" not in _words(done.stdout)


def test_no_model_outside_the_tree_is_stated_by_its_settings(bait: Bait, command: Command) -> None:
    (bait.outside / "model").mkdir()
    (bait.outside / "model/config.json").write_text('{"model_type": "gpt2"}')
    (bait.home / "link").symlink_to(bait.outside / "model")
    for name in (str(bait.outside / "model"), "../outside/model", "link"):
        bait.write("preflight.toml", f"trace = false\n[set]\nmodel.path = {name!r}\n")
        for words in (("check", "sweep.yaml"), ("estimate", "gpt2")):
            done, _ = command(*words)
            assert done.returncode == 2
            assert "is outside the project" in done.stderr
    done, _ = command("check", "sweep.yaml", "--trust", str(bait.outside))
    assert done.returncode == 0, done.stderr


MACHINE = '[node.l40s]\nmemory = "513GB"\ncpus = 64\ngpus = 4\ngpu = "L40S"\n'


@pytest.mark.parametrize("name", ["{outside}/m.toml", "../../outside/m.toml", "link.toml", "../../../../{rest}/m"])
def test_no_machine_file_outside_the_tree_is_read(bait: Bait, command: Command, name: str) -> None:
    (bait.outside / "m.toml").write_text(MACHINE)
    (bait.home / "sub/link.toml").symlink_to(bait.outside / "m.toml")
    name = name.format(outside=bait.outside, rest=str(bait.outside).lstrip("/"))
    bait.settings(f"machine = {name!r}", "sub")
    done, _ = command("check", "sub")
    assert done.returncode == 2
    assert "is outside the project" in done.stderr or "no such file" in done.stderr


def test_machine_files_that_may_be_read(bait: Bait, command: Command) -> None:
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
        done, _ = command("check", "sub", *arguments)
        assert done.returncode == 0, (name, done.stderr)
