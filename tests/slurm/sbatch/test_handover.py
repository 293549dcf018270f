"""What the real sbatch gets when the script has fixes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUBMIT = "import sys; from preflight.slurm.sbatch.handover import run_changed as r; sys.exit(r(*eval(sys.argv[1])))"
SBATCH = '#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n'


def submitted(home: Path, text: bytes) -> tuple[int, list[str]]:
    program = home / "sbatch"
    program.write_text(SBATCH)
    program.chmod(0o755)
    arguments = (str(program), ["--parsable", "jobs/train.sh", "x"], 1, text)
    environment = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    done = subprocess.run(
        [sys.executable, "-c", SUBMIT, repr(arguments)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_the_fixed_script_stays_where_slurm_says_it_is(tmp_path: Path) -> None:
    status, (option, path, argument) = submitted(tmp_path, b"#!/bin/sh\n# fixed\n")
    assert (status, option, argument) == (3, "--parsable", "x")
    assert Path(path).name == "train.sh"  # the job is named after it
    assert Path(path).read_bytes() == b"#!/bin/sh\n# fixed\n"
    assert Path(path).is_relative_to(tmp_path / "data")
    assert submitted(tmp_path, b"#!/bin/sh\n# fixed\n")[1][1] == path
    assert submitted(tmp_path, b"#!/bin/sh\n# other\n")[1][1] != path


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o500)
    assert submitted(tmp_path, b"#!/bin/sh\n")[0] == 3


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    status, (_, path, _) = submitted(tmp_path, b"#!/bin/sh\n")
    assert status == 3
    assert not Path(path).exists()  # as sbatch has ended


def test_only_the_newest_scripts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.slurm.sbatch import handover

    monkeypatch.setattr(handover, "KEPT_SCRIPTS", 2)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    paths = []
    for number in range(4):
        path = handover._kept("train.sh", f"# {number}\n".encode())
        assert path is not None
        os.utime(Path(path).parent, (number, number))
        paths.append(path)
    handover._make_room(str(Path(paths[0]).parents[1]))
    assert [Path(path).exists() for path in paths] == [False, False, True, True]
