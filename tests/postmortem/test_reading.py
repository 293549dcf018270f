"""Logs as they lie about: large, packed, coloured, broken, and no logs at all."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader import read

from preflight.postmortem import plain
from preflight.postmortem.collect import SIGNS, collect
from preflight.postmortem.conclude import conclude
from preflight.postmortem.evidence import StepKilled
from preflight.postmortem.reading import BLOCK, blocks_of, logs
from preflight.postmortem.run import Postmortem
from preflight.postmortem.text import render
from preflight.reports.style import Look
from preflight.vocabulary.budgets import PIECES_OF_EVIDENCE
from preflight.vocabulary.errors import UsageError

EVENT = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
FILLER = "2025-01-01 12:00:00 INFO step {} loss 0.25 lr 1e-4\n"


def large(before: int, after: int) -> str:
    """A log of several blocks with one sign in it."""
    lines = [FILLER.format(n) for n in range(before)]
    return "".join(lines) + EVENT + "".join(FILLER.format(n) for n in range(after))


def test_blocks_without_a_sign_are_passed_over_and_counted() -> None:
    before, after = 3 * BLOCK // len(FILLER), 2 * BLOCK // len(FILLER)
    found = read(large(before, after))
    [event] = found.evidence
    assert event.place.line == before + 1
    assert found.lines == before + after + 1
    [seen] = found.before["job.log", before + 1]
    assert f"step {before - 1} " in seen.place.text


def test_what_spans_blocks_is_whole() -> None:
    """A traceback's last line lies in a block of its own."""
    head = 'Traceback (most recent call last):\n  File "/p/train.py", line 3, in main\n    '
    message = "RuntimeError: CUDA error: out of memory\n"
    line = "x" * 127 + "\n"
    for offset in (-1, 0):
        text = line * (2 * BLOCK // len(line) + offset) + head + "y\n" + message + line * (2 * BLOCK // len(line))
        [found] = conclude(read(text)).causes
        assert found.when.frame is not None, offset


def test_lines_count_over_blocks() -> None:
    text = "".join(f"{n:030}\n" for n in range(BLOCK // 12))
    numbers = [line.number for block in blocks_of("x", text) for line in block.lines()]
    assert numbers == list(range(1, BLOCK // 12 + 1))


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"x" * (5 * BLOCK) + b"\n" + EVENT.encode())
    [event] = collect([str(path)]).evidence
    assert event.place.line == 2


def test_endless_failures_are_counted() -> None:
    found = read(EVENT * (PIECES_OF_EVIDENCE + 5))
    assert len(found.evidence) == PIECES_OF_EVIDENCE
    assert found.left_out == 5


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.log", EVENT.encode()),
        ("a.log.gz", gzip.compress(EVENT.encode(), mtime=0)),
        ("a.log.xz", lzma.compress(EVENT.encode())),
        ("utf16.log", ("\ufeff" + EVENT).encode("utf-16-le")),
        ("hole.log", b"\0" * 4096 + EVENT.encode()),
        ("crash.log", (EVENT * 9).encode() + b"\0\0\0" + EVENT.encode()),
        ("latin.log", b"Gr\xf6\xdfe\n" + EVENT.encode()),
        ("crlf.log", EVENT.replace("\n", "\r\n").encode()),
        ("bar.log", b" 10%|#\r 20%|##\r" + EVENT.encode()),
    ],
)
def test_logs_of_every_kind(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert any(isinstance(one, StepKilled) for one in collect([str(path)]).evidence)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\x02\x01\0\0\0", "binary file"),
        (b"LPKSHHRH\0\0\0", "journalctl --file"),
        (gzip.compress(b"x" * 10_000, mtime=0)[:40], "cannot be read"),
        (b"\x1f\x8b nothing packed", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_error(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=words):
        collect([str(path)])


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        collect([str(tmp_path / "none.log")])
    with pytest.raises(UsageError, match="name the files"):
        logs([str(tmp_path)])


def test_a_directory_means_its_logs(tmp_path: Path) -> None:
    for name in ("train_1.out", "train_1.err", "slurm-77", "old.log.gz", "model.pt", "config.yaml"):
        (tmp_path / name).write_text("x")
    found = [Path(name).name for name in logs([str(tmp_path)])]
    assert found == ["old.log.gz", "slurm-77", "train_1.err", "train_1.out"]


WORDS = st.sampled_from(
    [
        *(sign.decode() for sign in SIGNS),
        "GPU 0 has a total capacity of 1.00 GiB of which 9.9 MiB is free.", "Process 1 has 2 bytes memory in use.",
        "Tried to allocate 99999999999.00 GiB", "Memory cgroup out of memory: Killed process 1 (", "total-vm:1kB",
        "memory: usage 1kB, limit 99999999999999999999999kB", "[ 1] 1 1 1 1 1 1", "JobID|State|ExitCode\n1|FAILED|1:0",
        "JobID State ExitCode\n----- ----- --------\n1     FAILED 1:0", '{"jobs": [', "Reason: OOMKilled", "Limits:",
        "memory: 99999Gi", "wandb: Agent Starting Run: x with config:", "wandb: \ta: [[[[",
        "Trial 1 failed with parameters: {'a': 1e999}",
        "because of the following error: ", "\r", "\n", "\x1b[31m", "\0", "[rank1]: ", 'File "a.py", line 1, in f',
        "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,pid=1", "99999999999999999999999999", "-", "|", " ",
    ]
)  # fmt: skip


@settings(max_examples=60)
@given(
    st.one_of(
        st.text(max_size=400),
        st.lists(WORDS, max_size=30).map(" ".join),
        st.lists(WORDS, max_size=30).map("\n".join),
    )
)
def test_no_text_breaks_a_parser(text: str) -> None:
    """Anything goes in, a report comes out: as text and as JSON."""
    try:
        found = read(text)
    except UsageError:
        assert "\0" in text  # taken for a binary file
        return
    result = Postmortem(found, conclude(found))
    assert render(result, Look())
    assert plain.render(result).startswith("{")
