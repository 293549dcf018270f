"""Tests of a script that can be decided: the branch that runs is read, and the others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study.build import build
from preflight.vocabulary.project import Project, Submission
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Unknown, Value, evaluate

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --nodes=2\n"
PROGRAM = """\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
args = parser.parse_args()
model = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.AdamW(model.parameters())
for x in DataLoader(data, batch_size=args.batch_size):
    model(x).sum().backward()
    opt.step()
"""
LOOP = """\
BS=8
while [[ $# -gt 0 ]]; do
  case $1 in
    --bs) BS="$2"; shift 2 ;;
    --twice) BS=$((BS * 2)); shift ;;
    *) echo "unknown: $1"; exit 1 ;;
  esac
done
"""


def batch(root: Path, script: str, *words: str) -> Value:
    (root / "train.py").write_text(PROGRAM)
    (root / "job.sh").write_text(f"{HEAD}{script}python train.py --batch_size $BS\n")
    project = Project(root, Settings())
    if words:
        project.submit("job.sh", Submission((), {}, ("job.sh", *words)))
    (study,) = build(["job.sh"], project)[0]
    value = evaluate(study.boxes[0].fields["train.batch_size"].expr)
    return "?" if isinstance(value, Unknown) else value


@pytest.mark.parametrize(
    "script",
    [
        'BS=8\nif [ "$MODE" = big ]; then BS=16; fi\n',
        'MODE=${MODE:-small}\nBS=8\nif [ "$MODE" = big ]; then BS=16; fi\n',
        'BS=8\nif [ "${MODE:-small}" = big ]; then BS=16; fi\n',
        "BS=8\nif [ -f data.txt ]; then BS=16; fi\n",
        "BS=8\nif [[ $(hostname) == a* ]]; then BS=16; fi\n",
        "BS=8\nNAME=abc\nif [[ $NAME == a* ]]; then BS=16; fi\n",
        "BS=8\nX=1\nif [ $X -eq 1 ] && [ -d data ]; then BS=16; fi\n",
        'BS=8\ncase "$MODE" in small) BS=8;; *) BS=16;; esac\n',
        "BS=8\nfor X in $LIST; do X=$X; if [ $X = a ]; then BS=16; fi; done\n",
        'BS=8\n[ "$MODE" = big ] && BS=16\n',
    ],
)  # fmt: skip
def test_what_cannot_be_decided_stays_unknown(script: str, tmp_path: Path) -> None:
    assert batch(tmp_path, script) == "?"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("X=1\nBS=8\nif [[ $X -eq 1 ]]; then BS=16; fi\n", 16),
        ("X=0\nBS=8\nif [[ $X -eq 1 ]]; then BS=16; fi\n", 8),
        ('X=y\nif [ "$X" = y ]; then BS=8; else BS=16; fi\n', 8),
        ('X=n\nif [ "$X" = y ]; then BS=8; elif [ "$X" != n ]; then BS=4; else BS=16; fi\n', 16),
        ("X=3\nBS=8\nif (( X > 2 )); then BS=16; fi\n", 16),
        ("X=3\nBS=8\nif [[ $X -gt 2 && $X -le 3 ]]; then BS=16; fi\n", 16),
        ('X=\nBS=8\nif [[ -z "$X" ]]; then BS=16; fi\n', 16),
        ('X=a\nBS=8\n[[ $X == a ]] && BS=16\n', 16),
        ('X=a\nBS=8\n[ "$X" = a ] || BS=16\n', 8),
        ('X=b\ncase "$X" in a|c) BS=4;; b) BS=16;; *) BS=8;; esac\n', 16),
        ('X=z\ncase "$X" in a|c) BS=4;; b) BS=16;; *) BS=8;; esac\n', 8),
        ('BS=8\nif [ "$SLURM_NNODES" -gt 1 ]; then BS=16; fi\n', 16),
        ("X=1\nBS=8\nif [ $X = 2 ]; then echo bad; exit 1; fi\n", 8),
    ],
)  # fmt: skip
def test_the_branch_that_runs_is_read(script: str, expected: int, tmp_path: Path) -> None:
    assert batch(tmp_path, script) == expected


@pytest.mark.parametrize(
    ("words", "expected"), [(("--bs", "4"), 4), (("--bs", "4", "--twice"), 8), (("--bs", "4", "--bs", "2"), 2)]
)
def test_a_loop_over_known_arguments_is_followed(words: tuple[str, ...], expected: int, tmp_path: Path) -> None:
    assert batch(tmp_path, LOOP, *words) == expected


@pytest.mark.parametrize(
    "head",
    ['while [ "$1" != "" ]', "while test $# -gt 0", 'while [[ -n "$1" ]]', "until [ $# -eq 0 ]", "while (( $# ))"],
)
def test_a_loop_over_arguments_may_be_written_in_other_ways(head: str, tmp_path: Path) -> None:
    loop = LOOP.replace("while [[ $# -gt 0 ]]", head)
    assert batch(tmp_path, loop, "--bs", "4", "--twice") == 8
    assert batch(tmp_path, loop) == 8  # assumed: none may be given


BY_EQUALS = """\
BS=8
for arg in "$@"; do
  case $arg in
    --bs=*) BS="${arg#*=}" ;;
    --half=*) BS=$(( ${arg#--half=} / 2 )) ;;
    *=twice) BS=$((BS * 2)) ;;
    --help) exit 1 ;;
  esac
done
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "?"),  # nobody shows with which arguments it is started
        (("",), 8),
        (("--bs=64",), "64"),
        (("--other", "--bs=64", "--bs=4"), "4"),
        (("--half=64",), 32),
        (("--bs=16", "mode=twice"), 32),
        (("--bs=a=b",), "a=b"),
    ],
)
def test_values_behind_an_equals_sign_come_from_the_arguments(
    words: tuple[str, ...], expected: Value, tmp_path: Path
) -> None:
    found = batch(tmp_path, BY_EQUALS, *words)
    assert str(found) == str(expected) if expected != "a=b" else found in ("?", "a=b")


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ("${x#*=}", "4=5"),
        ("${x##*=}", "5"),
        ("${x%%=*}", "3"),
        ("${x#3=}", "4=5"),
        ("${x#9}", "3=4=5"),
        ("${x#*:}", "3=4=5"),
    ],
)
def test_what_is_cut_off_a_text(cut: str, expected: str, tmp_path: Path) -> None:
    assert str(batch(tmp_path, f"x=3=4=5\nBS={cut}\n")) in (expected, "?")
    number = batch(tmp_path, f"x={expected}7\nBS=${{x#{expected}}}\n")
    assert str(number) == "7"
