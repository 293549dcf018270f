"""A program in namespaces of its own: what it sees, and that nothing of it stays, for this user and another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS

from preflight.dryrun.process import INSIDE

NOBODY = 65534
SYSTEM = "/usr/bin/python3"
SEES = """\
touch own.txt && mkdir -p out/a && echo x > out/a/b && echo more >> kept.txt && rm gone.txt
ls -d out/a/b
for one in /sys/x /proc/sys/kernel/panic; do (echo 1 > $one) 2>/dev/null && echo "wrote $one"; done
ls /dev | tr '\\n' ' '
ls /run | tr '\\n' ' '
grep CapEff /proc/self/status
sed 1,2d /proc/net/dev | cut -d: -f1
ls /proc | grep -c '^[0-9]'
"""


@pytest.fixture(
    params=[
        "this user",
        pytest.param(
            "nobody",
            marks=pytest.mark.skipif(
                not hasattr(os, "getuid") or os.getuid() != 0 or not os.path.exists(SYSTEM),
                reason="only root may be another user",
            ),
        ),
    ]
)
def user(request: pytest.FixtureRequest) -> int | None:
    """None: this one. Another owns the folder `work` alone, below folders that are not its own."""
    return NOBODY if request.param == "nobody" else None


def jailed(tmp_path: Path, user: int | None) -> tuple[str, str]:
    """What `jail.py` said, and what the program wrote."""
    work, scratch = tmp_path / "theirs" / "work", tmp_path / "scratch"
    for folder in (work, scratch):
        folder.mkdir(parents=True)
    for name in ("kept.txt", "gone.txt"):
        (work / name).write_text("kept\n")
    program = tmp_path / "jail.py"
    program.write_bytes((INSIDE / "jail.py").read_bytes())
    answers, status = os.pipe()
    request = tmp_path / "request.json"
    asked = {
        "scratch": str(scratch), "disk": 2**26, "memory": 2**30, "directory": str(work), "status": status,
        "close": [status], "isolate": True, "environment": {"PATH": "/usr/bin:/bin"},
        "command": ["/bin/sh", "-c", SEES],
    }  # fmt: skip
    request.write_text(json.dumps(asked))
    if user is not None:
        for one in (work, scratch, *work.iterdir()):
            os.chown(one, user, user)
        for above in tmp_path.parents[:3]:
            above.chmod(0o755)
        tmp_path.chmod(0o755)
    more = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    python = sys.executable if user is None else SYSTEM
    process = subprocess.Popen(
        [python, "-I", "-S", str(program), str(request)], pass_fds=[status], stdout=subprocess.PIPE, text=True,
        env={"HOME": str(work)}, cwd="/", **more,
    )  # fmt: skip
    os.close(status)
    out, _ = process.communicate(timeout=HANGS)
    with os.fdopen(answers) as heard:
        return heard.read().strip(), out


def test_what_a_program_sees(tmp_path: Path, user: int | None) -> None:
    said, out = jailed(tmp_path, user)
    if said.startswith("failed"):
        pytest.skip(f"the kernel gives no namespaces: {said}")
    assert said == "started"
    lines = out.splitlines()
    assert lines[0] == "out/a/b"
    assert not any(line.startswith("wrote") for line in lines)
    assert "null" in out
    assert not any(name in out for name in ("nvidia", "sda", "kmsg", "docker.sock"))
    assert "CapEff:\t0000000000000000" in out
    assert [line.strip() for line in lines if line.strip() == "lo"] == ["lo"]
    assert int(lines[-1]) < 10, "processes of others are seen"
    work = tmp_path / "theirs" / "work"
    assert sorted(path.name for path in work.iterdir()) == ["gone.txt", "kept.txt"]
    assert (work / "kept.txt").read_text() == "kept\n"
    assert list((tmp_path / "scratch").iterdir()) == []
