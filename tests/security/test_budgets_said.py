"""Past a budget nothing is cut in silence: what was not read is unknown, the report says so, the rest is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.engine.ask import check
from preflight.fixes import proof
from preflight.slurm.controller.cores import _levelled
from preflight.study import follow
from preflight.vocabulary.budgets import MANIFEST_OBJECTS, SCRIPT_RUNS, SHELL_NESTED, ProofTime
from preflight.vocabulary.outcome import Outcome
from preflight.vocabulary.values import Cause

TRAIN = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=8)
a = p.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments(per_device_train_batch_size=a.bs, output_dir="x")).train()
"""
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"
POD = """---
apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [python, train.py, --bs, '{}']
"""


def checked(tmp_path: Path, **files: str) -> Outcome:
    (tmp_path / "train.py").write_text(TRAIN)
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return check([tmp_path], cwd=tmp_path)


def said(found: Outcome) -> list[str]:
    return [one.message for _, one in found.findings() if "over the budget" in one.message]


@pytest.mark.parametrize(
    ("files", "budget"),
    [
        ({"job_sh": f"{SCRIPT}{'true' + chr(10)}" + "python train.py --bs 4\n" * (SCRIPT_RUNS + 1)}, "of one file"),
        ({"job_sh": SCRIPT + "tool a\n" * SCRIPT_RUNS + "python train.py --bs 9000\n"}, SCRIPT_RUNS.over),
        ({"job_sh": SCRIPT + 'X=\'eval "$X"\'\neval "$X"\npython train.py\n'}, SHELL_NESTED.over),
        ({"pods_yaml": "".join(POD.format(n + 1) for n in range(MANIFEST_OBJECTS + 5))}, MANIFEST_OBJECTS.over),
        ({"pods_yaml": "---\nkind: ConfigMap\n" * MANIFEST_OBJECTS + POD.format(9000)}, MANIFEST_OBJECTS.over),
    ],
)
def test_what_a_file_starts_beyond_a_budget_is_unknown_and_said(
    files: dict[str, str], budget: str, tmp_path: Path
) -> None:
    found = checked(tmp_path, **files)
    [message] = said(found)
    assert budget in message
    unread = [result for _, result in found.studies() if result.unjudged is not None]
    assert [result.unjudged.cause for result in unread if result.unjudged is not None] == [Cause.budget]
    assert all(result.space.worst.estimates.verdict == "unknown" for result in unread)


def test_launches_beyond_the_budget_are_one_study_that_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(follow, "LAUNCHED", type(follow.LAUNCHED)(2, "launches of one file"))
    found = checked(tmp_path, job_sh=SCRIPT + "".join(f"python train.py --bs {n}\n" for n in (1, 2, 3, 4)))
    assert [result.unjudged is None for _, result in found.studies()] == [True, True, False]
    assert said(found) == [
        "it is over the budget of 2 launches of one file: what it starts beyond that was not checked, and is unknown"
    ]


def test_within_the_budgets_nothing_is_said(tmp_path: Path) -> None:
    found = checked(tmp_path, job_sh=SCRIPT + "f() { python train.py --bs 4; }\nf\n", pods_yaml=POD.format(2))
    assert said(found) == []
    assert all(result.unjudged is None for _, result in found.studies())


LATE = "#!/bin/bash\n#SBATCH --gres=gpu:1\nsleep 1\n" + "".join(f"#SBATCH --cpus-per-task={n}\n" for n in range(1, 7))


def test_a_fix_beyond_the_proofs_of_a_file_is_not_offered_and_the_report_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(proof, "PROOFS", type(proof.PROOFS)(2, "proofs of fixes for a file"))
    found = checked(tmp_path, job_sh=LATE + "python train.py\n")
    late = [one for _, one in found.findings() if one.rule == "slurm-directive-ignored"]
    unproved = [one for one in late if one.unproved is Cause.budget]
    assert unproved
    assert len(unproved) < len(late)
    assert all(one.fix is None for one in unproved)
    assert all("not proved: it is over the budget of 2 proofs" in one.notes[-1] for one in unproved)
    assert any(note.startswith("fixes of") for report in found.reports for note in report.notes)


def test_when_the_time_of_proofs_is_used_up_no_fix_is_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ProofTime, "over", lambda self: True)
    found = checked(tmp_path, job_sh=LATE + "python train.py\n")
    late = [one for _, one in found.findings() if one.proposals]
    assert late
    assert all(one.fix is None and one.unproved is Cause.budget for one in late)


def test_the_time_of_proofs_counts_what_is_inside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("preflight.vocabulary.budgets.time.process_time", lambda: now[0])
    clock = ProofTime()
    now[0] = 100.0  # outside
    with clock.spent():
        now[0] += 3
        with clock.spent():
            now[0] += 1.5
        assert not clock.over()
        now[0] += 1
        assert clock.over()
    assert clock.over()


@pytest.mark.parametrize(
    ("cores", "needed", "kept"),
    [
        ([10**9, 10**9], 10**9, [5 * 10**8, 5 * 10**8]),
        ([4, 4], 5, [2, 3]),
        ([2, 8], 5, [2, 3]),
        ([8, 2, 8], 12, [5, 2, 5]),
        ([1, 1], 0, [0, 0]),
    ],
)
def test_cores_are_levelled_without_counting_them(cores: list[int], needed: int, kept: list[int]) -> None:
    assert _levelled(cores, needed) == kept
