"""The report of a process is checked: it is written by a process in which a stranger's program ran."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.dryrun.batch_law import NoLaw, law
from preflight.dryrun.command import StartedProgram
from preflight.dryrun.environment import for_program
from preflight.dryrun.facts import estimated
from preflight.dryrun.process import NoAnswer
from preflight.dryrun.report_of_process import holders, read, recording
from preflight.memory.device import recorded
from preflight.vocabulary.estimates import ALL_PARTS

MIB = 2**20
PLACES = [
    ["load", "net", "", "/w/train.py:1"],
    ["forward", "net.0", "/x/site-packages/lib/a.py:7", "/w/train.py:5"],
    ["backward", "net.0", "", "/w/train.py:5"],
    ["optimizer", "", "", "/w/train.py:6"],
]
RAW: dict[str, Any] = {
    "end": "ended", "reason": "the program ended", "steps": [2], "backwards": [1, 2],
    "trained": True, "validated": True,
    "places": PLACES,
    # weights; an activation that backward frees; gradients; two states; a temporary of the step
    "sizes": [64 * MIB, 32 * MIB, 64 * MIB, -2, 128 * MIB, 16 * MIB, -6],
    "at": [0, 1, 2, 2, 3, 3, 3],
    "kinds": {"0": "weights", "2": "gradients", "4": "optimizer"},
    "shapes": {"0": "4096 x 4096 x 4"},
    "facts": {"loaders": [{"batch_size": 8, "workers": 2, "trains": True}], "optimizers": [{"name": "AdamW"}]},
}  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"end": "perhaps"},
        {"end": None},
        {"sizes": [1, 2], "at": [0]},
        {"sizes": [1], "at": [9]},
        {"sizes": [1], "at": ["0"]},
        {"sizes": [-5], "at": [0]},
        {"sizes": [1, -1, -1], "at": [0, 0, 0]},
        {"sizes": [2**60], "at": [0]},
        {"sizes": [1.5], "at": [0]},
        {"places": [["load"]]},
        {"places": 3},
        {"steps": "many"},
        {"kinds": {"a": "weights"}},
        {"assumptions": [["one"]]},
        {"versions": ["torch"]},
        {"devices": {"0": "second"}},
    ],
)
def test_a_damaged_report(changed: dict[str, Any]) -> None:
    with pytest.raises(NoAnswer, match="the report of the process is damaged"):
        read({**RAW, **changed})


def test_parts_and_phases() -> None:
    tape = recording(read(RAW), "/w")
    assert [tape.parts.get(at, "temporary") for at in (0, 1, 2, 4, 5)] == [
        "weights", "activations", "gradients", "optimizer", "temporary",
    ]  # fmt: skip
    assert tape.phases == ["load", "forward", "backward", "backward", "optimizer", "optimizer", "optimizer"]
    assert (tape.where[0], tape.where[4]) == ("net", "train.py:6")


def test_the_peak() -> None:
    found = recorded.peak(recording(read(RAW), "/w").events)
    assert found.bytes == (64 + 64 + 128 + 16) * MIB
    assert found.alive == (0, 2, 4, 5)


def test_the_gpu_that_takes_the_most_is_judged() -> None:
    """Two storages on the second GPU: the larger part stays. With a larger one there, that GPU is judged."""
    raw = {**RAW, "devices": {"1": 1, "5": 1}, "marks": [[5, "stepped"]]}
    first = read(raw)
    assert (recorded.peak(first.events).bytes // MIB, first.marks, first.gpus) == (256, ((3, "stepped"),), 2)
    assert {first.events[at]: kind for at, kind in first.kinds.items()} == {
        64 * MIB: "gradients", 128 * MIB: "optimizer"
    }  # fmt: skip
    second = read({**raw, "sizes": [64, 32 * MIB, 64, -2, 128, 16 * MIB, -6]})
    assert (second.events, second.kinds) == ((32 * MIB, -1, 16 * MIB, -3), {})
    assert second.assumptions == (("the program uses GPUs 0, 1: GPU 1, which takes the most, was judged", ""),)
    with pytest.raises(NoLaw, match="several GPUs"):
        law(8, None, second, lambda batch, length: second, "/w")
    only = read({**RAW, "devices": {str(at): 3 for at in (0, 1, 2, 4, 5)}})
    assert (only.events, only.assumptions, only.gpus) == (read(RAW).events, (), 1)


def test_holders_name_lines_and_modules() -> None:
    found = holders(read(RAW), "/w")
    assert [(one.name, one.bytes // MIB, one.part) for one in found.lines] == [
        ("train.py:6", 128, "optimizer"), ("train.py:1", 64, "weights"), ("train.py:5", 64, "gradients"),
        ("train.py:6", 16, "temporary"),
    ]  # fmt: skip
    assert [one.name for one in found.modules] == ["net", "net.0"]


PROGRAM = StartedProgram("/usr/bin/python", "train.py", False, ())


def test_the_tiers() -> None:
    """The replay counts what is alive, and cuBLAS' two workspaces with it."""
    found = estimated(read(RAW), PROGRAM, None, "/w").estimates.device
    assert found is not None
    assert found.requested.expected == 272 * MIB
    workspaces = 2 * (8 * MIB + 128 * 1024)
    assert found.allocated.expected == 272 * MIB + workspaces
    assert set(ALL_PARTS) < set(found.breakdown)
    assert sum(found.breakdown.values()) == found.process.expected
    assert (found.phase, found.where) == ("optimizer", "train.py:6")


