"""The files of `preflight init` as texts: which are edited, and that every other byte stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from preflight import RELEASE
from preflight.engine.init import hook, pipeline, settings_file
from preflight.engine.init.computer import Found
from preflight.engine.init.planned import Plan, Tree
from preflight.engine.settings import load, parse, toml_of
from preflight.machines.gpus import find_gpu
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.settings import Settings

OTHERS = """\
# checked by pre-commit.ci, too
default_language_version: {python: python3}

repos:
-   repo: https://github.com/pre-commit/pre-commit-hooks
    rev:   v4.6.0     # pinned
    hooks:
      - id: check-yaml
        args: ['--unsafe']
      # - id: check-json

ci:
    skip: [check-yaml]
"""


def planned(folder: Path, name: str, text: str | None, what: str) -> Plan:
    """The plan with one file in a checkout."""
    if text is not None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    tree = Tree(folder)
    if what == "hook":
        return hook.plan(tree)
    if what == "pipeline":
        return pipeline.plan(tree)
    load.__globals__["_in_folder"].cache_clear()
    settings, file = load(folder)
    file = file if file is not None and file.is_relative_to(folder) else None
    own = settings if file is not None else Settings.model_construct()
    return settings_file.plan(tree, "", own, file, Found(find_gpu("T4"), "a test"))


# --- what must not happen -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        (".pre-commit-config.yaml", "repos: [\n", "hook"),
        (".pre-commit-config.yaml", "repos:\n\t- a\n", "hook"),
        (".gitlab-ci.yml", "test: {script: [\n", "pipeline"),
        ("pyproject.toml", "[project\nname = 1\n", "settings"),
        ("pyproject.toml", "[tool]\npreflight = 3\n", "settings"),
        ("preflight.toml", 'gpus = "T4"\n', "settings"),
    ],
)
def test_a_malformed_file_is_an_error(tmp_path: Path, name: str, text: str, what: str) -> None:
    with pytest.raises(PreflightError, match=name):
        planned(tmp_path, name, text, what)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        (".pre-commit-config.yaml", "- repo: local\n", "hook"),
        (".pre-commit-config.yaml", "repos: [{repo: local, hooks: []}]\n", "hook"),
        (".pre-commit-config.yaml", "repos:\n  - repo: local\n    hooks: []\n---\nrepos: []\n", "hook"),
        (".pre-commit-config.yaml", "repos: 3\n", "hook"),
        (".pre-commit-config.yaml", "a: &r\n  - repo: local\n    hooks: []\nrepos: *r\n", "hook"),
        (".gitlab-ci.yml", "- a\n", "pipeline"),
        (".gitlab-ci.yml", "{test: {script: [make]}}\n", "pipeline"),
        (".gitlab-ci.yml", "spec: {inputs: {a: {default: b}}}\n---\ntest: {script: [make]}\n", "pipeline"),
        (".gitlab-ci.yml", "stages: !reference [.a, stages]\n", "pipeline"),
        ("pyproject.toml", "tool = {preflight = {select = []}}\n", "settings"),
    ],
)
def test_a_form_that_is_not_edited_is_said(tmp_path: Path, name: str, text: str, what: str) -> None:
    plan = planned(tmp_path, name, text, what)
    assert plan.files == ()
    assert any("by hand" in note or "not edited" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        (".pre-commit-config.yaml", "repos:\n  - repo: local\n    hooks:\n      - id: preflight\n", "hook"),
        (".pre-commit-config.yaml", "repos:\n- repo: x\n  hooks: [{id: a}, {id: preflight-fix}]\n", "hook"),
        (".gitlab-ci.yml", "checks:\n  script: [python -I -m preflight check .]\n", "pipeline"),
        (".github/workflows/a.yaml", "jobs: {a: {steps: [{uses: someone/preflight@v1}]}}\n", "pipeline"),
        ("pyproject.toml", '[tool.preflight]\ngpu = "T4"\n', "settings"),
        ("preflight.toml", '[set]\n"machine.gpu" = "T4"\n', "settings"),
    ],
)
def test_what_is_there_is_not_added_again(tmp_path: Path, name: str, text: str, what: str) -> None:
    plan = planned(tmp_path, name, text, what)
    assert plan.files == ()
    assert len(plan.notes) == 1


@pytest.mark.parametrize("what", ["hook", "pipeline", "settings"])
def test_a_link_out_of_the_checkout_is_refused(tmp_path: Path, what: str) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    names = {"hook": ".pre-commit-config.yaml", "pipeline": ".gitlab-ci.yml", "settings": "pyproject.toml"}
    (outside / "file").write_text("")
    (inside / names[what]).symlink_to(outside / "file")
    with pytest.raises(PreflightError, match="leads out"):
        planned(inside, "other.txt", "", what)


def test_a_folder_that_is_a_link_out_of_the_checkout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / ".github").symlink_to(tmp_path / "outside")
    with pytest.raises(PreflightError, match="leads out"):
        pipeline.plan(Tree(inside))


@pytest.mark.parametrize("kind", ["folder", "dangling", "latin"])
def test_no_regular_text(tmp_path: Path, kind: str) -> None:
    path = tmp_path / hook.FILE
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to(tmp_path / "gone")
    else:
        path.write_bytes(b"# \xe9\nrepos: []\n")
    with pytest.raises(PreflightError, match="nothing was written"):
        hook.plan(Tree(tmp_path))


def test_without_git_there_is_no_hook(tmp_path: Path) -> None:
    assert hook.plan(Tree(tmp_path, version_controlled=False)).files == ()


# --- what must ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        OTHERS, OTHERS.replace("\n", "\r\n"), OTHERS.replace("-   repo", "  - repo").replace("    rev", "    rev"),
        OTHERS.partition("\nci:")[0], OTHERS.partition("\nci:")[0].rstrip("\n"), "repos: []\n", "repos: []", "ci: {}\n",
        "repos:\n- repo: local\n  hooks: [{id: a}]  # one\n# end\n", "\ufeffrepos:\n- repo: meta\n  hooks: [{id: a}]\n",
        "repos:\n\n    - repo: meta\n      hooks:\n      - id: a\n        files: |\n          x\n\nfail_fast: true\n",
    ],
)  # fmt: skip
def test_other_hooks_stay_byte_by_byte(tmp_path: Path, text: str) -> None:
    [file] = planned(tmp_path, hook.FILE, text, "hook").files
    old, new = yaml.safe_load(text.removeprefix("\ufeff")), yaml.safe_load(file.text)
    added = new["repos"][-1]
    assert {**new, "repos": new["repos"][:-1]} == {**old, "repos": old.get("repos", [])}
    assert [one["id"] for one in added["hooks"]] == ["preflight"]
    kept = iter(file.data.splitlines(keepends=True))
    lines = [line for line in text.encode().splitlines() if b"repos: []" not in line]
    assert all(any(line == one.rstrip(b"\r\n") for one in kept) for line in lines)
    assert ("\r\n" in file.text) == ("\r\n" in text)
    assert "\n" not in file.text.replace("\r\n", "") or "\r\n" not in text
    (tmp_path / hook.FILE).write_bytes(file.data)
    assert hook.plan(Tree(tmp_path)).files == ()


def test_a_new_hook(tmp_path: Path) -> None:
    [file] = planned(tmp_path, hook.FILE, None, "hook").files
    assert file.old is None
    assert yaml.safe_load(file.text)["repos"][0]["hooks"] == [{"id": "preflight"}]


def test_the_hook_is_one_of_ours() -> None:
    ours = yaml.safe_load((Path(__file__).parents[3] / ".pre-commit-hooks.yaml").read_text())
    assert {one["id"] for one in ours} == set(hook.HOOKS)


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("test:\n  script: [make]\n", None), ("stages: [build, test]\n", None),
        ("stages:\n  - lint\n  - deploy\n", "lint"),
        (".a: &a {x: 1}\nb:\n  <<: *a\n  script:\n    - !reference [.c, script]\n", None),
    ],
)  # fmt: skip
def test_a_job_of_gitlab_is_in_a_stage_that_is_there(tmp_path: Path, text: str, stage: str | None) -> None:
    [file] = planned(tmp_path, pipeline.GITLAB, text, "pipeline").files
    assert file.text.startswith(text)
    job = yaml.safe_load(file.text.replace("!reference", ""))["preflight"]
    assert job.get("stage") == stage


def test_the_service_is_known_by_its_files_or_the_remote(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert pipeline.plan(Tree(tmp_path)).files == ()
    (tmp_path / ".git" / "config").write_text('[remote "origin"]\n\turl = git@gitlab.example.org:a/b.git\n')
    assert [one.name for one in pipeline.plan(Tree(tmp_path)).files] == [pipeline.GITLAB]
    (tmp_path / ".git" / "config").write_text('[remote "origin"]\n\turl = https://token@github.com/a/b.git\n')
    assert [one.name for one in pipeline.plan(Tree(tmp_path)).files] == [pipeline.GITHUB]
    workflow = yaml.safe_load(pipeline.WORKFLOW)
    assert all("uses" in step for step in workflow["jobs"]["preflight"]["steps"])


@pytest.mark.parametrize(
    "text",
    [
        None, "", "[project]\nname = 'a'\n", "[project]\nname = 'a'",
        "[tool.preflight]\nignore = []\n[tool.x]\na = 1\n", "[tool.preflight]  # ours\r\nignore = []\r\n",
        "[tool.preflight.set]\n'data.workers' = 2\n", "[ tool . preflight ]",
        'a = """\n[tool.preflight]\n"""\n',
    ],
)  # fmt: skip
def test_settings_keep_every_other_byte(tmp_path: Path, text: str | None) -> None:
    [file] = planned(tmp_path, "pyproject.toml", text, "settings").files
    assert file.name == ("preflight.toml" if text is None else "pyproject.toml")
    table = toml_of(file.text, "new")
    tool = table if text is None else table["tool"]["preflight"]  # type: ignore[index]
    assert tool["gpu"] == "T4"  # type: ignore[index]
    for line in (text or "").splitlines():
        assert line in file.text.splitlines()


def test_settings_in_a_file_of_their_own(tmp_path: Path) -> None:
    text = "# ours\nignore = []\n[set]\n'data.workers' = 2\n"
    [file] = planned(tmp_path, "preflight.toml", text, "settings").files
    assert file.text.endswith(text)
    assert parse(file.text).gpu == "T4"


@pytest.mark.parametrize("text", [pipeline.WORKFLOW, pipeline.GITLAB_JOB, str(hook.ENTRY["rev"])])
def test_files_name_a_release(text: str) -> None:
    """The version of a working tree (0.1.1.dev3+g12ab) is no tag, and no package has it."""
    assert RELEASE in text
    assert re.fullmatch(r"\d+\.\d+\.\d+", RELEASE)
