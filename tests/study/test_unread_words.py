"""Words of a command line that nobody knows: what they may set is unknown, and what stands behind them is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import FLAGS_LOOP as PROGRAM

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Cause, Unknown, Value, evaluate

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --array=1-4\n"
HYDRA = """\
import hydra
import torch
from torch.utils.data import DataLoader


@hydra.main(config_path="conf", config_name="config")
def main(cfg):
    model = torch.nn.Linear(8, 8).cuda()
    opt = torch.optim.AdamW(model.parameters())
    for x in DataLoader(data, batch_size=cfg.batch_size, num_workers=cfg.workers):
        model(x).sum().backward()
        opt.step()


main()
"""


def fields(root: Path, script: str, **more: str) -> dict[str, Value]:
    """The Job fields of the one study of a script beside the programs."""
    (root / "conf").mkdir()
    files = {
        "job.sh": HEAD + script, "train.py": PROGRAM, "app.py": HYDRA,
        "conf/config.yaml": "batch_size: 16\nworkers: 2\n", **more,
    }  # fmt: skip
    for name, text in files.items():
        (root / name).write_text(text)
    (study,) = build(["job.sh"], Project(root, Settings()))[0]
    return {name: evaluate(bound.expr) for name, bound in study.boxes[0].fields.items()}


UNREAD = {
    "the output of a command": 'LINE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt)\npython train.py $LINE\n',
    "the output of a command in the line": "python train.py $(cat options.txt)\n",
    "all arguments": 'python train.py --batch_size 8 "$@"\n',
    "all arguments, kept": 'ARGS="$@"\npython train.py --batch_size 8 $ARGS\n',
    "all arguments of a function": 'run() { python train.py "$@"; }\nrun "$@"\n',
    "the later arguments": 'python train.py "${@:2}"\n',
    "a variable that is not set": "python train.py --batch_size 8 $EXTRA_ARGS\n",
    "behind a switch": "python train.py --amp $EXTRA_ARGS\n",
    "elements of an array that is read": "mapfile -t RUNS < runs.txt\npython train.py ${RUNS[$SLURM_ARRAY_TASK_ID]}\n",
    "a here-string": 'read -r A B <<< "$LINE"\npython train.py $A $B\n',
    "a command string": 'eval "python train.py --batch_size 8 $EXTRA"\n',
    "a file of arguments": "python train.py @args.txt\n",
    "either of two values": 'if [ -n "$X" ]; then A="$1"; else A=""; fi\npython train.py $A\n',
}


@pytest.mark.parametrize("script", UNREAD.values(), ids=UNREAD)
def test_an_option_that_unknown_words_may_set_is_unknown(script: str, tmp_path: Path) -> None:
    assert isinstance(fields(tmp_path, script)["train.batch_size"], Unknown)


KNOWN = {
    "behind them": 'python train.py "$@" --batch_size 8\n',
    "the value of an option": "python train.py --batch_size 8 --workers $WORKERS\n",
    "the value of an option that nobody knows": "python train.py --batch_size 8 --out $OUT\n",
    "arguments of a function": 'run() { python train.py "$@"; }\nrun --batch_size 8\n',
    "arguments that are set": 'set -- --batch_size 8\npython train.py "$@"\n',
    "other options under a condition": (
        'A=""\nif [ -n "$X" ]; then A="--workers $N"; fi\npython train.py --batch_size 8 $A\n'
    ),
    "other options in both branches": (
        'if [ -n "$X" ]; then A="--workers 2"; else A="--amp"; fi\npython train.py --batch_size 8 $A\n'
    ),
}


@pytest.mark.parametrize("script", KNOWN.values(), ids=KNOWN)
def test_an_option_that_they_cannot_set_is_known(script: str, tmp_path: Path) -> None:
    assert fields(tmp_path, script)["train.batch_size"] == 8


POSITIONAL = PROGRAM.replace("args = parser", 'parser.add_argument("data")\nargs = parser')


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('python train.py --batch_size 8 "$@"', None),
        ("python train.py --batch_size 8 $*", None),
        ('python train.py "${@:2}"', None),
        ('ARGS="$@"\npython train.py --batch_size 8 $ARGS', None),
        ("LINE=$(sed -n 3p params.txt)\npython train.py $LINE", None),
        ("python train.py $(cat options.txt)", None),
        ('python train.py "$@" --batch_size 8', 8),
        ('python train.py --batch_size 8 "$1"', 8),
        ("python train.py $DATA --batch_size 8", 8),
        ("python train.py $(pwd)/data", 32),
    ],
)
def test_a_positional_argument_takes_one_word(line: str, expected: int | None, tmp_path: Path) -> None:
    """`"$@"` may hold it and any option: it is not the value of the argument alone."""
    found = fields(tmp_path, f"{line}\n", **{"train.py": POSITIONAL})["train.batch_size"]
    assert isinstance(found, Unknown) if expected is None else found == expected


def test_options_under_a_condition_are_unknown_by_name(tmp_path: Path) -> None:
    found = fields(tmp_path, 'if [ -n "$X" ]; then A="--batch_size 64"; fi\npython train.py $A --workers 1\n')
    assert isinstance(found["train.batch_size"], Unknown)
    assert found["data.workers"] == 1


def test_the_cause_names_the_words(tmp_path: Path) -> None:
    found = fields(tmp_path, "python train.py $EXTRA_ARGS\n")["train.batch_size"]
    assert isinstance(found, Unknown)
    assert found.cause is Cause.not_set
    assert "EXTRA_ARGS" in found.words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python app.py $OVERRIDES", None),
        ("python app.py -m $OVERRIDES", None),
        ('python app.py batch_size=8 "$@"', None),
        ("python app.py $OVERRIDES batch_size=8", 8),
        ("python app.py workers=$N", 16),
    ],
)
def test_overrides_of_hydra(line: str, expected: int | None, tmp_path: Path) -> None:
    found = fields(tmp_path, line + "\n")["train.batch_size"]
    assert isinstance(found, Unknown) if expected is None else found == expected


TOOL = "base_model: x/y\ndatasets: [{path: d}]\nsequence_len: 512\nmicro_batch_size: 4\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("axolotl train a.yaml $EXTRA", None),
        ("axolotl train a.yaml $EXTRA --micro_batch_size 2", 2),
        ("axolotl train a.yaml --output_dir $OUT", 4),
        ("trl sft --per_device_train_batch_size 4 $EXTRA", None),
        ("trl sft $EXTRA --per_device_train_batch_size 4", 4),
    ],
)
def test_commands_of_tools(line: str, expected: int | None, tmp_path: Path) -> None:
    found = fields(tmp_path, line + "\n", **{"a.yaml": TOOL})
    assert isinstance(found["train.batch_size"], Unknown) if expected is None else found["train.batch_size"] == expected
    if expected != 4 or "EXTRA" in line:
        assert isinstance(found["model.name"], Unknown)