@pytest.mark.parametrize(
    ("changed", "verdict", "bound"),
    [
        ({}, "fits", False),
        ({"assumptions": [["the text is made up", "train.seq_len"]]}, "fits-if", False),
        ({"assumptions": [["a logger is a stand-in", ""]]}, "fits", False),
        ({"end": "finished", "validated": False}, "fits-if", False),
        ({"end": "failed", "trained": False}, "unknown", True),
        ({"end": "stopped", "trained": False}, "unknown", True),
    ],
)
def test_verdicts(changed: dict[str, Any], verdict: str, bound: bool) -> None:
    from preflight.engine.target import gpu_named

    found = estimated(read({**RAW, **changed}), PROGRAM, gpu_named("RTX 4090", "--gpu"), "/w").estimates.device
    assert found is not None
    assert (found.verdict, found.lower_bound) == (verdict, bound)


def test_a_lower_bound_may_exceed() -> None:
    from preflight.engine.target import gpu_named

    raw = {**RAW, "end": "failed", "trained": False, "sizes": [2**40], "at": [0], "kinds": {}}
    found = estimated(read(raw), PROGRAM, gpu_named("RTX 4090", "--gpu"), "/w").estimates.device
    assert found is not None
    assert (found.verdict, found.lower_bound) == ("exceeds", True)


def test_fields_that_were_seen() -> None:
    found = estimated(read({**RAW, "allocator": "expandable_segments:True,max_split_size_mb:128"}), PROGRAM, None, "/w")
    assert (found.job.train.batch_size, found.job.data.workers, found.job.train.optimizer) == (8, 2, "adamw")
    assert (found.job.train.allocator.expandable_segments, found.job.train.allocator.max_split_size_mb) == (True, 128)
    assert {one.value for one in found.standings.values()} == {"dry-run"}


def test_secrets_stay_behind() -> None:
    stated = {
        "HF_TOKEN": "1", "WANDB_API_KEY": "1", "AWS_ACCESS_KEY_ID": "1", "GITHUB_TOKEN": "1", "MY_PASSWORD": "1",
        "SSH_AUTH_SOCK": "1", "https_proxy": "1", "DATABASE_URL": "1", "PATH": "/bin", "PYTHONPATH": "src",
        "TOKENIZERS_PARALLELISM": "true", "OMP_NUM_THREADS": "2",
    }  # fmt: skip
    found = for_program({"RANK": "0"}, "/scratch", stated)
    assert {name for name in stated if found.get(name) == stated[name]} == {"PATH", "PYTHONPATH", "OMP_NUM_THREADS"}
    assert (found["RANK"], found["HF_HUB_OFFLINE"], found["CUDA_VISIBLE_DEVICES"]) == ("0", "1", "")
