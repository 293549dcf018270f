"""The CI job that `preflight init` writes: a workflow of GitHub, or a job in `.gitlab-ci.yml`."""

from __future__ import annotations

import os
import re

from preflight import RELEASE, REPOSITORY
from preflight.engine.init.hook import parsed
from preflight.engine.init.planned import Plan, Planned, Tree, appended
from preflight.system.files import UnreadableFile, read_text
from preflight.vocabulary.text import DocumentError, Source

GITLAB = ".gitlab-ci.yml"
WORKFLOWS = ".github/workflows"
GITHUB = f"{WORKFLOWS}/preflight.yml"
WHAT = "the CI job"
JOB = "preflight"

_RUNS = re.compile(r"\bpreflight check\b|/preflight@")
"""Words of a pipeline that runs preflight."""
_ACTION = REPOSITORY.partition("//")[2].partition("/")[2]
WORKFLOW = f"""\
name: preflight
on: [push, pull_request]
permissions: {{contents: read, security-events: write}}
jobs:
  preflight:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0
      - uses: {_ACTION}@v{RELEASE}
"""
GITLAB_JOB = f"""\
preflight:
  image: python:3.12
  script:
    - pip install preflight-lint=={RELEASE}
    - python -I -m preflight check . --output gitlab=gl-code-quality.json --output junit=preflight.xml
  artifacts:
    when: always
    reports:
      codequality: gl-code-quality.json
      junit: preflight.xml
"""


def plan(tree: Tree) -> Plan:
    """The CI job of the service that the checkout is for. Raises UsageError where its file is malformed."""
    if tree.there(GITLAB):
        return _gitlab(tree)
    if tree.is_folder(".github"):
        return _github(tree)
    host = _host(tree)
    if "github" in host:
        return _github(tree)
    if "gitlab" in host:
        return _gitlab(tree)
    return Plan(notes=("CI: the checkout has no .github and no .gitlab-ci.yml, so no job is written",))


def _github(tree: Tree) -> Plan:
    for name in _workflows(tree):
        text = tree.read(name)[2]
        if _RUNS.search(text):
            return Plan(notes=(f"CI: {name} runs preflight already",))
    path, old, _ = tree.read(GITHUB)
    if old is not None:
        return Plan(notes=(f"CI: {GITHUB} is there, and is left as it is",))
    return Plan((Planned(GITHUB, path, None, WORKFLOW, WHAT),))


def _workflows(tree: Tree) -> list[str]:
    try:
        names = sorted(os.listdir(tree.root / WORKFLOWS))
    except OSError:
        return []
    return [f"{WORKFLOWS}/{name}" for name in names if name.endswith((".yml", ".yaml"))]


def _gitlab(tree: Tree) -> Plan:
    path, old, text = tree.read(GITLAB)
    if old is None or not text.strip():
        return Plan((Planned(GITLAB, path, old, appended(text, GITLAB_JOB), WHAT),))
    document = parsed(text, GITLAB)
    value = document.value()
    if _RUNS.search(text) or (isinstance(value, dict) and JOB in value):
        return Plan(notes=(f"CI: {GITLAB} runs preflight already",))
    by_hand = Plan(notes=(f"CI: {GITLAB} has a form that is not edited; add the job of docs/how-to/ci.md by hand",))
    several = any(note.kind == "several-documents" for note in document.problems)
    if not isinstance(value, dict) or document.root.style != "block" or several:
        return by_hand
    job = _in_stage(value.get("stages"))
    if job is None:
        return by_hand
    new = appended(text, "\n" + job)
    try:
        after = document.reparse(Source(GITLAB, new)).value()
    except DocumentError:
        return by_hand
    if not isinstance(after, dict) or {name: one for name, one in after.items() if name != JOB} != value:
        return by_hand
    return Plan((Planned(GITLAB, path, old, new, WHAT),))


def _in_stage(stages: object) -> str | None:
    """The job in a stage that the pipeline has. Without `stage` it is in "test", which is there unless other stages are
    listed. None: the list is not read."""
    if stages is None or (isinstance(stages, tuple) and "test" in stages):
        return GITLAB_JOB
    names = [one for one in stages if isinstance(one, str)] if isinstance(stages, tuple) else []
    if not names or not all(re.fullmatch(r"[\w.-]+", one) for one in names):
        return None
    return GITLAB_JOB.replace("  image:", f"  stage: {names[0]}\n  image:", 1)


def _host(tree: Tree) -> str:
    """The address of the first remote of the checkout, from its configuration; empty if there is none."""
    try:
        text = read_text(tree.root / ".git" / "config")
    except UnreadableFile:
        return ""
    match = re.search(r"^\s*url\s*=\s*(?:\w+://)?(?:[^@/\s]*@)?([^/:\s]+)", text, re.MULTILINE)
    return match[1].lower() if match else ""
