"""`--show-settings`: what counts, and where it comes from."""

from __future__ import annotations

import json

import pytest
from command_line import SWEEP, Command
from folders import Write

SETTINGS = """\
gpu = "RTX 4080"
ignore = ["too-large"]
roots = ["*.yaml"]

[set]
train.seq_len = 7

[rules.too-large]
severity = "info"

[per-file-ignores]
"old/**" = ["too-large"]
"""


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


def shown(check: Command, *words: str) -> dict[str, tuple[object, str]]:
    run = check("--show-settings", "-f", "json", *words)
    assert run.status == 0
    [project] = json.loads(run.out)["projects"]
    return {one["name"]: (one["value"], one["source"]) for one in project["settings"]}


def test_without_a_file_everything_is_a_default(project: Write, check: Command) -> None:
    project({"pyproject.toml": "[project]\nname = 'x'\n", "sweep.yaml": SWEEP})
    found = shown(check)
    assert {source for _, source in found.values()} == {"default"}
    assert found["trace"] == (True, "default")


def test_nothing_is_checked(project: Write, check: Command) -> None:
    project({"sweep.yaml": "a: [", "preflight.toml": ""})
    assert check("sweep.yaml", "--show-settings").status == 0


def test_each_setting_has_its_source(project: Write, check: Command) -> None:
    project({"sub/preflight.toml": SETTINGS, "sub/sweep.yaml": SWEEP})
    found = shown(check, "sub", "--set", "train.batch_size=8", "--machine", "cluster.toml", "--trust", "x.py")
    assert found["gpu"] == ("RTX 4080", "sub/preflight.toml")
    assert found["machine"] == ("cluster.toml", "command line")
    assert found["set.train.seq_len"] == (7, "sub/preflight.toml")
    assert found["set.train.batch_size"] == (8, "command line")
    assert found["rules.too-large.severity"] == ("info", "sub/preflight.toml")
    assert found["per-file-ignores.old/**"] == (["too-large"], "sub/preflight.toml")
    assert found["select"] == ([], "default")
    assert found["trust"] == (["x.py"], "command line")


def test_the_command_line_wins(project: Write, check: Command) -> None:
    project({"preflight.toml": SETTINGS, "sweep.yaml": SWEEP})
    found = shown(check, "--gpu", "RTX 4090", "--set", "train.seq_len=9", "--select", "too-large")
    assert found["gpu"] == ("RTX 4090", "command line")
    assert found["set.train.seq_len"] == (9, "command line")
    assert found["select"] == (["too-large"], "command line")
    assert found["ignore"] == ([], "preflight.toml")


def test_text_is_a_table_for_each_project(project: Write, check: Command) -> None:
    files = {"a/preflight.toml": 'gpu = "RTX 4090"\n', "a/x.yaml": SWEEP, "b/preflight.toml": "trace = false\n"}
    project({**files, "b/x.yaml": SWEEP})
    lines = check("a", "b", "--show-settings").out.splitlines()
    assert sum(line.startswith("project ") for line in lines) == 2
    assert any(line.split() == ["gpu", '"RTX', '4090"', "a/preflight.toml"] for line in lines)
    assert any(line.split() == ["trace", "false", "b/preflight.toml"] for line in lines)


def test_the_users_own_settings(project: Write, check: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.commands import show_settings
    from preflight.engine.user_settings import UserSettings

    own = UserSettings(interpreter="/opt/python", trust=["/opt/rules.py"])
    monkeypatch.setattr(show_settings, "user_settings", lambda: own)
    project({"preflight.toml": "", "sweep.yaml": SWEEP})
    found = shown(check)
    assert found["interpreter"] == ("/opt/python", "user's settings")
    assert found["trust"] == (["/opt/rules.py"], "user's settings")


def test_broken_settings_are_an_error(project: Write, check: Command) -> None:
    project({"preflight.toml": "gpuu = 1\n", "sweep.yaml": SWEEP})
    run = check("--show-settings")
    assert (run.status, run.out) == (2, "")
