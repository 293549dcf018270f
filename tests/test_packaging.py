"""What is published: what must not be in it, its version, the image, the release, and the project's addresses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from preflight import FALLBACK, REPOSITORY

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))

import package  # noqa: E402

PROJECT = (ROOT / "pyproject.toml").read_text()
IMAGE = (ROOT / "Containerfile").read_text()
RELEASE = (ROOT / ".github/workflows/release.yml").read_text()

METADATA = [f"preflight_lint-1.0.dist-info/{name}" for name in package.OF_WHEEL]
WHOLE = {*package.NEEDED, "preflight/a.py"}


@pytest.mark.parametrize(
    ("without", "more", "said"),
    [
        ("preflight/_version.py", (), "preflight/_version.py is missing"),
        ("preflight/a.py", (), "preflight/a.py is missing"),
        ("preflight_rules/py.typed", (), "preflight_rules/py.typed is missing"),
        (METADATA[-1], (), "licenses/LICENSE is missing"),
        ("", ("preflight/__pycache__/a.cpython-312.pyc",), "must not be inside"),
        ("", ("tests/test_a.py",), "must not be inside"),
        ("", ("benchmarks/a.py",), "must not be inside"),
        ("", ("preflight/secret.pem",), "must not be inside"),
        ("", ("preflight/left.py",), "preflight/left.py is not expected"),
        ("", ("other.py",), "other.py is not expected"),
        ("", ("../other.py",), "is no relative path"),
    ],
)
def test_a_wheel_with_other_contents_is_refused(without: str, more: tuple[str, ...], said: str) -> None:
    names = {*WHOLE, *METADATA, *more} - {without}
    [found] = package.faults(names, frozenset({"preflight/a.py"}), wheel=True)
    assert said in found


def test_a_whole_wheel_and_a_whole_source_distribution_are_accepted() -> None:
    wanted = frozenset({"preflight/a.py"})
    assert list(package.faults({*WHOLE, *METADATA}, wanted, wheel=True)) == []
    assert list(package.faults({*WHOLE, *package.OF_SOURCE, ".gitignore"}, wanted, wheel=False)) == []
    assert list(package.faults({*WHOLE, *METADATA}, wanted, wheel=False)) != []


def test_the_data_of_both_packages_are_published() -> None:
    tracked = package.tracked()
    assert {"preflight_rules/__init__.py", "preflight/machines/gpus.toml"} & tracked
    assert any(name.endswith(".json.gz") for name in tracked)


def test_the_version_comes_from_tags_and_a_tree_without_them_has_a_fallback() -> None:
    assert 'dynamic = ["version"]' in PROJECT
    assert f'fallback-version = "{FALLBACK}"' in PROJECT
    assert re.search(r'requires = \[.*"hatch-vcs', PROJECT)
    assert "export-subst" in (ROOT / ".gitattributes").read_text()  # an archive of a tag knows its tag


def test_every_address_of_the_project_is_made_of_the_constant() -> None:
    """The owner changes `preflight.REPOSITORY`; this test names the places to change with it."""
    owner = REPOSITORY.removeprefix("https://github.com/")
    urls = dict(re.findall(r'^(\w+) = "(https://[^"]+)"$', PROJECT, re.MULTILINE))
    assert set(urls) == {"Repository", "Documentation", "Changelog", "Issues"}
    assert all(f"{url}/".startswith(f"{REPOSITORY}/") for url in urls.values())
    assert f'image.source="{REPOSITORY}"' in IMAGE
    for name in ("docs/how-to/admin.md", "docs/how-to/releasing.md"):
        found = re.findall(r"https://github\.com/([\w.-]+/preflight)\b", (ROOT / name).read_text())
        assert all(one == owner for one in found), name
    assert "OWNER/" not in RELEASE  # it asks the place where it runs


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Containerfile, each with its arguments on one line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "ENTRYPOINT", "CMD"}


def test_the_image_runs_as_a_user_without_rights_and_needs_no_network() -> None:
    found = instructions(IMAGE)
    assert {word for word, _ in found} <= KNOWN
    assert [rest for word, rest in found if word == "FROM"] == ["${PYTHON} AS build", "${PYTHON}"]
    assert found[0] == ("ARG", "PYTHON=python:3.12-slim")
    final = found[max(index for index, one in enumerate(found) if one[0] == "FROM") :]
    users = [rest for word, rest in final if word == "USER"]
    assert users
    assert users[-1].isdecimal()
    assert int(users[-1]) > 0
    ran = [rest for word, rest in final if word == "RUN"]
    assert not any(re.search(r"\b(pip|curl|wget|apt|apt-get|git)\b", rest) for rest in ran)
    assert next(rest for word, rest in final if word == "ENTRYPOINT") == '["python", "-I", "-m", "preflight"]'
    assert not any(word == "ADD" or "--chown=root" in rest for word, rest in found)


def test_the_image_is_built_of_the_package_alone() -> None:
    kept = (ROOT / ".containerignore").read_text().split()
    assert kept[0] == "*"
    assert {"!preflight", "!rules", "!pyproject.toml", "!README.md", "!LICENSE"} <= set(kept)
    assert not {"!.git", "!tests"} & set(kept)


def test_a_release_is_checked_before_it_is_drafted_and_only_the_last_job_may_write() -> None:
    jobs = yaml.safe_load(RELEASE)["jobs"]
    assert yaml.safe_load(RELEASE)["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["attach"]
    assert jobs["attach"]["needs"] == ["tests", "build"]
    commands = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert "bash .ci/run" in commands["tests"]
    assert "scripts/package.py --version" in commands["build"]
    assert "--draft" in commands["attach"]
    assert "${{" not in "".join(commands.values())  # text of a tag never becomes a command
    assert not re.search(r"twine upload|pypi", RELEASE)


def test_every_action_of_the_release_is_pinned_by_commit() -> None:
    used = re.findall(r"uses: (\S+)", RELEASE)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used), used
