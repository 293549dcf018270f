"""Builds what is published, and tries it: `python scripts/package.py [-o FOLDER]`. Nothing is uploaded.

The source distribution is built from the checkout, and the wheel from the source distribution. Their contents are
compared with the lists below, their metadata is checked, and each is installed in a fresh environment, where it must
check an example. FOLDER (default `dist`) then has both files, and SHA256SUMS.

Needs the extra `release`, and a package index for the dependencies.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ("preflight", "preflight_rules")
NEEDED = (
    "preflight/__init__.py",
    "preflight/__main__.py",
    "preflight/_version.py",
    "preflight/py.typed",
    "preflight_rules/__init__.py",
    "preflight_rules/py.typed",
)
"""Beside every file of the two packages that git knows."""
OF_SOURCE = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO")
OF_WHEEL = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
"""In the folder of the wheel's metadata."""
REFUSED = (
    "*.pyc", "*.pyo", "*~", "*.orig", "*.rej", "*.log", "*.pth", "*.so", "*.env", "*/.DS_Store", "*/.git/*", "*/.ci/*",
    "*/.github/*", "*/.venv*", "*/tests/*", "*/benchmarks/*", "*/examples/*", "*/docs/*", "*/scripts/*",
    "*/node_modules/*", "*/test_*.py", "*/conftest.py", "*.pem", "*.key", "*/.netrc", "*/.pypirc",
)  # fmt: skip
LARGEST = 20 * 2**20
"""Bytes of a file that is published. The laws are by far the largest part of it."""


class Wrong(Exception):
    """What is built must not be published."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--version", help="the version that must come out (a release: the tag without its v)")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="preflight-package-") as scratch:
            for path in checked(options.output, Path(scratch), options.version):
                print(f"{path.name}: {path.stat().st_size:,} bytes; contents, metadata and installation are right")
    except Wrong as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def checked(output: Path, scratch: Path, version: str | None) -> list[Path]:
    """The two files, built in `output` and tried."""
    output.mkdir(parents=True, exist_ok=True)
    if left := [path.name for path in output.iterdir() if path.name.startswith("preflight_lint-")]:
        raise Wrong(f"{output} has files of another build: {', '.join(sorted(left))}")
    _run([sys.executable, "-m", "build", "--outdir", str(output), str(ROOT)], scratch)
    built = sorted(path for path in output.iterdir() if path.name.startswith("preflight_lint-"))
    if [path.suffix for path in built] != [".whl", ".gz"]:
        raise Wrong(f"a wheel and a source distribution are expected, not {[path.name for path in built]}")
    wanted = tracked()
    for path in built:
        if path.stat().st_size > LARGEST:
            raise Wrong(f"{path.name} is larger than {LARGEST >> 20} MiB")
        if version is not None and f"-{version}-" not in path.name and f"-{version}." not in path.name:
            raise Wrong(f"{path.name} is not of version {version}")
        names = wheel_names(path) if path.suffix == ".whl" else source_names(path)
        if wrong := list(faults(names, wanted, wheel=path.suffix == ".whl")):
            raise Wrong(f"{path.name}: " + "; ".join(wrong[:10]))
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)], scratch)
    for path in built:
        tried(path, scratch / f"try-{path.suffix[1:]}")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    (output / "SHA256SUMS").write_text("".join(sums))
    return built


# --- contents --------------------------------------------------------------------------------------------------------


def tracked() -> frozenset[str]:
    """The files of both packages that git knows, by their names in a wheel."""
    listed = _run(["git", "ls-files", "-z", "--", "preflight", "rules/preflight_rules"], ROOT).split("\0")
    return frozenset(name.removeprefix("rules/") for name in listed if name)


def wheel_names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [one.filename for one in archive.infolist() if not one.is_dir()]


def source_names(path: Path) -> list[str]:
    """The names in a source distribution, without its folder, and of the packages as in a wheel."""
    with tarfile.open(path) as archive:
        if odd := [one.name for one in archive if not (one.isfile() or one.isdir())]:
            raise Wrong(f"{path.name} has links: {', '.join(odd[:5])}")
        names = [one.name.partition("/")[2] for one in archive if one.isfile()]
    return [name.removeprefix("rules/") for name in names]


def faults(names: Iterable[str], wanted: frozenset[str], wheel: bool) -> Iterator[str]:
    """What is missing, and what must not be inside."""
    found = set(names)
    metadata = {name: name.partition("/")[2] for name in found if re.match(r"preflight_lint-[^/]+\.dist-info/", name)}
    needed = {*wanted, *NEEDED, *(() if wheel else OF_SOURCE)}
    yield from (f"{name} is missing" for name in sorted(needed - found))
    yield from (f"{name} is missing" for name in OF_WHEEL if wheel and name not in metadata.values())
    for name in sorted(found):
        if any(fnmatchcase(f"/{name}", pattern) for pattern in REFUSED):
            yield f"{name} must not be inside"
        elif name.startswith("/") or ".." in name.split("/"):
            yield f"{name} is no relative path"
        elif name not in needed and name not in metadata and (wheel or name != ".gitignore"):
            yield f"{name} is not expected"


# --- installed -------------------------------------------------------------------------------------------------------

EXAMPLE = "examples/readme"
FOUND = "space-partly-unsafe"
"""What the README shows of the example."""


def tried(path: Path, home: Path) -> None:
    """Installs a file in a fresh environment, and does there what a first user does."""
    venv.create(home / "venv", with_pip=True)
    bin_ = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
    _run([str(bin_ / "python"), "-I", "-m", "pip", "install", "--quiet", str(path)], home)
    preflight = str(bin_ / "preflight")
    version = path.name.removeprefix("preflight_lint-").removesuffix(".tar.gz").partition("-py3")[0]
    if (said := _run([preflight, "--version"], home).split()) != ["preflight", version]:
        raise Wrong(f"{path.name}: `preflight --version` says {' '.join(said)}")
    project = home / "project"
    _copied(ROOT / EXAMPLE, project)
    found = json.loads(_run([preflight, "check", ".", "--output-format", "json", "--exit-zero"], project))
    if FOUND not in {one["rule"] for one in found["findings"]}:
        raise Wrong(f"{path.name}: the example lacks the finding {FOUND}")
    if FOUND not in _run([preflight, "rule", FOUND], home):
        raise Wrong(f"{path.name}: `preflight rule {FOUND}` does not explain it")
    if "gpt2" not in _run([preflight, "model", "list"], home):
        raise Wrong(f"{path.name}: the laws of models are missing")
    if "A100" not in _run([preflight, "machine", "list"], home):
        raise Wrong(f"{path.name}: the table of machines is missing")
    _run([str(bin_ / "python"), "-I", "-c", "import preflight.api, preflight_rules"], home)


def _copied(folder: Path, to: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            target = to / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def _run(command: list[str], cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PREFLIGHT_"))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise Wrong(f"`{' '.join(command)}` ended with {done.returncode}:\n" + "\n".join(tail))
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
