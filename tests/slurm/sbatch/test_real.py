from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.slurm.sbatch.real import find_real, printed
from preflight.vocabulary.errors import UsageError


def program(path: Path, text: str | bytes, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "text",
    [
        '#!/bin/sh\nexec preflight sbatch "$@"\n',
        '#!/bin/sh\nexec "/opt/my tools/preflight" sbatch "$@"\n',
        '#!/bin/sh\nexec python -m preflight sbatch "$@"\n',
        "#!/opt/preflight/bin/python\nfrom preflight.cli import main\nmain()\n",
        "#!/opt/preflight/bin/python\nfrom preflight.__main__ import main\nmain()\n",
        printed("wrapper", "/bin/true"),
    ],
)
def test_what_starts_preflight_is_not_the_real_one(text: str, tmp_path: Path) -> None:
    program(tmp_path / "a" / "sbatch", text)
    program(tmp_path / "b" / "sbatch", "#!/bin/sh\n", mode=0o644)
    real = program(tmp_path / "c" / "sbatch", "#!/bin/sh\n# a site's own, with preflight checks before sbatch is run\n")
    path = os.pathsep.join(str(tmp_path / name) for name in ("none", "a", "b", "c"))
    assert find_real(None, {"PATH": path}) == str(real)
    with pytest.raises(UsageError, match="no sbatch in PATH"):
        find_real(None, {"PATH": str(tmp_path / "a")})


def test_the_one_that_is_named_counts(tmp_path: Path) -> None:
    first, second = (program(tmp_path / name / "sbatch", b"\x7fELF") for name in ("first", "second"))
    environment = {"PATH": str(tmp_path / "first")}
    assert find_real(None, environment) == str(first)
    assert find_real(None, {**environment, "PREFLIGHT_REAL_SBATCH": str(second)}) == str(second)
    assert find_real(str(first), {**environment, "PREFLIGHT_REAL_SBATCH": str(second)}) == str(first)
    with pytest.raises(UsageError, match="cannot be run"):
        find_real(str(tmp_path / "third"), environment)
